// tools/verify/storm.cpp: see storm.hpp.
#include "storm.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>

#include "command/interrupt.hpp"
#include "command/print_json.hpp"
#include "command/table.hpp"
#include "draw.hpp"
#include "measure/measure.hpp"
#include "paths.hpp"
#include "plan/text.hpp"
#include "tool.hpp"

namespace falchion::tools::storm {
namespace {

constexpr std::size_t kShrunk = 20;  // this many failures are shrunk and reported; the others are only counted

/// The text of a failure without its numbers. A smaller problem must fail for the same reason.
std::string kind_of(const std::string& why) {
  std::string out;
  std::copy_if(why.begin(), why.end(), std::back_inserter(out), [](char c) { return std::isalpha(c) != 0; });
  return out.substr(0, 40);
}

struct Group {
  std::int64_t passed = 0, refused = 0, failed = 0;
  bool ran() const { return passed + failed > 0; }
  const char* result() const { return failed > 0 ? "FAIL" : ran() ? "ok" : "refused"; }
};
struct Failure {
  Problem problem;
  std::string why, first_why;
  std::string drawn;  // the command of the problem as it was drawn
};

/// What the workers share.
struct Storm {
  const StormOptions& options;
  Watchdog watchdog;
  DeviceArena device;
  Clock::time_point start = Clock::now();
  std::atomic<std::int64_t> next = 0, done = 0, failed = 0;
  std::atomic<bool> stopped = false;
  std::mutex mutex;
  std::map<std::tuple<Op, std::string, std::string>, Group> groups;
  std::vector<Failure> failures;
  std::string refusal;  // the first one
  std::string error;    // of the storm itself, which ends it: no room for a problem, say

  explicit Storm(const StormOptions& given) : options(given), watchdog(given.patience) {}

  bool over() const {
    return stopped || interrupted() || (options.seconds > 0 && seconds_since(start) >= options.seconds);
  }
  bool grace_is_over() const {
    return stopped || interrupted() || (options.seconds > 0 && seconds_since(start) >= options.seconds + options.grace);
  }
  bool anything_ran() const;
  Problem draw(std::int64_t index) const;
  void count(const Problem& problem, const Outcome& outcome);
  void stop(const std::string& why, const Problem& problem);
  void take(std::int64_t index, Bench* bench, Watchdog::Slot* slot);
  void work();
  void make_small(const Problem& problem, const Outcome& outcome, Bench* bench, Watchdog::Slot* slot);
  void watch_progress(const std::atomic<bool>& finished);
};

/// The row of the report that counts a problem. It has the place of the run, since `best` may run anywhere, and a run
/// on the CPU does not test a GPU.
std::string row_of(const Problem& problem, const Outcome& outcome) {
  const std::string asked = Path{problem.backend, problem.level}.name();
  return problem.backend != Backend::best || outcome.place.empty() ? asked
                                                                   : fmt::format("{} -> {}", asked, outcome.place);
}

bool Storm::anything_ran() const {
  return std::any_of(groups.begin(), groups.end(), [](const auto& entry) { return entry.second.ran(); });
}

Problem Storm::draw(std::int64_t index) const {
  const auto i = static_cast<std::uint64_t>(index);
  const Op op = options.ops[i % options.ops.size()];
  const std::vector<DType> types = types_of(options, op);
  Mix mix = options.mix;
  Problem problem = draw_problem(options.seed, i, op, types, mix);
  std::vector<Path> paths = storm_paths(options.backend, options.level, problem);
  if (paths.empty()) {  // none takes q of 8 bits
    mix.eight = 0;
    problem = draw_problem(options.seed, i, op, types, mix);
    paths = storm_paths(options.backend, options.level, problem);
  }
  const Path& path = paths[random_bits(options.seed ^ 0x5A5A, i) % paths.size()];
  problem.backend = path.backend;
  problem.level = path.level;
  return problem;
}

void Storm::count(const Problem& problem, const Outcome& outcome) {
  const std::lock_guard lock(mutex);
  Group& group = groups[{problem.op, row_of(problem, outcome), name(problem.dtype())}];
  if (outcome.kind == Outcome::Kind::refused && refusal.empty()) refusal = outcome.why;
  (outcome.failed() ? group.failed : outcome.kind == Outcome::Kind::refused ? group.refused : group.passed) += 1;
}

void Storm::make_small(const Problem& problem, const Outcome& outcome, Bench* bench, Watchdog::Slot* slot) {
  if (static_cast<std::size_t>(failed++) >= kShrunk) return;
  Failure failure{problem, outcome.why, outcome.why, command_of(problem)};
  failure.problem = shrink(
      problem,
      [&](const Problem& smaller) {
        const Outcome again = options.attempt(smaller, bench, &device, slot);
        const bool same = again.failed() && kind_of(again.why) == kind_of(failure.first_why);
        if (same) failure.why = again.why;
        return same;
      },
      [&] { return grace_is_over(); });
  const std::lock_guard lock(mutex);
  fmt::print(stderr, "{}FAIL {}\n     {}\n", isatty(STDERR_FILENO) ? "\r\033[K" : "", command_of(failure.problem),
             failure.why);
  failures.push_back(std::move(failure));
}

void Storm::stop(const std::string& why, const Problem& problem) {
  const std::lock_guard lock(mutex);
  if (error.empty()) error = fmt::format("the storm cannot go on: {}; it was at: {}", why, command_of(problem));
  stopped = true;
}

void Storm::take(std::int64_t index, Bench* bench, Watchdog::Slot* slot) {
  const Problem problem = draw(index);
  try {
    const Outcome outcome = options.attempt(problem, bench, &device, slot);
    count(problem, outcome);
    if (outcome.failed()) make_small(problem, outcome, bench, slot);
    ++done;
  } catch (const UsageError& e) {
    stop(e.what, problem);
  } catch (const std::exception& e) {  // such as bad_alloc, which is not the fault of what the storm tests
    stop(e.what(), problem);
  }
}

void Storm::work() {
  Bench bench;
  Watchdog::Slot* slot = watchdog.add_slot();
  for (std::int64_t i = next++; i < options.problems && !over(); i = next++) take(i, &bench, slot);
}

void Storm::watch_progress(const std::atomic<bool>& finished) {
  const bool live = isatty(STDERR_FILENO) != 0;
  for (int tick = 1; !finished; ++tick) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (finished || tick % (live ? 5 : 100) != 0) continue;
    const std::int64_t now = done;
    const std::lock_guard lock(mutex);
    fmt::print(stderr, "{}{} of {} problems, {:.0f}/s, {} failed{}", live ? "\r\033[K" : "", now, options.problems,
               static_cast<double>(now) / seconds_since(start), failed.load(), live ? "" : "\n");
  }
  if (live) fmt::print(stderr, "\r\033[K");
}

void print_table(const Storm& storm) {
  Table table({"<operation", "<backend", "<type", "passed", "refused", "failed", "<result"});
  for (const auto& [key, group] : storm.groups) {
    const auto& [op, path, dtype] = key;
    table.row({name(op), path, dtype, std::to_string(group.passed), std::to_string(group.refused),
               std::to_string(group.failed), group.result()});
  }
  fmt::print("{}", table.text());
  for (const Failure& failure : storm.failures)
    fmt::print("FAIL {}\n     {}\n     was {}\n", command_of(failure.problem), failure.why, failure.drawn);
  fmt::print(
      "{}seed {}: {} problems in {}, {:.0f}/s, {} failed{}\n", interrupted() ? "interrupted; " : "", storm.options.seed,
      storm.done.load(), format_seconds(seconds_since(storm.start)),
      static_cast<double>(storm.done) / seconds_since(storm.start), storm.failed.load(),
      storm.failed > static_cast<std::int64_t>(kShrunk) ? fmt::format(" (the first {} are shown)", kShrunk) : "");
}

void print_report(const Storm& storm) {
  std::vector<Json> groups, failures;
  for (const auto& [key, group] : storm.groups) {
    const auto& [op, path, dtype] = key;
    groups.push_back(Json::object({{"op", name(op)},
                                   {"backend", path},
                                   {"dtype", dtype},
                                   {"passed", group.passed},
                                   {"refused", group.refused},
                                   {"failed", group.failed},
                                   {"result", group.result()}}));
  }
  for (const Failure& failure : storm.failures)
    failures.push_back(
        Json::object({{"command", command_of(failure.problem)}, {"why", failure.why}, {"drawn", failure.drawn}}));
  print_json(Json::object({{"seed", storm.options.seed},
                           {"problems", storm.done.load()},
                           {"failed", storm.failed.load()},
                           {"seconds", seconds_since(storm.start)},
                           {"interrupted", interrupted()},
                           {"groups", Json::array(groups)},
                           {"failures", Json::array(failures)}}));
}

}  // namespace

std::vector<DType> types_of(const StormOptions& options, Op op) {
  std::vector<DType> out;
  for (const DType dtype : options.types)
    if (is_listed(op, dtype) && !storm_paths(options.backend, options.level, op, dtype).empty()) out.push_back(dtype);
  return out;
}

int run_storm(const StormOptions& options) {
  const std::string where = options.level.empty() ? options.backend : options.backend + " " + options.level;
  if (options.ops.empty())
    throw UsageError{fmt::format("this build has no variant of {} in the types asked for", where)};
  for (const Op op : options.ops)
    if (types_of(options, op).empty())
      throw UsageError{fmt::format("this build has no variant of {} for {} in the types asked for", where, name(op))};
  Storm storm(options);
  std::atomic<bool> finished = false;
  std::thread progress([&] { storm.watch_progress(finished); });
  std::vector<std::thread> workers;
  const int count = options.workers > 0 ? options.workers : static_cast<int>(std::thread::hardware_concurrency());
  for (int i = 0; i < std::max(count, 1); ++i) workers.emplace_back([&] { storm.work(); });
  for (std::thread& worker : workers) worker.join();
  finished = true;
  progress.join();
  if (options.as_json) {
    print_report(storm);
  } else {
    print_table(storm);
  }
  if (!storm.error.empty()) throw UsageError{storm.error};
  if (interrupted()) return interrupted_exit_code();
  if (!storm.anything_ran() && storm.done > 0)
    throw UsageError{"nothing was run, all was refused; the first: " + storm.refusal};
  return storm.failed > 0 ? exit_failed : exit_ok;
}

int run_problems(const std::vector<std::string>& texts, double patience, bool as_json) {
  Watchdog watchdog(patience);
  DeviceArena device;
  Bench bench;
  Watchdog::Slot* slot = watchdog.add_slot();
  std::vector<Json> list;
  bool failed = false;
  for (const std::string& given : texts) {
    if (interrupted()) break;
    const Problem problem = parse_problem(given);
    const Outcome outcome = attempt(problem, &bench, &device, slot);
    failed = failed || outcome.failed();
    const char* result = outcome.failed() ? "FAIL" : outcome.kind == Outcome::Kind::refused ? "refused" : "ok";
    list.push_back(Json::object({{"problem", to_text(problem)},
                                 {"plan", outcome.plan},
                                 {"result", result},
                                 {"why", outcome.why},
                                 {"measured", outcome.measured}}));
    if (!as_json) fmt::print("{} {}\n", result, to_text(problem));
    for (const std::string& line : {outcome.plan, outcome.measured, outcome.why})
      if (!as_json && !line.empty()) fmt::print("  {}\n", line);
    std::fflush(stdout);  // otherwise it would be lost if the next one crashes
  }
  if (as_json) print_json(Json::array(list));
  return failed ? exit_failed : exit_ok;
}

}  // namespace falchion::tools::storm
