// tools/explain.cpp: `falchion explain` says what a plan would be and why, also for a machine that is not here.
#include <fmt/core.h>

#include <memory>
#include <string>
#include <vector>

#include "command/print_json.hpp"
#include "problem/gemm_problem.hpp"
#include "problem/norm_problem.hpp"
#include "problem/operation.hpp"
#include "problem/problem_options.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

struct Options {
  std::string op = name(Op::attention);
  SizeOptions sizes;
  FeatureOptions features;
  BackwardOptions backward;
  LinearOptions linear;
  GemmOptions gemm;
  NormOptions norm;
  TargetOptions where;
  std::string target;
  bool bias = false, mask = false, packed = false, lse = false, states = false, as_json = false;
};

/// The machines that --target names. For a GPU it is the architecture, and the
/// plan takes the best path that runs there.
struct Machine {
  const char* name;
  Backend backend;
  int sm;
};
constexpr Machine kMachines[] = {
    {"ref", Backend::ref, 0},
    {"cpu", Backend::cpu, 0},
#define FALCHION_GPU(name, sm) {name, Backend::best, sm},
#include "plan/gpus.def"
};

Target target_of(const Options& options) {
  Target target = options.where.target();
  for (const Machine& machine : kMachines) {
    if (options.target != machine.name) continue;
    if (machine.backend != Backend::best) target.backend = machine.backend;
    target.sm = machine.sm;
  }
  return target;
}

/// Refuses options that the answer would not depend on.
void check_use(const Options& options, const Given& given) {
  options.features.refuse_slopes_from_a_file();
  const Kind kind = kind_of(parse_op(options.op));
  if (kind != Kind::linear)
    given.refuse({"--decay", "--elu", "--normalise", "--states"},
                 "it has no effect here; it is an option of --op " + operation_list(Kind::linear));
  if (kind != Kind::gemm)
    given.refuse(GemmOptions::kNames, "it has no effect here; it is an option of --op " + operation_list(Kind::gemm));
  if (kind != Kind::norm)
    given.refuse(NormOptions::kNames, "it has no effect here; it is an option of --op " + operation_list(Kind::norm));
  if (kind == Kind::norm)
    given.refuse({"--b", "--h", "--h-q", "--h-k", "--s", "--s-q", "--s-k", "--d-v", "--packed", "--scale"},
                 "it has no effect here; the sizes of --op norm are --rows and --d");
  if (kind == Kind::gemm)
    given.refuse({"--b", "--h", "--h-q", "--h-k", "--s", "--s-q", "--s-k", "--d", "--d-v", "--packed", "--scale"},
                 "it has no effect here; the sizes of --op gemm are --batch, --m, --n and --k");
  if (kind != Kind::attention)
    given.refuse({"--causal", "--window", "--align", "--softcap", "--alibi", "--dropout", "--bias", "--mask", "--lse"},
                 "it has no effect here; it is an option of --op " + operation_list(Kind::attention));
  const std::string no_effect = "it has no effect here; it is an option of --op ";
  if (parse_op(options.op) == Op::attention_backward) given.refuse({"--lse"}, no_effect + name(Op::attention));
  if (parse_op(options.op) != Op::attention_backward)
    given.refuse(BackwardOptions::kNames, no_effect + name(Op::attention_backward));
  const bool gpu = !options.target.empty() && options.target != "ref" && options.target != "cpu";
  if (gpu)
    given.refuse({"--level", "--threads"}, fmt::format("it is of the CPU, and --target {} is a GPU", options.target));
  if (gpu && (options.where.backend == "ref" || options.where.backend == "cpu"))
    given.refuse({"--backend"},
                 fmt::format("{} does not run on --target {}, a GPU", options.where.backend, options.target));
  if (options.target == "ref" || options.target == "cpu")
    given.refuse({"--backend"}, fmt::format("--target {} says where; leave one of them out", options.target));
}

template <class Problem>
std::string story_of(const Problem& problem, Pass pass, const Target& target, Format format) {
  Plan plan;
  const Status status = Plan::make(problem, pass, target, &plan);
  if (status.code == Code::invalid) require(status);
  return explain(problem, pass, target, format);
}

std::string story_of(const Options& options, Attention problem, const Target& target, Format format) {
  const Op op = parse_op(options.op);
  problem.packed = options.packed;
  if (kind_of(op) == Kind::linear) {
    LinearProblem linear = options.linear.problem(problem, pass_of(op), options.features.scale);
    linear.packed = options.packed;
    linear.initial_state = linear.final_state = options.states;
    return story_of<LinearAttention>(linear, pass_of(op), target, format);
  }
  options.features.apply(&problem);
  problem.bias = options.bias;
  problem.mask = options.mask;
  problem.lse = options.lse;
  if (pass_of(op) == Pass::backward) options.backward.apply(&problem);
  return story_of(problem, pass_of(op), target, format);
}

template <class Problem>
std::string story_of(const Problem& problem, const Target& target, Format format) {
  Plan plan;
  const Status status = Plan::make(problem, target, &plan);
  if (status.code == Code::invalid) require(status);
  return explain(problem, target, format);
}

/// One for each problem.
std::vector<std::string> stories_of(const Options& options, const Target& target, Format format) {
  std::vector<std::string> out;
  if (parse_op(options.op) == Op::gemm) {
    for (const Gemm& problem : options.gemm.expand(options.sizes.dtype))
      out.push_back(story_of(problem, target, format));
    return out;
  }
  if (parse_op(options.op) == Op::norm) {
    for (const Norm& problem : options.norm.expand(options.sizes.dtype, options.sizes.d))
      out.push_back(story_of(problem, target, format));
    return out;
  }
  for (const Attention& problem : options.sizes.expand()) out.push_back(story_of(options, problem, target, format));
  return out;
}

int explain_all(const Options& options) {
  const Target target = target_of(options);
  std::string all;
  for (const std::string& story : stories_of(options, target, options.as_json ? Format::json : Format::text)) {
    if (options.as_json) {
      all += (all.empty() ? "" : ",") + story;
    } else {
      fmt::print("{}", story);
    }
  }
  if (options.as_json) fmt::print("{}\n", pretty("[" + all + "]", 2));
  return exit_ok;
}

}  // namespace

void add_explain(Command& command) {
  const auto options = std::make_shared<Options>();
  command.flag("--json", &options->as_json, "A list of JSON objects, whose keys docs/explain.md explains");
  command.choice("--op", &options->op, operation_names(), "What is planned");
  options->sizes.add_to(command);
  options->features.add_to(command);
  command.flag("--bias", &options->bias, "With an additive bias");
  command.flag("--mask", &options->mask, "With a boolean mask");
  command.flag("--packed", &options->packed, "With packed variable lengths");
  command.flag("--lse", &options->lse, "With the log-sum-exp as an output");
  options->backward.add_to(command);
  options->linear.add_to(command);
  options->gemm.add_to(command);
  options->norm.add_to(command);
  command.flag("--states", &options->states, "With states in and out");
  options->where.add_to(command);
  std::vector<std::string> machines;
  for (const Machine& machine : kMachines) machines.emplace_back(machine.name);
  command.choice("--target", &options->target, machines,
                 "Plan for this machine though it is not here, whatever this build has");
  command.run([options](const Given& given) {
    check_use(*options, given);
    return explain_all(*options);
  });
}

}  // namespace falchion::tools
