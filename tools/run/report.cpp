// tools/run/report.cpp: see report.hpp.
#include "run/report.hpp"

#include <fmt/core.h>

#include "command/print_json.hpp"
#include "command/table.hpp"
#include "measure/measure_gpu.hpp"
#include "measure/peaks.hpp"
#include "problem/files.hpp"
#include "problem/levels.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

/// The limit of a run: flop/s, or bytes/s if memory is the limit. A rate of 0 means that there is none.
struct Limit {
  double rate = 0;
  std::string name{};
};

Limit measure_limit(const Plan& plan, bool decode) {
  const std::string unit = limiting_unit(plan);
  if (unit.empty()) return {};
  Peaks peaks(plan_threads(plan));
  if (decode) {
    peaks.dram();
    return {peaks.bytes_per_second(), "DRAM read"};
  }
  peaks.need(unit);
  return {peaks.flops(unit), unit_title(unit) + " peak"};
}

}  // namespace

void Report::print(const Plan& plan, const Samples& time, const RunOptions& options, const NamedFiles& written) const {
  const Limit limit = options.no_limit ? Limit{} : measure_limit(plan, decode);
  const double seconds = time.median(), share = limit.rate > 0 ? (decode ? bytes : flops) / seconds / limit.rate : 0;
  if (options.as_json) {
    print_json(Json::object({{"problem", facts},
                             {"plan", plan.describe()},
                             {"seconds", seconds},
                             {"repeat", time.seconds.size()},
                             {"spread", time.spread()},
                             {"flops", flops / seconds},
                             {"bytes_per_second", bytes / seconds},
                             {"limit", limit.rate},
                             {"limit_name", limit.name},
                             {"share_of_limit", share},
                             {"out", options.out}}));
    return;
  }
  Marks marks;
  fmt::print("problem  {}\nplan     {}\n", problem, plan.describe());
  fmt::print("time     {}{}\n", format_seconds(seconds),
             options.repeat > 1 ? fmt::format(" (median of {}, ± {})", time.seconds.size(), marks.spread(time.spread()))
             : on_gpu(plan)     ? " (one run, on the device)"
                                : " (one cold run)");
  fmt::print("rate     {}, {}{}\n", format_rate(flops / seconds, "FLOP/s"), format_rate(bytes / seconds, "B/s"),
             limit.rate > 0 ? fmt::format("; {} of this machine's {} ({})", marks.share(share), limit.name,
                                          format_rate(limit.rate, decode ? "B/s" : "FLOP/s"))
                            : "");
  fmt::print("{}", marks.text());
  for (const auto& [option, path] : written)
    if (!path->empty()) fmt::print("wrote    {}\n", *path);
}

void check_files(const RunOptions& options, const NamedFiles& inputs, const NamedFiles& outputs) {
  FileNames files;
  options.tensors.name_files(&files);
  options.features.name_files(&files);
  for (const auto& [option, path] : inputs) files.reads(option, *path);
  for (const auto& [option, path] : outputs) {
    if (!path->empty() && !ends_with(*path, ".npy") && !ends_with(*path, ".safetensors"))
      throw UsageError{fmt::format("{}: {}: outputs are written to .npy or .safetensors", option, *path)};
    files.writes(option, *path);
  }
}

}  // namespace falchion::tools
