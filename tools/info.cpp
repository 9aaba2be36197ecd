// tools/info.cpp: `falchion info`: what this machine and this build can do.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "command/table.hpp"
#include "cpu/levels.hpp"
#include "cpu/threads.hpp"
#include "cuda/runtime.hpp"
#include "measure/machine.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

using nlohmann::json;

/// The current device as the library sees it, or why it sees none.
json gpu_facts() {
  const cuda::Device device = cuda::current_device();
  if (device.sm == 0) return {{"why_not", device.why_not}};
  return {{"name", device.name},
          {"sm", device.sm},
          {"sms", device.sms},
          {"clock_hz", device.clock_hz},
          {"memory_bytes", device.memory},
          {"l2_bytes", device.l2},
          {"shared_bytes_per_block", device.shared_per_block}};
}

std::string gpu_text(const json& gpu) {
  if (gpu.contains("why_not")) return gpu["why_not"].get<std::string>();
  return fmt::format("{} (sm_{}), {} SMs at up to {:.2f} GHz, {} of memory, {} of L2", gpu["name"].get<std::string>(),
                     gpu["sm"].get<int>(), gpu["sms"].get<int>(), gpu["clock_hz"].get<double>() / 1e9,
                     format_bytes(gpu["memory_bytes"].get<double>()), format_bytes(gpu["l2_bytes"].get<double>()));
}

json facts() {
  json levels = json::array(), rows = json::array();
  for (const auto& level : cpu::cpu_levels())
    levels.push_back({{"name", level.name}, {"usable", level.usable}, {"why_not", level.why_not}});
  for (const Variant& v : variants())
    rows.push_back(
        {{"operation", v.op}, {"backend", name(v.backend)}, {"level", v.level}, {"dtype", name(v.dtype)}, {"d", v.d}});
  return {{"version", version()},
          {"compiler", compiler()},
          {"build", build_type()},
          {"cpu", cpu_model()},
          {"threads", cpu::default_threads()},
          {"memory_bytes", memory_bytes()},
          {"levels", levels},
          {"gpus", gpu_names()},
          {"gpu", gpu_facts()},
          {"variants", rows}};
}

void print_text(const json& x) {
  fmt::print("falchion {}   {}, {}\n\n", x["version"].get<std::string>(), x["compiler"].get<std::string>(),
             x["build"].get<std::string>());
  fmt::print("CPU      {}, {} threads, {} of memory\n", x["cpu"].get<std::string>(), x["threads"].get<int>(),
             format_bytes(x["memory_bytes"].get<double>()));
  std::string gpus;
  for (const auto& gpu : x["gpus"]) gpus += (gpus.empty() ? "" : ", ") + gpu.get<std::string>();
  fmt::print("GPUs     {}\n", gpus.empty() ? "none (no driver or no device)" : gpus);
  fmt::print("in use   {}\n\n", gpu_text(x["gpu"]));

  Table levels({"<CPU level", "<runs here", "<why not"});
  for (const auto& level : x["levels"])
    levels.row({level["name"], level["usable"].get<bool>() ? "yes" : "no", level["why_not"]});
  fmt::print("{}\n", levels.text());

  // One line for each kernel, with its types side by side.
  std::map<std::string, std::vector<std::string>> types;
  std::vector<std::pair<std::string, json>> order;
  for (const auto& v : x["variants"]) {
    const std::string key = v["operation"].get<std::string>() + v["backend"].get<std::string>() +
                            v["level"].get<std::string>() + v["d"].dump();
    if (types[key].empty()) order.emplace_back(key, v);
    types[key].push_back(v["dtype"]);
  }
  Table built({"<built kernel", "<backend", "<level", "<types", "<head dim"});
  for (const auto& [key, v] : order)
    built.row({v["operation"], v["backend"], v["level"], fmt::format("{}", fmt::join(types[key], " ")),
               v["d"] == 0 ? "1 to 256" : fmt::format("up to {}", v["d"].get<int>())});
  built.row({"attention_forward", "ref", "", "f32 f16 bf16", "1 to 256"});
  fmt::print("{}", built.text());
}

}  // namespace

void add_info(Command& command) {
  const auto as_json = std::make_shared<bool>(false);
  command.flag("--json", as_json.get(), "Machine-readable output");
  command.run([as_json](const Given&) {
    if (*as_json) {
      fmt::print("{}\n", facts().dump(2));
    } else {
      print_text(facts());
    }
    return exit_ok;
  });
}

}  // namespace falchion::tools
