// src/api/one_call.hpp: common to the one-call forms. Each thread keeps its last plans, and one workspace, for each
// kind of problem.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <tuple>
#include <utility>

#include "api/lengths.hpp"
#include "api/operand_list.hpp"
#include "api/run.hpp"
#include "api/validate.hpp"
#include "cpu/levels.hpp"
#include "falchion/falchion.hpp"
#include "plan/constants.hpp"
#include "plan/operation.hpp"
#include "plan/paths.hpp"
#include "plan/plan_data.hpp"
#include "runtime/runtime.hpp"

namespace falchion {

struct FreeAligned {
  void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{tiles::kAlign}); }
};

/// The key of a kept plan. Equal requests share a plan.
template <class Problem>
struct Request {
  Problem problem;
  Pass pass = Pass::forward;
  Target target;
  bool named = false;  // target.cpu_level was given
  std::string level;   // by value: what target.cpu_level and FALCHION_CPU said then
  int ordinal = -1;    // the CUDA device that was current; -1 for the host's backends

  bool operator==(const Request& other) const {
    return problem == other.problem && pass == other.pass && named == other.named && level == other.level &&
           ordinal == other.ordinal && fields(target) == fields(other.target);
  }

 private:
  /// All fields of a target except its level. If it gets another field, this does not compile.
  static auto fields(const Target& x) {
    const auto& [backend, threads, executor, sm, cpu_level, segments, device, trust_pointers, sms] = x;
    static_cast<void>(cpu_level);
    return std::tie(backend, threads, executor, sm, segments, device, trust_pointers, sms);
  }
};

template <class Problem>
Request<Problem> request_for(const Problem& problem, Pass pass, const Target& target) {
  // A level in the target requests the CPU too; one in the environment does not.
  const bool named = target.cpu_level != nullptr && *target.cpu_level != '\0';
  const char* level = named ? target.cpu_level : cpu::level_from_environment();
  const bool host = target.backend == Backend::cpu || target.backend == Backend::ref;
  const int ordinal = host ? -1 : target.device >= 0 ? target.device : cuda::current_ordinal();  // to ask starts CUDA
  return {problem, pass, target, named, level != nullptr ? level : "", ordinal};
}

template <class Problem>
class PlanCache {
 public:
  /// The plan is kept until eight others have been requested.
  Status plan_for(Request<Problem> request, const PlanData** out) {
    for (const Kept& old : kept_) {
      if (old.plan == nullptr || !(old.request == request)) continue;
      *out = old.plan.get();
      return {};
    }
    std::shared_ptr<const PlanData> plan;
    if (Status status = make_plan(request.problem, request.pass, request.target, &plan); !status) return status;
    *out = plan.get();
    kept_[next_++ % kept_.size()] = {std::move(request), std::move(plan)};  // the oldest goes
    return {};
  }
  /// Runs a plan of the CPU.
  Status run_on_host(const PlanData& plan, const OperandsOf<Problem>& operands, Known known) {
    reserve(plan.workspace);
    known.workspace_is_in_place = true;
    busy_ = true;
    Status status = run<Problem>(plan, operands, {workspace_.get(), bytes_}, nullptr, known);
    busy_ = false;
    return status;
  }
  bool busy() const { return busy_; }
  /// Frees the workspace; the plans stay. Does nothing while a run uses it.
  void release_workspace() {
    if (!busy_) {
      workspace_.reset();
      bytes_ = 0;
    }
  }

 private:
  struct Kept {
    Request<Problem> request;
    std::shared_ptr<const PlanData> plan;
  };

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

/// The workspace is allocated and freed in the stream's order, so that calls on other streams have their own.
template <class Problem>
Status run_once_on_gpu(const PlanData& plan, const OperandsOf<Problem>& operands, Stream stream, Known known) {
  void* workspace = nullptr;
  if (plan.workspace > 0) {
    if (Status status = cuda::allocate_on(stream, plan.workspace, &workspace); !status) return status;
  }
  known.device_is_current = known.workspace_is_in_place = true;
  Status status = run<Problem>(plan, operands, {workspace, plan.workspace}, stream, known);
  if (workspace != nullptr) cuda::release_on(stream, workspace);
  return status;
}

/// The place of a problem, and the operand that decides it.
struct Anchor {
  const char* name = "";
  const void* data = nullptr;
  cuda::Place place = cuda::Place::unknown;

  /// The findings that a run need not query again. In a thread without a CUDA context, memory of its GPU had counted as
  /// another device's.
  Known known() const {
    const bool stays = cuda::host_can_use(place) || place == cuda::Place::here;
    return stays ? Known{.data = data, .place = place} : Known{};
  }
};
/// Goes over the operands in their order, including lengths, and takes the first that only one side can use: ordinary
/// memory is the host's, a GPU's memory is the GPU's. An empty tensor has no memory and does not count. If every
/// operand is pinned or managed, both sides could use them: then one managed operand makes the problem a GPU's, else it
/// is the host's.
Anchor anchor_of(const OperandList& list);

inline bool both_can_use(cuda::Place place) { return place == cuda::Place::pinned || place == cuda::Place::managed; }

/// The host, or in a process that uses CUDA the place of the operands. Mostly the first of them decides it, and the
/// others are not listed, which saves 200 ns. An invalid problem is the host's, where planning refuses it.
template <class Problem>
Anchor anchor_of(const Problem& problem, Pass pass, const OperandsOf<Problem>& operands) {
  if (!cuda::driver_is_loaded()) return {.name = "q", .place = cuda::Place::host};
  using Traits = TraitsOf<Problem>;
  if (const void* data = data_of(operands.*Traits::kFirst); data != nullptr) {
    const cuda::Place place = cuda::place_of(data);
    if (!both_can_use(place)) return {Traits::kFirstName, data, place};
  }
  if (!validate_problem(problem, pass)) return {.name = "q", .place = cuda::Place::host};
  return anchor_of(operands_of(problem, pass, operands));
}

/// `best` stays where the operands are: a plan for the host cannot run on operands of a GPU.
Status no_gpu_path(const Anchor& anchor, const PlanData& plan);

template <class Problem>
PlanCache<Problem>& kept_plans() {
  thread_local PlanCache<Problem> kept;
  return kept;
}

/// Plans, or finds the plan, and runs. `best` runs where the operands are. A problem in managed memory runs on the host
/// if no GPU path accepts it. Lengths that a run on the host reads must be within their sequences (lengths.hpp).
template <class Problem>
Status run_once(const Problem& problem, Pass pass, const OperandsOf<Problem>& operands, Target target, Stream stream) {
  PlanCache<Problem>& kept = kept_plans<Problem>();
  std::unique_ptr<PlanCache<Problem>> own;
  if (kept.busy()) own = std::make_unique<PlanCache<Problem>>();
  PlanCache<Problem>& cache = own ? *own : kept;
  const bool any = target.backend == Backend::best && !names_gpu(target);
  const Anchor anchor = any ? anchor_of(problem, pass, operands) : Anchor{};
  if (any && (anchor.place == cuda::Place::host || anchor.place == cuda::Place::pinned))
    target.backend = backend_of_host(operation_of(problem, pass), dtype_on_cpu(problem), target);
  const PlanData* plan = nullptr;
  if (Status status = cache.plan_for(request_for(problem, pass, target), &plan); !status) return status;
  const cuda::OnDevice device(plan->gpu.ordinal);  // its workspace is allocated there
  if (!device.status()) return device.status();
  if (is_gpu(plan->backend)) return run_once_on_gpu<Problem>(*plan, operands, stream, anchor.known());
  if (any && !cuda::host_can_use(anchor.place)) return no_gpu_path(anchor, *plan);
  if (Status status = check_lengths_of_host(problem, operands); !status) return status;
  return cache.run_on_host(*plan, operands, anchor.known());
}

}  // namespace falchion
