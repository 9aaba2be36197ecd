// tools/info.cpp: `falchion info`: what this machine and this build can do.
#include <fmt/core.h>

#include <map>
#include <memory>

#include "command/print_json.hpp"
#include "command/table.hpp"
#include "cpu/levels.hpp"
#include "cpu/threads.hpp"
#include "measure/machine.hpp"
#include "plan/explain.hpp"
#include "plan/plan_data.hpp"
#include "plan/support.hpp"
#include "plan/text.hpp"
#include "problem/operation.hpp"
#include "runtime/runtime.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

/// The current device as the library sees it, or why it sees none.
Json gpu_json(const cuda::Device& gpu) {
  if (gpu.sm == 0) return Json::object({{"why_not", gpu.why_not}});
  return Json::object({{"name", gpu.name},
                       {"sm", gpu.sm},
                       {"sms", gpu.sms},
                       {"clock_hz", gpu.clock_hz},
                       {"memory_bytes", gpu.memory},
                       {"l2_bytes", gpu.l2},
                       {"shared_bytes_per_block", gpu.shared_per_block}});
}

std::string gpu_text(const cuda::Device& gpu) {
  if (gpu.sm == 0) return gpu.why_not;
  return fmt::format("{} (sm_{}), {} SMs at up to {:.2f} GHz, {} of memory, {} of L2", gpu.name, gpu.sm, gpu.sms,
                     static_cast<double>(gpu.clock_hz) / 1e9, format_bytes(static_cast<double>(gpu.memory)),
                     format_bytes(static_cast<double>(gpu.l2)));
}

/// Neither a GEMM nor a norm has a head dim.
std::string head_dims(const Variant& v) {
  return v.d > 0 ? fmt::format("up to {}", v.d) : v.is("gemm") || v.is("norm") ? "" : "1 to 256";
}

Json facts() {
  std::vector<Json> levels, gpus, built;
  for (const auto& level : cpu::cpu_levels())
    levels.push_back(Json::object({{"name", level.name}, {"usable", level.usable}, {"why_not", level.why_not}}));
  for (const std::string& gpu : gpu_names()) gpus.emplace_back(gpu);
  for (const Variant& v : variants())
    built.push_back(Json::object({{"operation", v.op},
                                  {"backend", name(v.backend)},
                                  {"level", v.level},
                                  {"tile", tile_json(&v)},
                                  {"dtype", name(v.dtype)},
                                  {"d", v.d}}));
  return Json::object({{"version", version()},
                       {"compiler", compiler()},
                       {"build", build_type()},
                       {"cpu", cpu_model()},
                       {"threads", cpu::default_threads()},
                       {"memory_bytes", memory_bytes()},
                       {"levels", Json::array(levels)},
                       {"gpus", Json::array(gpus)},
                       {"gpu", gpu_json(cuda::current_device())},
                       {"variants", Json::array(built)}});
}

/// Only GEMMs have quantised types.
std::string ref_types(Kind kind) { return kind == Kind::gemm ? "f32 f16 bf16 e4m3 i8" : "f32 f16 bf16"; }
std::string ref_head_dims(Kind kind) { return kind == Kind::attention || kind == Kind::linear ? "1 to 256" : ""; }

/// One line for each kernel, with its types side by side.
std::string built_text() {
  std::map<std::string, std::string> types;
  std::vector<std::pair<std::string, const Variant*>> order;
  for (const Variant& v : variants()) {
    const std::string key = fmt::format("{} {} {} {}", v.op, name(v.backend), v.name(), v.d);
    std::string& list = types[key];
    if (list.empty()) order.emplace_back(key, &v);
    list += (list.empty() ? "" : " ") + std::string(name(v.dtype));
  }
  Table built({"<built kernel", "<backend", "<level", "<types", "<head dim"});
  for (const auto& [key, v] : order) built.row({v->op, name(v->backend), v->name(), types[key], head_dims(*v)});
  for (const CommandOperation& operation : command_operations())  // the definition has each of them
    built.row({operation.operation, name(Backend::ref), "", ref_types(operation.kind), ref_head_dims(operation.kind)});
  return built.text();
}

void print_text() {
  fmt::print("falchion {}   {}, {}\n\n", version(), compiler(), build_type());
  fmt::print("CPU      {}, {} threads, {} of memory\n", cpu_model(), cpu::default_threads(),
             format_bytes(memory_bytes()));
  std::string gpus;
  for (const std::string& gpu : gpu_names()) gpus += (gpus.empty() ? "" : ", ") + gpu;
  fmt::print("GPUs     {}\n", gpus.empty() ? "none (no driver or no device)" : gpus);
  fmt::print("in use   {}\n\n", gpu_text(cuda::current_device()));

  Table levels({"<CPU level", "<runs here", "<why not"});
  for (const auto& level : cpu::cpu_levels()) levels.row({level.name, level.usable ? "yes" : "no", level.why_not});
  fmt::print("{}\n{}", levels.text(), built_text());
}

}  // namespace

void add_info(Command& command) {
  const auto as_json = std::make_shared<bool>(false), of_support = std::make_shared<bool>(false);
  command.flag("--json", as_json.get(), "Machine-readable output");
  command.flag("--support", of_support.get(), "What each back end has, as tables in Markdown (docs/support.md)");
  command.run([as_json, of_support](const Given&) {
    if (*of_support) {
      fmt::print("{}", support_tables());
    } else if (*as_json) {
      print_json(facts(), 2);
    } else {
      print_text();
    }
    return exit_ok;
  });
}

}  // namespace falchion::tools
