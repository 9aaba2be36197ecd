// src/api/one_call.hpp: what the one-call forms share. Each thread keeps the plans it used last, and one workspace, for
// each kind of problem.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "cpu/levels.hpp"
#include "cuda/runtime.hpp"
#include "falchion/falchion.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"
#include "plan/tiles.hpp"

namespace falchion {

struct FreeAligned {
  void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{tiles::kAlign}); }
};

template <class Problem>
class PlanCache {
 public:
  Status plan_for(const Problem& problem, Pass pass, const Target& target, const Plan** out) {
    // A level that the target names asks for the CPU too; one that the environment names does not.
    const bool named = target.cpu_level != nullptr && *target.cpu_level != '\0';
    const char* level = named ? target.cpu_level : cpu::level_from_environment();
    const bool host = target.backend == Backend::cpu || target.backend == Backend::ref;
    const int ordinal = host ? -1 : target.device >= 0 ? target.device : cuda::current_ordinal();  // to ask starts CUDA
    const std::string wanted = level != nullptr ? level : "";
    for (const Kept& old : kept_) {
      if (!old.plan || !(old.problem == problem) || old.pass != pass || old.level != wanted || old.named != named ||
          !(old.target.executor == target.executor) || old.ordinal != ordinal || old.target.backend != target.backend ||
          old.target.threads != target.threads || old.target.sm != target.sm ||
          old.target.segments != target.segments || old.target.device != target.device ||
          old.target.trust_pointers != target.trust_pointers) {
        continue;
      }
      *out = &old.plan;
      return {};
    }
    Plan plan;
    if (Status status = make(problem, pass, target, &plan); !status) return status;
    Kept& place = kept_[next_++ % kept_.size()];  // the oldest goes
    place = {problem, pass, target, ordinal, named, wanted, std::move(plan)};
    *out = &place.plan;
    return {};
  }
  /// Runs a plan of the CPU.
  template <class Operands>
  Status run(const Plan& plan, const Operands& operands, Stream stream) {
    reserve(plan.workspace_bytes());
    busy_ = true;
    Status status = plan.run(operands, workspace_.get(), bytes_, stream);
    busy_ = false;
    return status;
  }
  bool busy() const { return busy_; }
  /// Gives the workspace's memory back; the plans stay. Not while a run uses it.
  void release_workspace() {
    if (!busy_) {
      workspace_.reset();
      bytes_ = 0;
    }
  }

 private:
  struct Kept {
    Problem problem;
    Pass pass = Pass::forward;
    Target target;
    int ordinal = -1;    // the CUDA device that was current; -1 for the host's backends
    bool named = false;  // target.cpu_level was given
    std::string level;   // by value: what target.cpu_level and FALCHION_CPU said then
    Plan plan;
  };

  static Status make(const Gemm& gemm, Pass, const Target& target, Plan* out) { return Plan::make(gemm, target, out); }
  static Status make(const Norm& norm, Pass, const Target& target, Plan* out) { return Plan::make(norm, target, out); }
  static Status make(const auto& attention, Pass pass, const Target& target, Plan* out) {
    return Plan::make(attention, pass, target, out);
  }
  void reserve(std::size_t wanted) {
    if (wanted <= bytes_) return;
    workspace_.reset();
    bytes_ = 0;
    workspace_.reset(static_cast<std::byte*>(::operator new (wanted, std::align_val_t{tiles::kAlign})));
    bytes_ = wanted;
  }

  std::array<Kept, 8> kept_;
  std::size_t next_ = 0;
  std::unique_ptr<std::byte, FreeAligned> workspace_;
  std::size_t bytes_ = 0;
  bool busy_ = false;  // an executor may run other work on this thread while it waits, which may call us again
};

/// The workspace comes and goes in the stream's order, so that calls on other streams have their own.
template <class Operands>
Status run_once_on_gpu(const Plan& plan, const Operands& operands, Stream stream) {
  void* workspace = nullptr;
  const std::size_t bytes = plan.workspace_bytes();
  if (bytes > 0) {
    if (Status status = cuda::allocate_on(stream, bytes, &workspace); !status) return status;
  }
  Status status = plan.run(operands, workspace, bytes, stream);
  if (workspace != nullptr) cuda::release_on(stream, workspace);
  return status;
}

/// The operand that says where a problem lies: q. Without tokens q may have no memory, but gradients of other inputs
/// are written all the same, and states, z and the gradient of a head's decay still go from place to place.
struct Anchor {
  const char* name;
  const void* data;
};
inline Anchor first_with_memory(std::initializer_list<std::pair<const char*, const Tensor*>> all) {
  for (const auto& [name, tensor] : all) {
    if (tensor->data != nullptr) return {name, tensor->data};
  }
  return {"q", nullptr};
}
inline Anchor anchor_of(const Operands& x) {
  return first_with_memory({{"q", &x.q},
                            {"grad_k", &x.grad_k},
                            {"grad_v", &x.grad_v},
                            {"grad_bias", &x.grad_bias},
                            {"grad_alibi", &x.grad_alibi}});
}
inline Anchor anchor_of(const LinearOperands& x) {
  return first_with_memory({{"q", &x.q},
                            {"initial_state", &x.initial_state},
                            {"final_state", &x.final_state},
                            {"grad_final_state", &x.grad_final_state},
                            {"grad_initial_state", &x.grad_initial_state},
                            {"decay", &x.decay}});
}
inline Anchor anchor_of(const GemmOperands& x) {
  return first_with_memory({{"a", &x.a}, {"b", &x.b}, {"d", &x.d}});  // with k = 0 there is no a
}
inline Anchor anchor_of(const NormOperands& x) {
  return first_with_memory({{"x", &x.x}, {"y", &x.y}, {"mean", &x.mean}, {"rstd", &x.rstd}});
}

/// `best` stays where the operands are: a plan of the host is no answer to operands of a GPU.
Status no_gpu_path(const Anchor& anchor, cuda::Place place, const PlanData& plan);

template <class Problem>
PlanCache<Problem>& kept_plans() {
  thread_local PlanCache<Problem> kept;
  return kept;
}

/// Plans, or finds the plan, and runs. `best` goes where the tensors are. Pinned memory is the host's, as it is for
/// those who hand it out; managed memory a GPU's, and the host's where no GPU takes the problem.
template <class Problem, class Operands>
Status run_once(const Problem& problem, Pass pass, const Operands& operands, Target target, Stream stream) {
  PlanCache<Problem>& kept = kept_plans<Problem>();
  std::unique_ptr<PlanCache<Problem>> own;
  if (kept.busy()) own = std::make_unique<PlanCache<Problem>>();
  PlanCache<Problem>& cache = own ? *own : kept;
  const Anchor anchor = anchor_of(operands);
  const bool any = target.backend == Backend::best && !names_gpu(target);
  const cuda::Place place = any ? cuda::place_of(anchor.data) : cuda::Place::unknown;
  if (any && (place == cuda::Place::host || place == cuda::Place::pinned)) {
    const bool names_level = target.cpu_level != nullptr && *target.cpu_level != '\0';
    const bool has_kernel = is_listed_for(Backend::cpu, operation_of(problem, pass));
    target.backend = has_kernel || names_level ? Backend::cpu : Backend::ref;
  }
  const Plan* plan = nullptr;
  if (Status status = cache.plan_for(problem, pass, target, &plan); !status) return status;
  const cuda::OnDevice device(plan->data()->gpu.ordinal);  // its workspace is allocated there
  if (!device.status()) return device.status();
  if (is_gpu(plan->data()->backend)) return run_once_on_gpu(*plan, operands, stream);
  if (any && !cuda::host_can_use(place)) return no_gpu_path(anchor, place, *plan->data());
  return cache.run(*plan, operands, stream);
}

}  // namespace falchion
