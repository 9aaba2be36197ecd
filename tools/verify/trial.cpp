// tools/verify/trial.cpp: see trial.hpp.
#include "trial.hpp"

#include <fmt/format.h>

#include <cstring>

#include "levels.hpp"
#include "plan/text.hpp"
#include "subject.hpp"

namespace falchion::tools::storm {
namespace {

/// An executor that works alone, in an order that is another one at each call.
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
  if (p.lent) {
    target.executor.parallel_for = LentExecutor::parallel_for;
    target.executor.self = executor;
    target.executor.threads = p.threads;
  }
  return target;
}

Status make_plan(const Problem& p, const Target& target, Plan* plan) {
  return p.op == Op::attention ? Plan::make(p.attention, Pass::forward, target, plan)
                               : Plan::make(p.linear, p.pass(), target, plan);
}

/// Lengths that are longer than the problem's hint may be refused at the run.
bool hint_is_too_small(const Problem& p) {
  const auto over = [](const std::vector<std::int64_t>& lengths, std::int64_t most) {
    for (const std::int64_t n : lengths)
      if (n > most) return true;
    return false;
  };
  if (p.op != Op::attention) return over(p.lengths_q, p.linear.s) || p.spare > 0;
  return over(p.lengths_q, p.attention.s_q) || over(p.lengths_k, p.attention.s_k) || p.spare > 0;
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
      if (on_gpu(plan) && status) status = gpu::synchronize();
      slot->stop();
      return status;
    };
    if (on_gpu(plan)) {
      Status status = device->run(image.data(), image.size(), bytes, fill, copy.data(), whole, timed);
      if (!status && !gpu::synchronize()) give_up("the device is lost: " + status.why, command_of(problem));
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

}  // namespace

Outcome attempt(const Problem& problem, Bench* bench, DeviceArena* device, Watchdog::Slot* slot) {
  using Kind = Outcome::Kind;
  slot->work_on(command_of(problem));
  LentExecutor executor;
  Plan plan;
  if (Status status = make_plan(problem, target_of(problem, &executor), &plan); !status) {
    const bool may = status.code == Code::unsupported && problem.backend != Backend::best;
    return {may ? Kind::refused : Kind::failed, fmt::format("plan: {}: {}", name(status.code), status.why)};
  }
  Outcome out;
  out.plan = plan.describe();
  const auto subject = make_subject(problem);
  const Run run{problem, plan, *subject, bench, device, slot};
  for (const int n : {0, 1}) {
    bool whole = true;
    if (Status status = run(n, &whole); !status) {
      const bool may = hint_is_too_small(problem) && (status.code == Code::invalid || status.code == Code::unsupported);
      out.kind = may ? Kind::refused : Kind::failed;
      out.why = fmt::format("run: {}: {}", name(status.code), status.why);
      return out;
    }
    if (!whole) out.why = "bytes behind the workspace were written";
  }
  std::byte *first = bench->copies[0].data(), *second = bench->copies[1].data();
  const std::string unlike = subject->image().difference(first, second);
  if (out.why.empty()) out.why = subject->judge(first, on_gpu(plan));
  if (out.why.empty() && !unlike.empty()) out.why = "two runs differ: " + unlike;
  if (out.why.empty()) {
    const std::string touched = subject->image().difference(first, subject->image().data());
    if (!touched.empty()) out.why = "was written though nothing is to be written there: " + touched;
  }
  if (!out.why.empty()) out.kind = Kind::failed;
  return out;
}

}  // namespace falchion::tools::storm
