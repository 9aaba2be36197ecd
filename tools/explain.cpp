// tools/explain.cpp: `falchion explain`: what a plan would be and why, also for a GPU that is not here.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "problem_options.hpp"
#include "tool.hpp"
#include "work.hpp"

namespace falchion::tools {
namespace {

struct Options {
  SizeOptions sizes;
  FeatureOptions features;
  TargetOptions where;
  std::string target;
  bool bias = false, mask = false, packed = false, lse = false, as_json = false;
};

int explain_all(const Options& options) {
  Target target = options.where.target();
  if (!options.target.empty()) {
    target.backend = parse_backend(options.target);
    if (target.backend == Backend::sm80) target.sm = 80;
    if (target.backend == Backend::sm90) target.sm = 90;
  }
  nlohmann::json out = nlohmann::json::array();
  int exit_code = exit_ok;
  for (Attention problem : options.sizes.expand()) {
    problem.packed = options.packed;
    options.features.apply(&problem);
    problem.bias = options.bias;
    problem.mask = options.mask;
    problem.lse = options.lse;
    const std::string text = explain(problem, Pass::forward, target);
    Plan plan;
    const Status status = Plan::make(problem, Pass::forward, target, &plan);
    if (status.code == Code::invalid) exit_code = exit_usage;
    if (options.as_json) {
      out.push_back({{"problem", to_json(problem)},
                     {"planned", static_cast<bool>(status)},
                     {"why", status.why},
                     {"describe", status ? plan.describe() : ""},
                     {"explain", text}});
    } else {
      fmt::print("{}{}", text, text.empty() || text.back() != '\n' ? "\n" : "");
    }
  }
  if (options.as_json) fmt::print("{}\n", out.dump(2));
  return exit_code;
}

}  // namespace

void add_explain(Command& command) {
  const auto options = std::make_shared<Options>();
  command.flag("--json", &options->as_json, "Machine-readable output");
  options->sizes.add_to(command);
  options->features.add_to(command);
  command.flag("--bias", &options->bias, "With an additive bias");
  command.flag("--mask", &options->mask, "With a boolean mask");
  command.flag("--packed", &options->packed, "With packed variable lengths");
  command.flag("--lse", &options->lse, "With the log-sum-exp as an output");
  options->where.add_to(command);
  command.choice("--target", &options->target, {"ref", "cpu", "sm80", "sm90"},
                 "Plan for this back end though it is not here");
  command.run([options] { return explain_all(*options); });
}

}  // namespace falchion::tools
