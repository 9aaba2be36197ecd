// src/api/one_call.hpp: what the one-call forms share. Each thread keeps the plans it used last, and one workspace, for
// each kind of problem.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "cpu/levels.hpp"
#include "falchion/falchion.hpp"
#include "gpu/runtime.hpp"
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
    const char* level = target.cpu_level != nullptr ? target.cpu_level : cpu::level_from_environment();
    const int ordinal = gpu::current_ordinal();
    const std::string wanted = level != nullptr ? level : "";
    for (const Kept& old : kept_) {
      if (!old.plan || !(old.problem == problem) || old.pass != pass || old.level != wanted ||
          !(old.target.executor == target.executor) || old.ordinal != ordinal || old.target.backend != target.backend ||
          old.target.threads != target.threads || old.target.sm != target.sm ||
          old.target.segments != target.segments) {
        continue;
      }
      *out = &old.plan;
      return {};
    }
    Plan plan;
    if (Status status = Plan::make(problem, pass, target, &plan); !status) return status;
    Kept& place = kept_[next_++ % kept_.size()];  // the oldest goes
    place = {problem, pass, target, ordinal, wanted, std::move(plan)};
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

 private:
  struct Kept {
    Problem problem;
    Pass pass = Pass::forward;
    Target target;
    int ordinal = -1;   // the CUDA device that was current
    std::string level;  // by value: what target.cpu_level and FALCHION_CPU said then
    Plan plan;
  };

  void reserve(std::size_t wanted) {
    if (wanted <= bytes_) return;
    workspace_.reset(), bytes_ = 0;
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
    if (Status status = gpu::allocate_on(stream, bytes, &workspace); !status) return status;
  }
  Status status = plan.run(operands, workspace, bytes, stream);
  if (workspace != nullptr) gpu::release_on(stream, workspace);
  return status;
}

/// Memory of a problem's own. Without tokens q may have none, but states still go from place to place.
inline const void* some_data(const Operands& x) { return x.q.data; }
inline const void* some_data(const LinearOperands& x) {
  for (const Tensor* t : {&x.q, &x.initial_state, &x.final_state, &x.grad_final_state, &x.grad_initial_state}) {
    if (t->data != nullptr) return t->data;
  }
  return nullptr;
}

/// Plans, or finds the plan, and runs. `best` goes where the tensors are: to the CPU when they lie in host memory.
template <class Problem, class Operands>
Status run_once(const Problem& problem, Pass pass, const Operands& operands, Target target, Stream stream) {
  thread_local PlanCache<Problem> kept;
  std::unique_ptr<PlanCache<Problem>> own;
  if (kept.busy()) own = std::make_unique<PlanCache<Problem>>();
  PlanCache<Problem>& cache = own ? *own : kept;
  if (target.backend == Backend::best && target.sm == 0 && !gpu::on_device(some_data(operands)))
    target.backend = Backend::cpu;
  const Plan* plan = nullptr;
  if (Status status = cache.plan_for(problem, pass, target, &plan); !status) return status;
  const Backend backend = plan->data()->backend;
  if (backend == Backend::sm80 || backend == Backend::sm90) return run_once_on_gpu(*plan, operands, stream);
  return cache.run(*plan, operands, stream);
}

}  // namespace falchion
