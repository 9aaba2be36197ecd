// tools/verify/storm.cpp: see storm.hpp.
#include "storm.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <tuple>

#include "draw.hpp"
#include "gpu/runtime.hpp"
#include "measure.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "problem_options.hpp"
#include "table.hpp"
#include "tool.hpp"

namespace falchion::tools::storm {
namespace {

constexpr std::size_t kShrunk = 20;  // failures that are made small and told; the others are counted

const char* operation_of(Op op) {
  return op == Op::attention ? "attention_forward"
         : op == Op::linear  ? "linear_attention_forward"
                             : "linear_attention_backward";
}

/// What went wrong, without its numbers: a smaller problem is to fail for the same reason.
std::string kind_of(const std::string& why) {
  std::string out;
  std::copy_if(why.begin(), why.end(), std::back_inserter(out), [](char c) { return std::isalpha(c) != 0; });
  return out.substr(0, 40);
}

struct Group {
  std::int64_t passed = 0, refused = 0, failed = 0;
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
  std::atomic<std::int64_t> next = 0, done = 0, failed = 0, shrinking = 0;
  std::mutex mutex;
  std::map<std::tuple<Op, std::string, std::string>, Group> groups;
  std::vector<Failure> failures;
  std::string refusal;  // the first one
  bool ran = false;     // anything but refusals

  explicit Storm(const StormOptions& given) : options(given), watchdog(given.patience) {}

  bool over() const { return options.seconds > 0 && seconds_since(start) >= options.seconds; }
  Problem draw(std::int64_t index) const;
  void count(const Problem& problem, const Outcome& outcome);
  void work();
  void make_small(const Problem& problem, const Outcome& outcome, Bench* bench, Watchdog::Slot* slot);
  void watch_progress(const std::atomic<bool>& finished);
};

Problem Storm::draw(std::int64_t index) const {
  const auto i = static_cast<std::uint64_t>(index);
  Problem problem = draw_problem(options.seed, i, options.ops[i % options.ops.size()], options.types);
  const std::vector<Path> paths = storm_paths(options, problem.op, problem.dtype());
  const Path& path = paths[random_bits(options.seed ^ 0x5A5A, i) % paths.size()];
  problem.backend = path.backend, problem.level = path.level;
  return problem;
}

void Storm::count(const Problem& problem, const Outcome& outcome) {
  const std::lock_guard lock(mutex);
  Group& group = groups[{problem.op, Path{problem.backend, problem.level}.name(), name(problem.dtype())}];
  ran = ran || outcome.kind != Outcome::Kind::refused;
  if (outcome.kind == Outcome::Kind::refused && refusal.empty()) refusal = outcome.why;
  (outcome.failed() ? group.failed : outcome.kind == Outcome::Kind::refused ? group.refused : group.passed) += 1;
}

void Storm::make_small(const Problem& problem, const Outcome& outcome, Bench* bench, Watchdog::Slot* slot) {
  if (static_cast<std::size_t>(failed++) >= kShrunk) return;
  Failure failure{problem, outcome.why, outcome.why, command_of(problem)};
  failure.problem = shrink(problem, [&](const Problem& smaller) {
    const Outcome again = attempt(smaller, bench, &device, slot);
    const bool same = again.failed() && kind_of(again.why) == kind_of(failure.first_why);
    if (same) failure.why = again.why;
    return same;
  });
  const std::lock_guard lock(mutex);
  fmt::print(stderr, "{}FAIL {}\n     {}\n", isatty(STDERR_FILENO) ? "\r\033[K" : "", command_of(failure.problem),
             failure.why);
  failures.push_back(std::move(failure));
}

void Storm::work() {
  Bench bench;
  Watchdog::Slot* slot = watchdog.add_slot();
  for (std::int64_t i = next++; i < options.problems && !over(); i = next++) {
    const Problem problem = draw(i);
    const Outcome outcome = attempt(problem, &bench, &device, slot);
    count(problem, outcome);
    if (outcome.failed()) make_small(problem, outcome, &bench, slot);
    ++done;
  }
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
               std::to_string(group.failed), group.failed > 0 ? "FAIL" : "ok"});
  }
  fmt::print("{}", table.text());
  for (const Failure& failure : storm.failures)
    fmt::print("FAIL {}\n     {}\n     was {}\n", command_of(failure.problem), failure.why, failure.drawn);
  fmt::print(
      "seed {}: {} problems in {}, {:.0f}/s, {} failed{}\n", storm.options.seed, storm.done.load(),
      format_seconds(seconds_since(storm.start)), static_cast<double>(storm.done) / seconds_since(storm.start),
      storm.failed.load(),
      storm.failed > static_cast<std::int64_t>(kShrunk) ? fmt::format(" (the first {} are shown)", kShrunk) : "");
}

void print_json(const Storm& storm) {
  nlohmann::json groups = nlohmann::json::array(), failures = nlohmann::json::array();
  for (const auto& [key, group] : storm.groups) {
    const auto& [op, path, dtype] = key;
    groups.push_back({{"op", name(op)},
                      {"backend", path},
                      {"dtype", dtype},
                      {"passed", group.passed},
                      {"refused", group.refused},
                      {"failed", group.failed}});
  }
  for (const Failure& failure : storm.failures)
    failures.push_back({{"command", command_of(failure.problem)}, {"why", failure.why}, {"drawn", failure.drawn}});
  fmt::print("{}\n", nlohmann::json{{"seed", storm.options.seed},
                                    {"problems", storm.done.load()},
                                    {"failed", storm.failed.load()},
                                    {"seconds", seconds_since(storm.start)},
                                    {"groups", groups},
                                    {"failures", failures}}
                         .dump(1));
}

}  // namespace

std::vector<Path> storm_paths(const StormOptions& options, Op op, DType dtype) {
  const Backend asked = parse_backend(options.backend);
  if (!options.level.empty()) return {{Backend::cpu, options.level}};
  const int sm = gpu::current_device().sm;
  std::vector<Path> out;
  if (asked == Backend::best) out.push_back({Backend::best, ""});
  if (asked == Backend::best && sm >= 80) {
    out.push_back({Backend::best, ""});
    out.push_back({Backend::sm80, ""});
    if (sm == 90) out.push_back({Backend::sm90, ""});
    return out;
  }
  if (asked == Backend::ref || asked == Backend::best) out.push_back({Backend::ref, ""});
  if (asked == Backend::sm80 || asked == Backend::sm90) return {{asked, ""}};
  for (const Variant& v : variants()) {
    if (v.backend != Backend::cpu || !v.is(operation_of(op)) || v.dtype != dtype || asked == Backend::ref) continue;
    for (const Path& path : usable_paths(dtype, false, true))
      if (path.level == v.level) out.push_back(path);
  }
  if (out.empty()) throw UsageError{fmt::format("this build has no {} row for {}", operation_of(op), name(dtype))};
  return out;
}

int run_storm(const StormOptions& options) {
  for (const Op op : options.ops)
    for (const DType dtype : options.types) static_cast<void>(storm_paths(options, op, dtype));  // or says why not
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
    print_json(storm);
  } else {
    print_table(storm);
  }
  if (!storm.ran && storm.done > 0) throw UsageError{"nothing was run, all was refused; the first: " + storm.refusal};
  return storm.failed > 0 ? exit_failed : exit_ok;
}

int run_problems(const std::vector<std::string>& texts, double patience, bool as_json) {
  Watchdog watchdog(patience);
  DeviceArena device;
  Bench bench;
  Watchdog::Slot* slot = watchdog.add_slot();
  nlohmann::json list = nlohmann::json::array();
  bool failed = false;
  for (const std::string& given : texts) {
    const Problem problem = parse_problem(given);
    const Outcome outcome = attempt(problem, &bench, &device, slot);
    failed = failed || outcome.failed();
    const char* result = outcome.failed() ? "FAIL" : outcome.kind == Outcome::Kind::refused ? "refused" : "ok";
    list.push_back({{"problem", to_text(problem)}, {"plan", outcome.plan}, {"result", result}, {"why", outcome.why}});
    if (!as_json)
      fmt::print("{} {}\n{}{}", result, to_text(problem), outcome.plan.empty() ? "" : "  " + outcome.plan + "\n",
                 outcome.why.empty() ? "" : "  " + outcome.why + "\n");
  }
  if (as_json) fmt::print("{}\n", list.dump(1));
  return failed ? exit_failed : exit_ok;
}

}  // namespace falchion::tools::storm
