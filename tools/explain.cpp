// tools/explain.cpp: `falchion explain` prints what a plan would be and why, also for a machine that is not present.
#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "command/print_json.hpp"
#include "problem/gemm_problem.hpp"
#include "problem/norm_problem.hpp"
#include "problem/operation.hpp"
#include "problem/problem_options.hpp"
#include "problem/quantise_problem.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

struct Options {
  std::string op = name(Op::attention);
  SizeOptions sizes;
  FeatureOptions features;
  CacheOptions cache;
  BackwardOptions backward;
  LinearOptions linear;
  GemmOptions gemm;
  NormOptions norm;
  QuantiseOptions quantise;
  TargetOptions where;
  std::string target;
  bool bias = false, mask = false, packed = false, lse = false, states = false, as_json = false, check = false;
};

/// The machines of --target. For a GPU this is the architecture, or a device that has it, and the plan takes the best
/// path that runs there.
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

const Machine* machine_of(const Options& options) {
  const auto* found = std::find_if(std::begin(kMachines), std::end(kMachines),
                                   [&](const Machine& machine) { return options.target == machine.name; });
  return found != std::end(kMachines) ? found : nullptr;
}

Target target_of(const Options& options) {
  Target target = options.where.target();
  if (const Machine* machine = machine_of(options)) {
    if (machine->backend != Backend::best) target.backend = machine->backend;
    target.sm = machine->sm;
  }
  return target;
}

/// Refuses options that the answer does not depend on.
void check_use(const Options& options, const Given& given) {
  options.features.refuse_files();
  const Kind kind = kind_of(parse_op(options.op));
  if (kind != Kind::linear)
    given.refuse({"--decay", "--elu", "--normalise", "--states"},
                 "it has no effect here; it is an option of --op " + operation_list(Kind::linear));
  if (kind != Kind::gemm)
    given.refuse(GemmOptions::kNames, "it has no effect here; it is an option of --op " + operation_list(Kind::gemm));
  if (kind != Kind::norm)
    given.refuse(NormOptions::kNames, "it has no effect here; it is an option of --op " + operation_list(Kind::norm));
  if (kind != Kind::quantise)
    given.refuse(QuantiseOptions::kNames,
                 "it has no effect here; it is an option of --op " + operation_list(Kind::quantise));
  if (kind == Kind::norm)
    given.refuse({"--b", "--h", "--h-q", "--h-k", "--s", "--s-q", "--s-k", "--d-v", "--packed", "--scale"},
                 "it has no effect here; the sizes of --op norm are --rows and --d");
  if (kind == Kind::gemm)
    given.refuse({"--b", "--h", "--h-q", "--h-k", "--s", "--s-q", "--s-k", "--d", "--d-v", "--packed", "--scale"},
                 "it has no effect here; the sizes of --op gemm are --batch, --m, --n and --k");
  if (kind != Kind::attention) {
    const std::string why = "it has no effect here; it is an option of --op " + operation_list(Kind::attention);
    given.refuse(FeatureOptions::names(true), why);
    given.refuse({"--bias", "--mask", "--lse"}, why);
  }
  const std::string no_effect = "it has no effect here; it is an option of --op ";
  if (parse_op(options.op) == Op::attention_backward) given.refuse({"--lse"}, no_effect + name(Op::attention));
  if (parse_op(options.op) != Op::attention) given.refuse(CacheOptions::names(), no_effect + name(Op::attention));
  if (parse_op(options.op) != Op::attention_backward)
    given.refuse(BackwardOptions::kNames, no_effect + name(Op::attention_backward));
  const Machine* machine = machine_of(options);
  const bool gpu = machine != nullptr && machine->sm > 0;
  if (gpu)
    given.refuse({"--level", "--threads"}, fmt::format("it is of the CPU, and --target {} is a GPU", options.target));
  if (gpu && (options.where.backend == "ref" || options.where.backend == "cpu"))
    given.refuse({"--backend"},
                 fmt::format("{} does not run on --target {}, a GPU", options.where.backend, options.target));
  if (options.target == "ref" || options.target == "cpu")
    given.refuse({"--backend"}, fmt::format("--target {} says where; leave one of them out", options.target));
}

/// The text of explain() for one problem, and whether a path computes it: here, or on the machine of --target.
struct Story {
  std::string text;
  bool computed = false;
};

/// make(&plan) is Plan::make, and explain(format) is explain(), of one problem.
template <class Make, class Explain>
Story story_of(const Options& options, const Make& make, const Explain& explain) {
  Plan plan;
  const Status status = make(&plan);
  if (status.code == Code::invalid) require(status);
  Story out{explain(options.as_json ? Format::json : Format::text), static_cast<bool>(status)};
  // For a machine that is not present no plan can be made, but explain() gives its decision.
  if (!options.target.empty()) out.computed = explain(Format::json).find("\"decision\":") != std::string::npos;
  return out;
}

template <class Problem>
Story story_of(const Options& options, const Problem& problem, Pass pass, const Target& target) {
  return story_of(
      options, [&](Plan* plan) { return Plan::make(problem, pass, target, plan); },
      [&](Format format) { return explain(problem, pass, target, format); });
}
template <class Problem>
Story story_of(const Options& options, const Problem& problem, const Target& target) {
  return story_of(
      options, [&](Plan* plan) { return Plan::make(problem, target, plan); },
      [&](Format format) { return explain(problem, target, format); });
}

Story story_of_sizes(const Options& options, Attention problem, const Target& target) {
  const Op op = parse_op(options.op);
  problem.packed = options.packed;
  if (kind_of(op) == Kind::linear) {
    LinearProblem linear = options.linear.problem(problem, pass_of(op), options.features.numbers.score.scale);
    linear.packed = options.packed;
    linear.initial_state = linear.final_state = options.states;
    return story_of<LinearAttention>(options, linear, pass_of(op), target);
  }
  options.cache.apply(&problem);
  options.features.apply(&problem);
  problem.bias = options.bias;
  problem.mask = options.mask;
  problem.lse = options.lse;
  if (pass_of(op) == Pass::backward) options.backward.apply(&problem);
  return story_of(options, problem, pass_of(op), target);
}

/// One for each problem.
std::vector<Story> stories_of(const Options& options, const Target& target) {
  std::vector<Story> out;
  if (parse_op(options.op) == Op::gemm) {
    for (const Gemm& problem : options.gemm.expand(options.sizes.dtype))
      out.push_back(story_of(options, problem, target));
    return out;
  }
  if (const Op op = parse_op(options.op); kind_of(op) == Kind::norm) {
    for (const Norm& problem : options.norm.expand(op, options.sizes.dtype, options.sizes.d))
      out.push_back(story_of(options, problem, pass_of(op), target));
    return out;
  }
  if (parse_op(options.op) == Op::quantise) {
    for (const Attention& sizes : options.sizes.expand())
      out.push_back(story_of(options, options.quantise.problem(sizes), target));
    return out;
  }
  for (const Attention& problem : options.sizes.expand()) out.push_back(story_of_sizes(options, problem, target));
  return out;
}

int explain_all(const Options& options) {
  const Target target = target_of(options);
  std::string all;
  bool computed = true;
  for (const Story& story : stories_of(options, target)) {
    computed = computed && story.computed;
    if (options.as_json) {
      all += (all.empty() ? "" : ",") + story.text;
    } else {
      fmt::print("{}", story.text);
    }
  }
  if (options.as_json) fmt::print("{}\n", pretty("[" + all + "]", 2));
  return options.check && !computed ? exit_failed : exit_ok;
}

}  // namespace

void add_explain(Command& command) {
  const auto options = std::make_shared<Options>();
  command.flag("--json", &options->as_json, "A list of JSON objects, whose keys docs/explain.md explains");
  command.flag("--check", &options->check, "Exit with 1 where one of the problems is refused");
  command.choice("--op", &options->op, operation_names(), "What is planned");
  options->sizes.add_to(command);
  options->features.add_to(command);
  options->cache.add_to(command);
  command.flag("--bias", &options->bias, "With an additive bias");
  command.flag("--mask", &options->mask, "With a boolean mask");
  command.flag("--packed", &options->packed, "With packed variable lengths");
  command.flag("--lse", &options->lse, "With the log-sum-exp as an output");
  options->backward.add_to(command);
  options->linear.add_to(command);
  options->gemm.add_to(command);
  options->norm.add_to(command);
  options->quantise.add_to(command);
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
