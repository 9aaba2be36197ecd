// python/xla/plans.hpp: the plans that were used last. One cache serves the whole process, because XLA runs the calls
// of one program on whatever thread is free. The one-call form of the C API keeps plans too, but those of one thread,
// and it owns the workspaces; here XLA does.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>

#include "falchion/falchion.h"
#include "threads.hpp"

namespace falchion::xla_ffi {

using Plan = std::shared_ptr<const fal_plan>;

inline fal_status make_plan(const fal_attention& problem, std::int32_t pass, const fal_target& target, fal_plan** out) {
  return fal_plan_make(&problem, pass, &target, out);
}
inline fal_status make_plan(const fal_linear_attention& problem, std::int32_t pass, const fal_target& target,
                            fal_plan** out) {
  return fal_linear_plan_make(&problem, pass, &target, out);
}
inline fal_status make_plan(const fal_gemm& problem, std::int32_t, const fal_target& target, fal_plan** out) {
  return fal_gemm_plan_make(&problem, &target, out);
}
inline fal_status make_plan(const fal_norm& problem, std::int32_t pass, const fal_target& target, fal_plan** out) {
  return pass == FAL_BACKWARD ? fal_norm_backward_plan_make(&problem, &target, out)
                              : fal_norm_plan_make(&problem, &target, out);
}

/// What a plan is known by. Its bytes are compared, so `asked` fills it with zeroes first.
template <class Problem>
struct Question {
  Problem problem;
  std::int32_t pass;
  std::int32_t backend;
  std::int32_t device;   // CUDA's number; -1 for a call on the host
  std::int32_t threads;  // on the host: how many XLA lends

  bool operator==(const Question& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
};

/// An operand of XLA always lies where the call runs, so nobody has to ask the driver about it. A back end of the host
/// that is asked for in a call on a GPU is the exception, and there the run refuses the operands.
template <class Problem>
fal_target target_of(const Question<Problem>& question, const fal_executor* executor) {
  const bool host = question.backend == FAL_CPU || question.backend == FAL_REF;
  fal_target target{};
  target.size = sizeof target;
  target.backend = question.backend;
  target.trust_pointers = host == (question.device < 0) ? 1 : 0;
  if (host) target.executor = executor;
  if (!host && question.device >= 0) {
    target.device = question.device;
    target.use_device = 1;
  }
  return target;
}

template <class Problem>
class Plans {
 public:
  /// Finds the plan or makes it. A run that still uses a plan keeps it alive when it leaves the cache.
  fal_status get(const Question<Problem>& question, Plan* out) {
    if (find(question, out)) return FAL_OK;
    const fal_executor executor = executor_with(question.threads);
    fal_plan* made = nullptr;
    const fal_status status =  // without the lock: this takes 30 to 50 us
        make_plan(question.problem, question.pass, target_of(question, &executor), &made);
    if (status != FAL_OK) return status;
    *out = Plan(made, [](const fal_plan* plan) { fal_plan_free(const_cast<fal_plan*>(plan)); });
    keep(question, *out);
    return FAL_OK;
  }

 private:
  struct Kept {
    Question<Problem> question;
    Plan plan;
    std::uint64_t used = 0;  // when: a count of uses
  };

  bool find(const Question<Problem>& question, Plan* out) {
    const std::lock_guard lock(mutex_);
    for (Kept& kept : kept_) {
      if (!kept.plan || !(kept.question == question)) continue;
      kept.used = ++now_;
      *out = kept.plan;
      return true;
    }
    return false;
  }
  void keep(const Question<Problem>& question, const Plan& plan) {
    const std::lock_guard lock(mutex_);
    Kept* oldest = &kept_[0];
    for (Kept& kept : kept_) {
      if (kept.used < oldest->used) oldest = &kept;
    }
    oldest->question = question;
    oldest->plan = plan;
    oldest->used = ++now_;
  }

  std::mutex mutex_;
  std::array<Kept, 64> kept_;
  std::uint64_t now_ = 0;
};

}  // namespace falchion::xla_ffi
