// tools/verify/trial.cpp: see trial.hpp.
#include "trial.hpp"

#include <fmt/core.h>

#include <cstring>

#include "paths.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "problem/levels.hpp"

namespace falchion::tools::storm {
namespace {

/// An executor that works on one thread and runs the tasks in another order at each call.
struct LentExecutor {
  int calls = 0;
  static void parallel_for(void* self, int n, void (*task)(void* context, int i), void* context) {
    const int turn = static_cast<LentExecutor*>(self)->calls++ % 3;
    for (int i = 0; i < n; ++i) task(context, turn == 0 ? i : turn == 1 ? n - 1 - i : (i + n / 2) % n);
  }
};

Target target_of(const Problem& p, LentExecutor* executor) {
  Target target = Path{p.backend, p.level}.target(p.threads);
  target.segments = p.segments;
  if (is_gpu(p.backend)) target.sms = p.sms;
  if (p.lent) {
    target.executor.parallel_for = LentExecutor::parallel_for;
    target.executor.self = executor;
    target.executor.threads = p.threads;
  }
  return target;
}

struct Run {
  const Problem& problem;
  const Plan& plan;
  const Subject& subject;
  Bench* bench;
  DeviceArena* device;
  Watchdog::Slot* slot;

  /// Runs on copy `n`; the second time the workspace holds other bytes.
  Status operator()(int n, bool* whole) const {
    const Image& image = subject.image();
    GuardedBuffer& copy = bench->copies[n];
    const std::size_t bytes = plan.workspace_bytes();
    const std::uint8_t fill = n == 0 ? 0xFF : 0x7B;
    copy.resize(image.size());
    const auto timed = [&](std::byte* base, void* workspace) {
      slot->start();
      Status status = subject.run(plan, base, workspace, bytes);
      if (on_gpu(plan) && status) status = cuda::synchronize();
      slot->stop();
      return status;
    };
    if (on_gpu(plan)) {
      Status status = device->run(image.data(), image.size(), bytes, fill, copy.data(), whole, timed);
      if (!status && !cuda::synchronize()) give_up("the device is lost: " + status.why, command_of(problem));
      return status;
    }
    std::memcpy(copy.data(), image.data(), image.size());
    bench->workspace.resize(bytes);
    bench->workspace.fill(fill);
    const Status status = timed(copy.data(), bench->workspace.data());
    *whole = bench->workspace.guard_is_whole();
    return status;
  }
};

std::string text_of(const Status& status) {
  return status ? "ok" : fmt::format("{}: {}", name(status.code), status.why);
}

/// The error after two successful runs; empty if there is none.
std::string fault_of_results(const Problem& problem, const Plan& plan, const TwoRuns& runs, Subject* subject) {
  const Image& image = subject->image();
  const bool any_order = problem.attention.any_order;  // then grad_q, and nothing else, may have other bits each time
  const std::string unlike = image.difference(runs.first, runs.second, any_order ? "grad_q" : "");
  for (std::byte* copy : {runs.first, runs.second}) {
    if (copy == runs.second && !any_order) break;
    if (std::string why = subject->judge(copy, on_gpu(plan)); !why.empty()) return why;
    const std::string touched = image.difference(copy, image.data());
    if (unlike.empty() && !touched.empty()) return "was written though nothing is to be written there: " + touched;
  }
  return unlike.empty() ? "" : "two runs differ: " + unlike;
}

}  // namespace

Outcome conclude(const Problem& problem, const Plan& plan, const TwoRuns& runs, Subject* subject) {
  using Kind = Outcome::Kind;
  const Status &first = runs.status[0], &second = runs.status[1];
  Outcome out{Kind::failed, "", plan.describe(), place_of(plan), ""};
  if (!runs.guards_are_whole) {
    out.why = "bytes behind the workspace were written";
  } else if (first.code != second.code) {
    out.why = fmt::format("two runs differ: run: {}; run again: {}", text_of(first), text_of(second));
  } else if (first) {
    out.why = fault_of_results(problem, plan, runs, subject);
    out.measured = subject->measured();
    if (out.why.empty()) out.kind = Kind::passed;
  } else {
    out.why = fmt::format("run: {}", text_of(first));
    for (const std::byte* copy : {runs.first, runs.second}) {
      const std::string touched = subject->image().difference(copy, subject->image().data());
      if (touched.empty()) continue;
      out.why += "; and yet was written: " + touched;
      return out;
    }
    const bool may = (first.code == Code::invalid && may_exceed_the_hint(problem, plan)) ||
                     (first.code == Code::unsupported && may_refuse_layouts(problem, plan));
    if (may) out.kind = Kind::refused;
  }
  return out;
}

Outcome attempt(const Problem& problem, Bench* bench, DeviceArena* device, Watchdog::Slot* slot) {
  using Kind = Outcome::Kind;
  slot->work_on(command_of(problem));
  LentExecutor executor;
  Plan plan;
  if (Status status = make_plan(problem, target_of(problem, &executor), &plan); !status) {
    const bool may = status.code == Code::unsupported && may_be_unsupported(problem);
    return {may ? Kind::refused : Kind::failed, "plan: " + text_of(status)};
  }
  const auto subject = make_subject(problem);
  const Run run{problem, plan, *subject, bench, device, slot};
  TwoRuns runs;
  for (const int n : {0, 1}) {
    bool whole = true;
    runs.status[n] = run(n, &whole);
    runs.guards_are_whole = runs.guards_are_whole && whole;
  }
  runs.first = bench->copies[0].data();
  runs.second = bench->copies[1].data();
  return conclude(problem, plan, runs, subject.get());
}

}  // namespace falchion::tools::storm
