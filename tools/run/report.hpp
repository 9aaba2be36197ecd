// tools/run/report.hpp: the output of `falchion run` after a run of any operation.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "measure/measure_gpu.hpp"
#include "plan/json.hpp"
#include "problem/instance.hpp"
#include "run/options.hpp"
#include "tool.hpp"

namespace falchion::tools {

/// A file of the command line: the option that names it, and its path, which may be empty.
using NamedFiles = std::vector<std::pair<const char*, const std::string*>>;

struct Report {
  std::string problem;  // its type and name
  Json facts;           // the same as JSON
  double flops = 0, bytes = 0;
  bool decode = false;  // then memory is the limit

  /// Prints time, rates and, unless it is switched off, this machine's limit beside them.
  void print(const Plan& plan, const Samples& time, const RunOptions& options, const NamedFiles& written) const;
};

/// Refuses, before the work, an output that cannot be written or would overwrite another of the files.
void check_files(const RunOptions& options, const NamedFiles& inputs, const NamedFiles& outputs);

/// Times the runs on the CPU; a single run is not warmed up.
template <class AnyOperands>
Samples time_on_cpu(const Prepared& prepared, const AnyOperands& operands, const RunOptions& options) {
  if (options.repeat > 1) return sample(static_cast<int>(options.repeat), [&] { require(prepared.run(operands)); });
  const auto start = Clock::now();
  require(prepared.run(operands));
  return {{seconds_since(start)}};
}
/// Times the runs on the device, without the copies to it and back.
template <class AnyOperands>
Samples time_on_gpu(const Prepared& prepared, const AnyOperands& operands, const RunOptions& options) {
  GpuRun run(prepared.plan(), operands);
  Samples time = run.sample(static_cast<int>(options.repeat), false);
  run.download();
  return time;
}

}  // namespace falchion::tools
