// tools/demo.cpp: `falchion demo` runs a real model's attention on every path that this machine has, and shows one
// table and a picture.
#include <fmt/core.h>

#include <filesystem>
#include <memory>

#include "command/file_names.hpp"
#include "command/print_json.hpp"
#include "command/table.hpp"
#include "measure/machine.hpp"
#include "measure/measure.hpp"
#include "measure/peaks.hpp"
#include "picture/map.hpp"
#include "plan/text.hpp"
#include "problem/errors.hpp"
#include "problem/files.hpp"
#include "problem/levels.hpp"
#include "problem/tensor_options.hpp"
#include "problem/work.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string sample, svg = "smollm2_attention.svg";
  std::int64_t head = 0;  // of the middle layer: the first token as a sink, and blocks where sentences end
  std::int64_t threads = 0, runs = 15;
  bool as_json = false;
};

struct Row {
  std::string layer, ran, unit;
  bool passed = false;
  double seconds = 0, flops = 0;
  ErrorReport error;
  std::string why;
};

/// Finds the sample where it was installed with the command (bin/falchion, share/falchion), or beside the sources: in
/// this folder and its parents, then in the parents of the command.
std::string find_sample(const std::string& given) {
  if (!given.empty()) return given;
  const fs::path name = "examples/smollm2/smollm2_qkv.safetensors";
  std::error_code ignored;
  const fs::path command = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const fs::path installed = command.parent_path() / "share/falchion" / name.filename();
  if (fs::exists(installed, ignored)) return installed.string();
  for (const fs::path& start : {fs::current_path(ignored), command})
    for (fs::path at = start; !at.empty(); at = at.parent_path()) {
      if (fs::exists(at / name, ignored)) return (at / name).string();
      if (at == at.root_path()) break;
    }
  throw UsageError{fmt::format("{} is not here; give the sample's path: falchion demo FILE", name.string())};
}

Instance load_layer(const std::string& sample, const std::string& layer) {
  TensorOptions tensors;
  tensors.qkv = sample;
  tensors.layer = layer;
  Instance x = tensors.load({});
  x.problem.band = Band::causal(Align::bottom_right);
  x.problem.lse = true;
  x.require_valid();
  return x;
}

Row run_path(const std::string& layer, const Instance& instance, const Reference& reference, const Path& path,
             const Options& options, Peaks* peaks) {
  Row row;
  row.layer = layer;
  row.ran = path.name();
  const Target target = path.target(static_cast<int>(options.threads));
  const Verdict verdict = verify_path(instance, reference, target);
  row.passed = verdict.passed();
  row.why = verdict.why;
  if (!verdict.ran) return row;
  row.error = verdict.outputs.front().report;
  const Prepared prepared(instance.problem, target);
  const Outputs outputs(instance, instance.problem.dtype);
  Operands x = instance.operands();
  outputs.attach(&x);
  row.seconds = sample(static_cast<int>(options.runs), [&] { require(prepared.run(x)); }).median();
  row.flops = flop_count(instance.problem);
  row.unit = limiting_unit(prepared.plan());
  peaks->need(row.unit);
  return row;
}

/// The row of the definition itself, which was timed while it made the reference.
Row reference_row(const std::string& layer, const Instance& instance, const Reference& reference) {
  Row row;
  row.layer = layer;
  row.ran = "ref, 1 thread";
  row.passed = true;
  row.seconds = reference.exact_seconds();
  row.flops = flop_count(instance.problem);
  row.error = reference.check_o(reference.rounded_o().view);
  return row;
}

void print_story(const std::string& sample, const io::Metadata& facts, const Attention& a) {
  const auto fact = [&](const char* key) { return facts.count(key) ? facts.at(key) : std::string("?"); };
  fmt::print("Attention of a real language model: {}.\nText: {}; {} tokens.\n", fact("model"), fact("text"),
             fact("tokens"));
  fmt::print(
      "{} query heads share {} key/value heads of dimension {}; each token sees itself and those before it "
      "(causal); {}.\nTensors: {}\n\n",
      a.h_q, a.h_k, a.d_qk, name(a.dtype), sample);
}

void print_rows(const std::vector<Row>& rows, const Peaks& peaks) {
  Table table(
      {"<layer", "<ran on", "time", "speed", "of limit", "<which limit", "max error", "allowed", "<exact enough"});
  std::string layer;
  Marks marks;
  for (const Row& r : rows) {
    if (!layer.empty() && layer != r.layer) table.rule();
    const double rate = r.seconds > 0 ? r.flops / r.seconds : 0, peak = peaks.flops(r.unit);
    table.row({layer == r.layer ? "" : r.layer, r.ran, r.seconds > 0 ? format_seconds(r.seconds) : "-",
               rate > 0 ? format_rate(rate, "FLOP/s") : "-", peak > 0 ? marks.share(rate / peak) : "-",
               unit_title(r.unit), format_error(r.error.error), format_error(r.error.limit()),
               r.passed ? "yes" : "NO: " + r.why});
    layer = r.layer;
  }
  fmt::print("{}{}\n", table.text(), marks.text());
  fmt::print(
      "time      median of the runs, one pass over the layer\n"
      "of limit  of what this machine can do at best, measured just now: {}\n"
      "max error against the definition in double precision (ref). allowed: twice the error of a naive computation in\n"
      "          the same types, plus one unit of the output type\n",
      peaks.text());
}

Json to_json(const std::vector<Row>& rows, const Peaks& peaks) {
  std::vector<Json> list;
  for (const Row& r : rows)
    list.push_back(Json::object({{"layer", r.layer},
                                 {"ran", r.ran},
                                 {"seconds", r.seconds},
                                 {"flops", r.seconds > 0 ? r.flops / r.seconds : 0},
                                 {"limit_flops", peaks.flops(r.unit)},
                                 {"passed", r.passed},
                                 {"why", r.why},
                                 {"o", tools::to_json(r.error)}}));
  return Json::array(list);
}

int demo(const Options& options) {
  const auto start = Clock::now();
  const std::string sample = find_sample(options.sample);
  FileNames files;
  files.reads("sample", sample);
  files.writes("--svg", options.svg);
  const io::Archive archive = read_archive(sample);
  const auto layers = layers_of(archive);
  if (layers.empty()) throw UsageError{sample + ": no tensor ends in .q"};

  const Instance first = load_layer(sample, layers.front());
  if (options.head >= first.problem.h_q)
    throw UsageError{
        fmt::format("--head: {} is not there; the sample has {} query heads", options.head, first.problem.h_q)};
  const auto paths = usable_paths(first.problem.dtype, false, false);
  if (!options.as_json) {
    print_story(sample, archive.metadata, first.problem);
    fmt::print("{}, {} CPUs; GPUs used: none\n\n", cpu_model(), cpu_count());
    std::fflush(stdout);
  }
  std::vector<Row> rows;
  Peaks peaks(options.threads > 0 ? static_cast<int>(options.threads) : cpu_count());
  for (const std::string& layer : layers) {
    const Instance instance = load_layer(sample, layer);
    const Reference reference(instance);
    for (const Path& path : paths) rows.push_back(run_path(layer, instance, reference, path, options, &peaks));
    rows.push_back(reference_row(layer, instance, reference));
  }
  peaks.measure_again();

  const std::string& middle = layers[layers.size() / 2];
  const std::string svg =
      attention_map(load_layer(sample, middle), 0, options.head,
                    fmt::format("SmolLM2-135M, {}, head {}", middle, options.head), Target(Backend::best));
  write_text(options.svg, svg);
  bool passed = true;
  for (const Row& row : rows) passed = passed && row.passed;
  if (options.as_json) {
    print_json(result_facts("")
                   .with("sample", sample)
                   .with("passed", passed)
                   .with("rows", to_json(rows, peaks))
                   .with("svg", options.svg));
  } else {
    print_rows(rows, peaks);
    fmt::print("\nWho looks at whom, {} head {}: {}\n", middle, options.head, fs::absolute(options.svg).string());
    fmt::print("{} in {}.\n", passed ? "Everything passed" : "SOMETHING FAILED", format_seconds(seconds_since(start)));
  }
  return passed ? exit_ok : exit_failed;
}

}  // namespace

void add_demo(Command& command) {
  const auto options = std::make_shared<Options>();
  command.positional("sample", &options->sample, {}, false,
                     "The .safetensors sample (found by itself in the source tree)");
  command.text("--svg", &options->svg, "The picture to write", "FILE");
  command.integer("--head", &options->head, 0, 1 << 20, "Query head of the picture");
  command.integer("--threads", &options->threads, 0, 4096, "CPU threads; 0: all that the process may use");
  command.integer("--runs", &options->runs, 1, 10000, "Timed runs; the median counts");
  command.flag("--json", &options->as_json, "Machine-readable output");
  command.run([options](const Given&) { return demo(*options); });
}

}  // namespace falchion::tools
