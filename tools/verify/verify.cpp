// tools/verify/verify.cpp: `falchion verify`: every way this machine can run, against the definition in double.
#include <fmt/core.h>
#include <unistd.h>

#include <limits>
#include <map>
#include <memory>

#include "command/print_json.hpp"
#include "command/table.hpp"
#include "measure/measure.hpp"
#include "plan/text.hpp"
#include "problem/errors.hpp"
#include "problem/levels.hpp"
#include "problem/tensor_options.hpp"
#include "problem/work.hpp"
#include "tool.hpp"
#include "verify/cases.hpp"
#include "verify/storm.hpp"

namespace falchion::tools {
namespace {

struct Options {
  TensorOptions tensors;
  FeatureOptions features;
  TargetOptions where;
  std::string grid = "quick", match;
  std::vector<std::string> dtypes;
  std::int64_t seed = 1;
  bool all = false, as_json = false;
  // Storms of random problems.
  std::int64_t random = 0, seconds = 0, workers = 0, patience = 10;
  std::vector<std::string> ops, problems;

  bool is_storm() const { return random > 0 || seconds > 0; }
  storm::StormOptions storm_options() const;
};

/// One case on one path.
struct Row {
  std::string name;
  Attention problem;
  Path path;
  Verdict verdict;
  /// The report of O or of LSE, whichever is nearer to its limit or further past it.
  const ErrorReport& worse() const { return verdict.lse.share() > verdict.o.share() ? verdict.lse : verdict.o; }
};

std::vector<Path> chosen_paths(const Options& options, DType dtype) {
  const Backend backend = parse_backend(options.where.backend);
  if (!options.where.level.empty()) return {{Backend::cpu, options.where.level}};
  if (backend == Backend::best) {
    std::vector<Path> all = usable_gpu_paths(dtype);
    for (const Path& path : usable_paths(dtype, true, true)) all.push_back(path);
    return all;
  }
  if (backend == Backend::cpu) return usable_paths(dtype, false, true);
  return {{backend, ""}};
}

/// Whether a case is left out for sm90: nobody asked for Hopper's own variants, and they do not take this case. It runs
/// on those of sm80, which are verified too.
bool left_to_sm80(const Options& options, const Attention& problem, const Path& path) {
  if (path.backend != Backend::sm90 || parse_backend(options.where.backend) != Backend::best) return false;
  Plan plan;
  return Plan::make(problem, Pass::forward, path.target(1), &plan).code == Code::unsupported;
}

void verify_instance(const std::string& name, const Instance& instance, const Options& options,
                     std::vector<Row>* rows) {
  const Reference reference(instance);
  for (const Path& path : chosen_paths(options, instance.problem.dtype)) {
    if (left_to_sm80(options, instance.problem, path)) continue;
    rows->push_back({name, instance.problem, path,
                     verify_path(instance, reference, path.target(static_cast<int>(options.where.threads)))});
  }
}

std::vector<Row> verify_grid(const Options& options) {
  std::vector<Row> rows;
  const auto cases = verify_cases(options.grid == "full");
  const bool live = isatty(STDERR_FILENO) != 0;
  std::size_t done = 0;
  for (const VerifyCase& item : cases) {
    if (live) fmt::print(stderr, "\r\033[K{}/{} {}", ++done, cases.size(), item.name);
    if (item.name.find(options.match) == std::string::npos) continue;
    for (const std::string& dtype :
         options.dtypes.empty() ? std::vector<std::string>{"f32", "f16", "bf16"} : options.dtypes)
      verify_instance(item.name, item.make(parse_dtype(dtype), static_cast<std::uint64_t>(options.seed)), options,
                      &rows);
  }
  if (live) fmt::print(stderr, "\r\033[K");
  if (rows.empty()) throw UsageError{"no case is left to verify"};
  return rows;
}

std::vector<std::string> error_cells(const ErrorReport& e) {
  return {format_error(e.error), format_error(e.naive_error),
          e.naive_error > 0 ? fmt::format("{:.2f}", e.error / e.naive_error) : "-", format_error(e.limit()),
          format_percent(std::min(e.share(), 99.99))};
}

void print_rows(const std::vector<Row>& rows) {
  Table table(
      {"<case", "<problem", "<type", "<backend", "max error", "naive", "ratio", "limit", "of limit", "<result"});
  for (const Row& row : rows) {
    std::vector<std::string> cells = {row.name, problem_name(row.problem), name(row.problem.dtype), row.path.name()};
    for (const auto& cell : error_cells(row.worse())) cells.push_back(cell);
    cells.emplace_back(row.verdict.passed() ? "ok" : "FAIL");
    table.row(cells);
  }
  fmt::print("{}", table.text());
}

/// One line a backend and type: its worst case.
void print_summary(const std::vector<Row>& rows) {
  std::map<std::pair<std::string, std::string>, std::vector<const Row*>> groups;
  std::vector<std::pair<std::string, std::string>> order;
  for (const Row& row : rows) {
    const std::pair<std::string, std::string> key{row.path.name(), name(row.problem.dtype)};
    if (groups[key].empty()) order.push_back(key);
    groups[key].push_back(&row);
  }
  std::sort(order.begin(), order.end());
  Table table({"<backend", "<type", "cases", "passed", "max error", "naive", "ratio", "limit", "of limit",
               "<worst case", "<result"});
  for (const auto& key : order) {
    const Row* worst = groups[key].front();
    std::size_t passed = 0;
    for (const Row* row : groups[key]) {
      passed += row->verdict.passed();
      const std::pair<bool, double> badness{!row->verdict.passed(), row->worse().share()};
      if (badness > std::pair<bool, double>{!worst->verdict.passed(), worst->worse().share()}) worst = row;
    }
    std::vector<std::string> cells = {key.first, key.second, std::to_string(groups[key].size()),
                                      std::to_string(passed)};
    for (const auto& cell : error_cells(worst->worse())) cells.push_back(cell);
    cells.push_back(worst->name);
    cells.emplace_back(passed == groups[key].size() ? "ok" : "FAIL");
    table.row(cells);
  }
  fmt::print("{}", table.text());
}

void print_rows_as_json(const std::vector<Row>& rows, std::size_t failures) {
  std::vector<Json> list;
  for (const Row& row : rows)
    list.push_back(Json::object({{"case", row.name},
                                 {"problem", to_json(row.problem)},
                                 {"backend", name(row.path.backend)},
                                 {"level", row.path.level},
                                 {"passed", row.verdict.passed()},
                                 {"why", row.verdict.why},
                                 {"o", to_json(row.verdict.o)},
                                 {"lse", to_json(row.verdict.lse)}}));
  print_json(Json::object({{"failures", failures}, {"results", Json::array(list)}}));
}

/// Refuses options that the answer would not depend on.
void check_use(const Options& options, const Given& given) {
  options.tensors.check(given);
  options.where.target();  // what goes with the back end
  require_here(parse_backend(options.where.backend));
  const std::initializer_list<const char*> features = {"--causal",  "--window", "--align",  "--scale",
                                                       "--softcap", "--alibi",  "--dropout"};
  if (!options.problems.empty()) {
    given.refuse({"--random", "--seconds", "--seed", "--op", "--types", "--workers", "--backend", "--level"},
                 "--problem says all of that itself");
  }
  if (!options.problems.empty() || options.is_storm()) {
    given.refuse({"--grid", "--match", "--all", "--threads"}, "it belongs to the grid of problems; this is a storm");
    given.refuse({"--q", "--k", "--v"}, "a storm makes its own tensors");
    given.refuse(features, "the problems of a storm have features of their own");
  } else {
    given.refuse({"--op", "--seconds", "--workers", "--patience"}, "it belongs to --random, a storm of problems");
  }
  if (options.tensors.given()) {
    given.refuse({"--grid", "--types", "--match", "--seed"}, "it chooses among problems of our own; here are tensors");
  } else {
    given.refuse(features, "the problems of the grid have features of their own; this belongs to given tensors");
  }
}

storm::StormOptions Options::storm_options() const {
  storm::StormOptions out;
  out.problems = random > 0 ? random : std::numeric_limits<std::int64_t>::max() / 2;
  out.seconds = static_cast<double>(seconds);
  out.seed = static_cast<std::uint64_t>(seed);
  out.backend = where.backend;
  out.level = where.level;
  for (const auto& op : ops.empty() ? operation_names() : ops) out.ops.push_back(parse_op(op));
  for (const auto& dtype : dtypes.empty() ? std::vector<std::string>{"f32", "f16", "bf16"} : dtypes)
    out.types.push_back(parse_dtype(dtype));
  out.workers = static_cast<int>(workers);
  out.patience = static_cast<double>(patience);
  out.as_json = as_json;
  return out;
}

int verify(const Options& options) {
  if (!options.problems.empty())
    return storm::run_problems(options.problems, static_cast<double>(options.patience), options.as_json);
  if (options.is_storm()) return storm::run_storm(options.storm_options());
  const auto start = Clock::now();
  std::vector<Row> rows;
  if (options.tensors.given()) {
    Instance instance = options.tensors.load(options.features);
    instance.problem.lse = true;
    instance.require_valid();
    verify_instance("given tensors", instance, options, &rows);
  } else {
    rows = verify_grid(options);
  }
  std::size_t failures = 0;
  for (const Row& row : rows) failures += !row.verdict.passed();
  if (options.as_json) {
    print_rows_as_json(rows, failures);
    return failures ? exit_failed : exit_ok;
  }
  if (options.all || options.tensors.given()) {
    print_rows(rows);
  } else {
    print_summary(rows);
  }
  fmt::print(
      "\nError against the definition in double; limit = 2 x the naive computation in the same types + 1 unit of "
      "the output;\nNaN and Inf must be in the same places. {} results, {} failed, {}\n",
      rows.size(), failures, format_seconds(seconds_since(start)));
  for (const Row& row : rows)
    if (!row.verdict.passed())
      fmt::print("FAIL {} {} {} ({}): {}\n", row.path.name(), name(row.problem.dtype), row.name,
                 problem_name(row.problem), row.verdict.why);
  return failures ? exit_failed : exit_ok;
}

}  // namespace

void add_verify(Command& command) {
  const auto options = std::make_shared<Options>();
  command.choice("--grid", &options->grid, {"quick", "full"}, "The problems, when no tensors are given");
  command.list("--types", &options->dtypes, "Only these types: f32, f16, bf16");
  command.text("--match", &options->match, "Only cases with this in their name");
  command.integer("--seed", &options->seed, 0, std::int64_t{1} << 60, "Other random numbers");
  command.flag("--all", &options->all, "A line for each case instead of the worst");
  command.flag("--json", &options->as_json, "Machine-readable output");
  command.group("Storms of random problems");
  command.integer("--random", &options->random, 0, std::int64_t{1} << 40, "So many random problems instead");
  command.integer("--seconds", &options->seconds, 0, 1 << 20, "For so long at most; 0: until all are done");
  command.list("--op", &options->ops, "Only these: " + operation_list());
  command.integer("--workers", &options->workers, 0, 1000, "Threads that draw and judge; 0: one a CPU");
  command.integer("--patience", &options->patience, 1, 3600, "Seconds after which a run counts as hung");
  command.repeated("--problem", &options->problems, "Just this problem, as a storm has told it", "TEXT");
  options->tensors.add_to(command);
  options->features.add_to(command);
  options->where.add_to(command);
  command.run([options](const Given& given) {
    check_use(*options, given);
    return verify(*options);
  });
}

}  // namespace falchion::tools
