// src/api/attention.cpp: the one-call form. Each thread keeps the plans it used last, and one workspace.
#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <string>

#include "api/check.hpp"
#include "cpu/levels.hpp"
#include "falchion/falchion.hpp"
#include "gpu/runtime.hpp"
#include "plan/plan_data.hpp"
#include "plan/tiles.hpp"

namespace falchion {
namespace {

struct FreeAligned {
  void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{tiles::kAlign}); }
};

struct Kept {
  Attention problem;
  Target target;
  int ordinal = -1;   // the CUDA device that was current
  std::string level;  // by value: what target.cpu_level and FALCHION_CPU said then
  Plan plan;
};

struct Cache {
  std::array<Kept, 8> kept;
  std::size_t next = 0;
  std::unique_ptr<std::byte, FreeAligned> workspace;
  std::size_t bytes = 0;
  bool busy = false;  // an executor may run other work on this thread while it waits, which may call us again

  Status plan_for(const Attention& problem, const Target& target, const Plan** out) {
    const char* level = target.cpu_level != nullptr ? target.cpu_level : cpu::level_from_environment();
    const int ordinal = gpu::current_ordinal();
    const std::string wanted = level != nullptr ? level : "";
    for (const Kept& old : kept) {
      if (!old.plan || !(old.problem == problem) || old.level != wanted || !(old.target.executor == target.executor) ||
          old.ordinal != ordinal || old.target.backend != target.backend || old.target.threads != target.threads ||
          old.target.sm != target.sm) {
        continue;
      }
      *out = &old.plan;
      return {};
    }
    Plan plan;
    if (Status status = Plan::make(problem, Pass::forward, target, &plan); !status) return status;
    Kept& place = kept[next++ % kept.size()];  // the oldest goes
    place = {problem, target, ordinal, wanted, std::move(plan)};
    *out = &place.plan;
    return {};
  }
  void reserve(std::size_t wanted) {
    if (wanted <= bytes) return;
    workspace.reset(), bytes = 0;
    workspace.reset(static_cast<std::byte*>(::operator new (wanted, std::align_val_t{tiles::kAlign})));
    bytes = wanted;
  }
};

/// The workspace comes and goes in the stream's order, so that calls on other streams have their own.
Status run_on_gpu(const Plan& plan, const Operands& operands, Stream stream) {
  void* workspace = nullptr;
  const std::size_t bytes = plan.workspace_bytes();
  if (bytes > 0) {
    if (Status status = gpu::allocate_on(stream, bytes, &workspace); !status) return status;
  }
  Status status = plan.run(operands, workspace, bytes, stream);
  if (workspace != nullptr) gpu::release_on(stream, workspace);
  return status;
}

/// The longest of b packed sequences where the host can read the lengths; on the device a guess, which is all a GPU
/// plan needs.
std::int64_t longest(const std::int32_t* cu_seqlens, std::int64_t b, std::int64_t total) {
  if (cu_seqlens == nullptr || b == 0) return 0;
  if (gpu::on_device(cu_seqlens)) return (total + b - 1) / b;
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < b; ++i)
    most = std::max<std::int64_t>(most, std::int64_t{cu_seqlens[i + 1]} - cu_seqlens[i]);
  return std::min(most, total);
}

/// `best` goes where the tensors are: to the CPU when q lies in host memory.
Target where(const Operands& x, Target target) {
  if (target.backend == Backend::best && target.sm == 0 && !gpu::on_device(x.q.data)) target.backend = Backend::cpu;
  return target;
}

/// What the tensors say goes before what the options say.
Attention problem_of(const Operands& x, const Attention& options) {
  Attention a = options;
  a.dtype = x.q.dtype;
  a.packed = x.cu_seqlens_q != nullptr || x.cu_seqlens_k != nullptr;
  if (!a.packed) a.b = x.q.shape[0], a.s_q = x.q.shape[1], a.s_k = x.k.shape[1];
  if (a.packed && a.s_q == 0) a.s_q = longest(x.cu_seqlens_q, a.b, x.q.shape[1]);
  if (a.packed && a.s_k == 0) a.s_k = longest(x.cu_seqlens_k, a.b, x.k.shape[1]);
  a.h_q = x.q.shape[2], a.h_k = x.k.shape[2];
  a.d_qk = x.q.shape[3], a.d_v = x.v.shape[3];
  a.used_q = x.used_q != nullptr, a.used_k = x.used_k != nullptr;
  a.alibi = x.alibi != nullptr, a.bias = x.bias.data != nullptr, a.mask = x.mask.data != nullptr;
  a.lse = x.lse.data != nullptr, a.row_max = x.row_max.data != nullptr,
  a.probabilities = x.probabilities.data != nullptr;
  return a;
}

}  // namespace

Status attention(const Operands& operands, const Attention& options, Target target, Stream stream) noexcept try {
  thread_local Cache kept;
  std::unique_ptr<Cache> own;
  if (kept.busy) own = std::make_unique<Cache>();
  Cache& cache = own ? *own : kept;
  const Plan* plan = nullptr;
  if (Status status = cache.plan_for(problem_of(operands, options), where(operands, target), &plan); !status)
    return status;
  const Backend backend = plan->data()->backend;
  if (backend == Backend::sm80 || backend == Backend::sm90) return run_on_gpu(*plan, operands, stream);
  cache.reserve(plan->workspace_bytes());
  cache.busy = true;
  Status status = plan->run(operands, cache.workspace.get(), cache.bytes, stream);
  cache.busy = false;
  return status;
} catch (...) { return caught(); }

}  // namespace falchion
