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

#include "api/data_of.hpp"
#include "api/lengths.hpp"
#include "api/operand_list.hpp"
#include "api/run.hpp"
#include "api/validate.hpp"
#include "cpu/levels.hpp"
#include "falchion/falchion.hpp"
#include "plan/operation.hpp"
#include "plan/paths.hpp"
#include "plan/plan_data.hpp"
#include "plan/tiles.hpp"
#include "runtime/runtime.hpp"

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

/// Where a problem lies, and the operand that says so.
struct Anchor {
  const char* name;
  cuda::Place place;
};
/// Asks the operands in their order, lengths too, and takes the first that one side alone can use: ordinary memory is
/// the host's, a GPU's is a GPU's. An empty tensor has no memory and says nothing. Where every operand is pinned or
/// managed, both sides could use them: pinned memory is the host's, as it is for those who hand it out, and one managed
/// operand makes the problem a GPU's.
Anchor anchor_of(const OperandList& list);

inline bool both_can_use(cuda::Place place) { return place == cuda::Place::pinned || place == cuda::Place::managed; }

/// The first operand of each operation.
inline Operand first_of(const Operands& x) { return {.name = "q", .x = &x.q}; }
inline Operand first_of(const LinearOperands& x) { return {.name = "q", .x = &x.q}; }
inline Operand first_of(const GemmOperands& x) { return {.name = "a", .x = &x.a}; }
inline Operand first_of(const NormOperands& x) { return {.name = "x", .x = &x.x}; }

/// The host, or what the operands say in a process that uses CUDA. Mostly the first of them says it, and the others are
/// not listed, which takes 200 ns. A problem that means nothing is the host's, where planning refuses it.
template <class Problem, class Operands>
Anchor anchor_of(const Problem& problem, Pass pass, const Operands& operands) {
  if (!cuda::driver_is_loaded()) return {"q", cuda::Place::host};
  const Operand first = first_of(operands);
  if (const void* data = data_of(*first.x); data != nullptr) {
    if (const cuda::Place place = cuda::place_of(data); !both_can_use(place)) return {first.name, place};
  }
  if (!validate_problem(problem, pass)) return {"q", cuda::Place::host};
  if constexpr (requires { operands_of(problem, pass, operands); }) {
    return anchor_of(operands_of(problem, pass, operands));
  } else {
    return anchor_of(operands_of(problem, operands));
  }
}

/// `best` stays where the operands are: a plan of the host is no answer to operands of a GPU.
Status no_gpu_path(const Anchor& anchor, const PlanData& plan);

template <class Problem>
PlanCache<Problem>& kept_plans() {
  thread_local PlanCache<Problem> kept;
  return kept;
}

/// Plans, or finds the plan, and runs. `best` goes where the operands are. What lies in managed memory goes to the host
/// where no GPU takes the problem. Lengths that a run on the host reads must be in their sequences (lengths.hpp).
template <class Problem, class Operands>
Status run_once(const Problem& problem, Pass pass, const Operands& operands, Target target, Stream stream) {
  PlanCache<Problem>& kept = kept_plans<Problem>();
  std::unique_ptr<PlanCache<Problem>> own;
  if (kept.busy()) own = std::make_unique<PlanCache<Problem>>();
  PlanCache<Problem>& cache = own ? *own : kept;
  const bool any = target.backend == Backend::best && !names_gpu(target);
  const Anchor anchor = any ? anchor_of(problem, pass, operands) : Anchor{"", cuda::Place::unknown};
  if (any && (anchor.place == cuda::Place::host || anchor.place == cuda::Place::pinned))
    target.backend = backend_of_host(operation_of(problem, pass), problem.dtype, target);
  const Plan* plan = nullptr;
  if (Status status = cache.plan_for(problem, pass, target, &plan); !status) return status;
  const cuda::OnDevice device(data_of(*plan)->gpu.ordinal);  // its workspace is allocated there
  if (!device.status()) return device.status();
  if (is_gpu(data_of(*plan)->backend)) return run_once_on_gpu(*plan, operands, stream);
  if (any && !cuda::host_can_use(anchor.place)) return no_gpu_path(anchor, *data_of(*plan));
  if (Status status = check_lengths_of_host(problem, operands); !status) return status;
  return cache.run(*plan, operands, stream);
}

}  // namespace falchion
