// tools/roofline/roofline.cpp: `falchion roofline`: is attention memory bound or compute bound? Its options and output.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "command/file_names.hpp"
#include "command/print_json.hpp"
#include "measure/machine.hpp"
#include "measure/peaks.hpp"
#include "problem/files.hpp"
#include "problem/levels.hpp"
#include "problem/operation.hpp"
#include "roofline/cases.hpp"
#include "roofline/model.hpp"
#include "roofline/points.hpp"
#include "roofline/svg.hpp"
#include "roofline/text.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

using namespace roofline;

struct Options {
  std::vector<std::string> devices, points, match;
  std::string op = name(Op::attention), mode, format = "text", out, title;
  std::optional<float> tflops, tbps, l2_tbps, texps;
  std::int64_t threads = 0;
  bool as_json = false;
  ShapeOptions shapes;
};

/// This machine, measured like `falchion bench` does.
Device measure_cpu(int threads, int element_bytes) {
  Peaks peaks(threads > 0 ? threads : cpu_count());
  std::string vectors = "generic";
  for (const char* unit : {"avx512", "avx2", "neon"})
    if (vectors == "generic" && unit_here(unit)) vectors = unit;
  std::string unit = vectors;
  for (const char* products : {"avx512_bf16", "amx"})
    if (element_bytes == 2 && unit_here(products)) unit = products;
  peaks.need(unit);
  peaks.dram();
  peaks.measure_again();
  Device device;
  device.key = "cpu";
  device.title = "this CPU";
  device.source = fmt::format("{}, {} threads, measured: {}", cpu_model(), peaks.threads(), peaks.text());
  device.flops_8 = device.flops_16 = device.flops_32 = peaks.flops(unit);
  device.hbm = peaks.bytes_per_second();
  device.memory_name = "DRAM";
  device.math_name = unit_title(unit);
  return device;
}

/// Puts the rates that were given in the place of the device's own.
void override_rates(const Options& options, Device* device) {
  const auto set = [&](const char* name, std::optional<float> given, double* rate) {
    if (!given) return;
    if (!(*given > 0) || !std::isfinite(*given))
      throw UsageError{fmt::format("{}: {} is not a rate above 0", name, *given)};
    *rate = static_cast<double>(*given) * 1e12;
  };
  double flops = 0;
  set("--tflops", options.tflops, &flops);
  if (flops > 0) device->flops_8 = device->flops_16 = device->flops_32 = flops;
  set("--tbps", options.tbps, &device->hbm);
  set("--l2-tbps", options.l2_tbps, &device->l2);
  set("--texps", options.texps, &device->exps);
}

std::vector<Device> chosen_devices(const Options& options) {
  const bool custom = options.tflops || options.tbps || options.l2_tbps || options.texps;
  std::vector<Device> out;
  if (options.devices.empty() && custom) {
    if (!options.tflops || !options.tbps)
      throw UsageError{"a device of your own wants both --tflops and --tbps; --device takes one that is known"};
    Device device;
    device.key = "custom";
    device.title = "given rates";
    device.source = "the command line";
    device.memory_name = "memory";
    device.math_name = "products";
    out.push_back(device);
  } else if (options.devices.empty()) {
    out = devices();
    if (options.format == "svg" || !options.points.empty()) out = {*find_device("h200")};
  }
  for (const std::string& key : options.devices) {
    const Device* device = find_device(key);  // none of "cpu"
    const std::string name = device != nullptr ? device->key : key;
    if (std::ranges::find(out, name, &Device::key) != out.end()) continue;  // one column each
    out.push_back(device != nullptr ? *device
                                    : measure_cpu(static_cast<int>(options.threads), options.shapes.element_bytes()));
  }
  for (Device& device : out) {
    override_rates(options, &device);
    if (!(device.flops(options.shapes.element_bytes()) > 0))
      throw UsageError{
          fmt::format("--dtype {}: {} has no such rate; --tflops gives one", options.shapes.dtype, device.key)};
  }
  return out;
}

/// The request, from the options.
struct Report {
  std::vector<Device> devices;
  std::string mode;  // "" where the whole table was asked for
  std::vector<Case> cases;
  std::vector<Point> points;
};

Report work_out(const Options& options) {
  Report report;
  const Op op = parse_op(options.op);
  report.mode = op == Op::attention_backward ? "backward" : op == Op::gemm ? "gemm" : options.mode;
  const bool svg = options.format == "svg";
  if (report.mode.empty() && (options.shapes.given() || svg || !options.points.empty())) report.mode = "prefill";
  if (!report.mode.empty()) report.cases = options.shapes.cases(report.mode);
  for (const std::string& path : options.points) {
    const auto more = read_points(path);
    report.points.insert(report.points.end(), more.begin(), more.end());
  }
  report.points = matching(report.points, options.match);
  if (report.points.empty() && !options.points.empty())
    throw UsageError{fmt::format("--match: no point of {} holds all of {}", fmt::join(options.points, ", "),
                                 fmt::join(options.match, ", "))};
  report.devices = chosen_devices(options);
  if (svg && report.devices.size() > 1) throw UsageError{"--format svg draws one device; name one with --device"};
  return report;
}

std::string text_of(const Report& report, const Options& options) {
  const int bytes = options.shapes.element_bytes();
  std::string out;
  if (!options.shapes.given()) out = table_text(report.devices, report.mode) + "\n";
  for (const Device& device : report.devices) {
    if (report.mode.empty()) break;
    out += fmt::format("{}, {}, {} ({}). Ridge {:.1f} FLOP/B\n\n", device.title, report.mode, options.shapes.dtype,
                       device.source, device.ridge(bytes));
    out += cases_text(device, report.cases) + "\n";
    if (!report.points.empty()) out += points_text(device, report.points) + "\n";
  }
  if (!report.mode.empty())
    out += fmt::format(
        "Times: what each roof alone would take. MB: every operand moved once. \"=\": within {:.0f} % of the "
        "slowest.\n\n",
        kTie * 100);
  return out + answer_text(report.devices, report.mode, bytes);
}

std::string json_of(const Report& report, const Options& options) {
  const int bytes = options.shapes.element_bytes();
  std::vector<Json> devices, shapes, points;
  for (const Device& device : report.devices) {
    devices.push_back(device_json(device, report.mode, bytes));
    for (const Case& one : report.cases) shapes.push_back(case_json(device, one));
    for (const Point& p : report.points) points.push_back(point_json(device, p).with("device", device.key));
  }
  const Json json = Json::object({{"mode", report.mode.empty() ? "all" : report.mode},
                                  {"dtype", options.shapes.dtype},
                                  {"devices", Json::array(devices)},
                                  {"shapes", Json::array(shapes)},
                                  {"points", Json::array(points)},
                                  {"answer", answer_text(report.devices, report.mode, bytes)}});
  return pretty(json.text()) + "\n";
}

std::string svg_of(const Report& report, const Options& options) {
  const Device& device = report.devices.front();
  const char* titles[] = {"Attention, prefill", "Attention, backward", "Attention, decode", "Linear attention",
                          "Matrix products"};
  const std::string modes[] = {"prefill", "backward", "decode", "linear", "gemm"};
  const auto at = static_cast<std::size_t>(std::find(modes, modes + 5, report.mode) - modes);
  const std::string title = fmt::format("{}: roofs of {}, {}", titles[at], device.title, options.shapes.dtype);
  return roofline_svg({device, options.shapes.element_bytes(), options.title.empty() ? title : options.title,
                       report.cases, report.points});
}

/// Refuses options that the answer does not depend on.
void check_use(const Options& options, const Given& given) {
  if (std::ranges::find(options.devices, "cpu") == options.devices.end())
    given.refuse({"--threads"}, "only --device cpu is measured");
  if (parse_op(options.op) != Op::attention)
    given.refuse({"--mode"}, "--op " + options.op + " is a kind of work of its own; give one of them");
  if (options.points.empty()) given.refuse({"--match"}, "there are no --points that it could choose from");
  if (options.as_json) given.refuse({"--format"}, "--json is --format json; give one of them");
  if (options.as_json || options.format != "svg") given.refuse({"--title"}, "only a picture, --format svg, has one");
  FileNames files;
  for (const std::string& path : options.points) files.reads("--points", path);
  files.writes("--out", options.out);
}

int show(Options options) {
  if (options.as_json) options.format = "json";
  const Report report = work_out(options);
  const std::string text = options.format == "svg"    ? svg_of(report, options)
                           : options.format == "json" ? json_of(report, options)
                                                      : text_of(report, options);
  if (options.out.empty()) {
    fmt::print("{}", text);
  } else {
    write_text(options.out, text);
  }
  return exit_ok;
}

}  // namespace

void add_roofline(Command& command) {
  const auto options = std::make_shared<Options>();
  command.group("Whose roofs");
  std::vector<std::string> names = {"a100"};
  for (const Device& device : devices()) names.push_back(device.key);
  names.emplace_back("cpu");
  command.list("--device", &options->devices, names, "a100: a100-80; cpu: measured here and now [all but cpu]");
  command.number("--tflops", &options->tflops, "Products, 1e12 FLOP/s, in place of the device's");
  command.number("--tbps", &options->tbps, "Memory, 1e12 B/s");
  command.number("--l2-tbps", &options->l2_tbps, "L2, 1e12 B/s");
  command.number("--texps", &options->texps, "Exponentials, 1e12 a second");
  command.integer("--threads", &options->threads, 0, 4096, "cpu: threads; 0: all that the process may use");
  command.group("What is asked");
  command.choice("--op", &options->op, {name(Op::attention), name(Op::attention_backward), name(Op::gemm)},
                 "attention-backward: its backward pass, in place of --mode; gemm: as --mode gemm");
  command.choice("--mode", &options->mode, {"prefill", "decode", "linear", "gemm"},
                 "One kind of work; none: the whole table");
  options->shapes.add_to(command);
  command.group("Measured points");
  command.list("--points", &options->points, "JSON of bench/compare_torch.py or of falchion bench --json");
  command.list("--match", &options->match, "Only points whose name holds all of these: falchion,burst");
  command.group("How it is shown");
  command.choice("--format", &options->format, {"text", "svg", "json"}, "Tables, a picture, or JSON");
  command.text("-o,--out", &options->out, "To this file", "FILE");
  command.text("--title", &options->title, "Title of the picture");
  command.flag("--json", &options->as_json, "The same as --format json");
  command.run([options](const Given& given) {
    check_use(*options, given);
    return show(*options);
  });
}

}  // namespace falchion::tools
