// tools/verify/verify.cpp: `falchion verify`: compares every path of this machine with the definition in double.
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "command/interrupt.hpp"
#include "command/table.hpp"
#include "measure/measure.hpp"
#include "plan/text.hpp"
#include "problem/tensor_options.hpp"
#include "tool.hpp"
#include "verify/grid.hpp"
#include "verify/grid_report.hpp"
#include "verify/paths.hpp"
#include "verify/storm.hpp"

namespace falchion::tools {
namespace {

constexpr auto kUsualCaches = static_cast<std::int64_t>(100 * storm::kUsualCaches + 0.5);
constexpr auto kUsualEight = static_cast<std::int64_t>(100 * storm::kUsualEight + 0.5);

struct Options {
  TensorOptions tensors;
  FeatureOptions features;
  TargetOptions where;
  std::string grid = "quick", match;
  std::vector<std::string> dtypes;
  std::int64_t seed = 1;
  bool all = false, as_json = false;
  // Storms of random problems.
  std::int64_t random = 0, seconds = 0, workers = 0, patience = 10, caches = kUsualCaches, eight = kUsualEight;
  std::vector<std::string> ops, problems;

  bool is_storm() const { return random > 0 || seconds > 0; }
  storm::StormOptions storm_options() const;
  Grid grid_of() const;
};

/// Refuses options that the answer does not depend on.
void check_use(const Options& options, const Given& given) {
  options.tensors.check(given);
  options.where.target();  // what goes with the back end
  require_here(parse_backend(options.where.backend));
  const std::vector<const char*> features = FeatureOptions::names();
  if (!options.problems.empty()) {
    given.refuse({"--random", "--seconds", "--seed", "--op", "--types", "--workers", "--caches", "--eight", "--backend",
                  "--level"},
                 "--problem says all of that itself");
  }
  if (!options.problems.empty() || options.is_storm()) {
    given.refuse({"--grid", "--match", "--all", "--threads"}, "it belongs to the grid of problems; this is a storm");
    given.refuse({"--q", "--k", "--v"}, "a storm makes its own tensors");
    given.refuse(features, "the problems of a storm have features of their own");
  } else {
    given.refuse({"--seconds", "--workers", "--caches", "--eight", "--patience"},
                 "it belongs to --random, a storm of problems");
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
  for (const auto& dtype : dtypes.empty() ? std::vector<std::string>{"f32", "f16", "bf16", "e4m3", "i8"} : dtypes)
    out.types.push_back(parse_dtype(dtype));
  for (const auto& op : ops) out.ops.push_back(parse_op(op));
  if (ops.empty()) {  // all that the back end has kernels of
    for (const CommandOperation& entry : command_operations()) out.ops.push_back(entry.op);
    std::erase_if(out.ops, [&](Op op) { return storm::types_of(out, op).empty(); });
  }
  out.mix.caches = static_cast<double>(caches) / 100;
  out.mix.eight = static_cast<double>(eight) / 100;
  std::erase_if(out.mix.bytes,
                [&](DType x) { return std::find(out.types.begin(), out.types.end(), x) == out.types.end(); });
  out.workers = static_cast<int>(workers);
  out.patience = static_cast<double>(patience);
  out.as_json = as_json;
  return out;
}

Grid Options::grid_of() const {
  Grid out;
  out.full = grid == "full";
  out.match = match;
  out.seed = static_cast<std::uint64_t>(seed);
  out.where = where;
  for (const auto& op : ops.empty() ? std::vector<std::string>{name(Op::attention)} : ops) {
    out.ops.push_back(parse_op(op));
    const Kind kind = tools::kind_of(out.ops.back());
    if (kind == Kind::linear || kind == Kind::norm || kind == Kind::quantise)
      throw UsageError{fmt::format("--op: there are no tables of problems of {}; --random draws some", op)};
    if (tensors.given() && out.ops.back() == Op::gemm)
      throw UsageError{"--op gemm: --q, --k and --v are tensors of attention"};
  }
  for (const auto& dtype : dtypes.empty() ? std::vector<std::string>{"f32", "f16", "bf16"} : dtypes)
    out.types.push_back(parse_dtype(dtype));
  for (const Op op : out.ops)
    for (const DType dtype : out.types)
      if (!storm::is_listed(op, dtype))
        throw UsageError{fmt::format("--types: {} is no type of --op {}", name(dtype), name(op))};
  return out;
}

int work(const Options& options) {
  if (!options.problems.empty())
    return storm::run_problems(options.problems, static_cast<double>(options.patience), options.as_json);
  if (options.is_storm()) return storm::run_storm(options.storm_options());
  const auto start = Clock::now();
  std::vector<Row> rows;
  const Grid grid = options.grid_of();
  if (options.tensors.given()) {
    Instance instance = options.tensors.load(options.features);
    instance.problem.lse = true;
    instance.require_valid();
    for (const Op op : grid.ops) verify_instance("given tensors", op, instance, grid, &rows);
  } else {
    rows = verify_grid(grid);
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
      fmt::print("FAIL {} {} {} ({}): {}\n", row.path.name(), name(row.dtype()), row.name, row.problem_text(),
                 row.verdict.why);
  return failures ? exit_failed : exit_ok;
}

/// After an interruption it prints the results so far.
int verify(const Options& options) {
  const Interruptible guard;
  const int code = work(options);
  if (interrupted()) fmt::print(stderr, "falchion: interrupted; what is told is what was verified before\n");
  return interrupted() ? interrupted_exit_code() : code;
}

}  // namespace

void add_verify(Command& command) {
  const auto options = std::make_shared<Options>();
  command.choice("--grid", &options->grid, {"quick", "full"}, "The problems, when no tensors are given");
  command.list("--types", &options->dtypes, kTypes,
               "Only these types; e4m3 and i8 are of GEMMs and, in storms, of attention");
  command.text("--match", &options->match, "Only cases with this in their name");
  command.integer("--seed", &options->seed, 0, std::int64_t{1} << 60, "Other random numbers");
  command.flag("--all", &options->all, "A line for each case instead of the worst");
  command.flag("--json", &options->as_json, "Machine-readable output");
  command.group("Storms of random problems");
  command.integer("--random", &options->random, 0, std::int64_t{1} << 40, "So many random problems instead");
  command.integer("--seconds", &options->seconds, 0, 1 << 20, "For so long at most; 0: until all are done");
  command.list("--op", &options->ops, operation_names(), "Only these (the tables: attention when not given)");
  command.integer("--workers", &options->workers, 0, 1000, "Threads that draw and judge; 0: one a CPU");
  command.integer("--caches", &options->caches, 0, 100, "Percent of attention's problems that have a KV cache");
  command.integer("--eight", &options->eight, 0, 100,
                  "Percent of its others whose q has 8 bits, where --types has them");
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
