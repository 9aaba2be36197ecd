// tools/run.cpp: `falchion run`: attention on tensors from files.
#include <fmt/core.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "command/print_json.hpp"
#include "command/table.hpp"
#include "measure/measure_gpu.hpp"
#include "measure/peaks.hpp"
#include "plan/text.hpp"
#include "problem/files.hpp"
#include "problem/levels.hpp"
#include "problem/slices.hpp"
#include "problem/tensor_options.hpp"
#include "problem/work.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

struct Options {
  TensorOptions tensors;
  FeatureOptions features;
  TargetOptions where;
  std::string out, lse, row_max, probabilities;
  std::int64_t repeat = 1;
  bool progress = false, no_limit = false, as_json = false;
};

/// A low rate in flop/s. With it, work of seconds is told from work of milliseconds before it begins.
double modest_rate(const Plan& plan) {
  if (plan_backend(plan) == "ref") return 3e8;
  const std::string level = plan_level(plan);
  return (level == "generic" ? 5e9 : level == "amx" ? 1e12 : 6e10) * plan_threads(plan);
}

Samples compute(const Prepared& prepared, const Instance& instance, const Operands& x, const Options& options,
                const Target& target) {
  if (prepared.on_gpu()) {
    if (options.progress) throw UsageError{"--progress: a GPU computes all heads at once"};
    GpuRun run(prepared.plan(), x);
    Samples time = run.sample(static_cast<int>(options.repeat), false);
    run.download();
    return time;
  }
  const bool long_work = flop_count(instance.problem, &x) > 2 * modest_rate(prepared.plan());
  if (options.progress || (long_work && options.repeat == 1 && isatty(STDERR_FILENO))) {
    const auto slices = slices_of(instance.problem, x, target);
    if (!slices.empty()) {
      const auto start = Clock::now();
      run_with_progress(slices, target);
      return {{seconds_since(start)}};
    }
  }
  if (options.repeat > 1) return sample(static_cast<int>(options.repeat), [&] { require(prepared.run(x)); });
  const auto start = Clock::now();
  require(prepared.run(x));
  return {{seconds_since(start)}};
}

void write_outputs(const Options& options, const Outputs& outputs) {
  const Shape& s = outputs.o.view.shape;
  const bool heads_first = options.tensors.layout() == Layout::bhsd;
  std::vector<NamedTensor> archive;
  const auto put = [&](const std::string& path, const char* name, const HostTensor& tensor,
                       std::vector<std::int64_t> shape) {
    if (!tensor.view.data) return;
    if (!path.empty()) write_tensors(path, {{name, &tensor, shape}});
    archive.push_back({name, &tensor, shape});
  };
  const auto rows = [](const HostTensor& t) {
    return std::vector<std::int64_t>(t.view.shape.begin(), t.view.shape.end() - (t.view.shape[3] == 1 ? 1 : 0));
  };
  const bool to_archive = ends_with(options.out, ".safetensors");
  put(to_archive ? "" : options.out, "o", outputs.o,
      heads_first ? std::vector<std::int64_t>{s[0], s[2], s[1], s[3]}
                  : std::vector<std::int64_t>{s[0], s[1], s[2], s[3]});
  put(options.lse, "lse", outputs.lse, rows(outputs.lse));
  put(options.row_max, "row_max", outputs.row_max, rows(outputs.row_max));
  const Shape& p = outputs.probabilities.view.shape;
  put(options.probabilities, "probabilities", outputs.probabilities, {p.begin(), p.end()});
  if (to_archive) write_tensors(options.out, archive);
}

struct Report {
  std::string describe, limit_name;
  double seconds, spread, flops, bytes, limit;  // limit is in flop/s, or in bytes/s for decode
  bool decode, on_gpu;
  double share() const { return limit > 0 ? (decode ? bytes : flops) / seconds / limit : 0; }
};

void print_report(const Report& r, const Attention& a, const Options& options) {
  if (options.as_json) {
    print_json(Json::object({{"problem", to_json(a)},
                             {"plan", r.describe},
                             {"seconds", r.seconds},
                             {"repeat", options.repeat},
                             {"spread", r.spread},
                             {"flops", r.flops / r.seconds},
                             {"bytes_per_second", r.bytes / r.seconds},
                             {"limit", r.limit},
                             {"limit_name", r.limit_name},
                             {"share_of_limit", r.share()},
                             {"out", options.out}}));
    return;
  }
  fmt::print("problem  {} {}\nplan     {}\n", name(a.dtype), problem_name(a), r.describe);
  fmt::print("time     {}{}\n", format_seconds(r.seconds),
             options.repeat > 1 ? fmt::format(" (median of {}, ± {})", options.repeat, format_percent(r.spread))
             : r.on_gpu         ? " (one run, on the device)"
                                : " (one cold run)");
  fmt::print("rate     {}, {}{}\n", format_rate(r.flops / r.seconds, "FLOP/s"), format_rate(r.bytes / r.seconds, "B/s"),
             r.limit > 0 ? fmt::format("; {} of this machine's {} ({})", format_percent(r.share()), r.limit_name,
                                       format_rate(r.limit, r.decode ? "B/s" : "FLOP/s"))
                         : "");
  for (const std::string& path : {options.out, options.lse, options.row_max, options.probabilities})
    if (!path.empty()) fmt::print("wrote    {}\n", path);
}

/// Refuses, before the work and not after it, an output that cannot be written or would overwrite another of the files.
void check_files(const Options& options) {
  FileNames files;
  options.tensors.name_files(&files);
  if (options.features.reads_slopes()) files.reads("--alibi", options.features.alibi);
  const std::pair<const char*, const std::string*> outputs[] = {{"--out", &options.out},
                                                                {"--lse", &options.lse},
                                                                {"--row-max", &options.row_max},
                                                                {"--probabilities", &options.probabilities}};
  for (const auto& [option, path] : outputs) {
    if (!path->empty() && !ends_with(*path, ".npy") && !ends_with(*path, ".safetensors"))
      throw UsageError{fmt::format("{}: {}: outputs are written to .npy or .safetensors", option, *path)};
    files.writes(option, *path);
  }
}

int run(const Options& options) {
  check_files(options);
  Instance instance = options.tensors.load(options.features);
  Attention& a = instance.problem;
  const bool archive = ends_with(options.out, ".safetensors");
  a.lse = !options.lse.empty() || archive;
  a.row_max = !options.row_max.empty();
  a.probabilities = !options.probabilities.empty();
  instance.require_valid();
  const Target target = options.where.target();
  const Prepared prepared(a, target);
  const Outputs outputs(instance, a.dtype, options.tensors.layout());
  outputs.clear();
  Operands x = instance.operands();
  outputs.attach(&x);
  const Samples time = compute(prepared, instance, x, options, target);
  write_outputs(options, outputs);

  Report report{prepared.plan().describe(), "", time.median(), time.spread(),    flop_count(a, &x),
                byte_count(a, &x),          0,  is_decode(a),  prepared.on_gpu()};
  if (!options.no_limit && !limiting_unit(prepared.plan()).empty()) {
    Peaks peaks(plan_threads(prepared.plan()));
    const std::string unit = limiting_unit(prepared.plan());
    if (report.decode)
      peaks.dram();
    else
      peaks.need(unit);
    report.limit = report.decode ? peaks.bytes_per_second() : peaks.flops(unit);
    report.limit_name = report.decode ? "DRAM read" : unit_title(unit) + " peak";
  }
  print_report(report, a, options);
  return exit_ok;
}

}  // namespace

void add_run(Command& command) {
  const auto options = std::make_shared<Options>();
  command.integer("--repeat", &options->repeat, 1, 1000000, "Timed runs after a warm-up; the median counts");
  command.flag("--progress", &options->progress,
               "Run head by head and say how far (by itself on a terminal, for long work)");
  command.flag("--no-limit", &options->no_limit, "Do not measure this machine's limit beside it (saves half a second)");
  command.flag("--json", &options->as_json, "Machine-readable output");
  options->tensors.add_to(command);
  options->features.add_to(command);
  command.group("Outputs (.npy, or .safetensors for several in one file)");
  command.text("--out", &options->out, "O, in the type and axes of Q; .safetensors: LSE too", "FILE");
  command.text("--lse", &options->lse, "Natural log of the sum of exponentials (b, h, s_q)", "FILE");
  command.text("--row-max", &options->row_max, "Largest score of each row (b, h, s_q)", "FILE");
  command.text("--probabilities", &options->probabilities, "P (b, h, s_q, s_k), before dropout", "FILE");
  options->where.add_to(command);
  command.run([options](const Given& given) {
    options->tensors.check(given);
    if (options->repeat > 1) given.refuse({"--progress"}, "it times one run, head by head; leave --repeat out");
    return run(*options);
  });
}

}  // namespace falchion::tools
