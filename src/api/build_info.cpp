// src/api/build_info.cpp: what this build is and what it can do here.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cpu/levels.hpp"
#include "cpu/threads.hpp"
#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "runtime/runtime.hpp"

#define FALCHION_TEXT_OF(x) #x
#define FALCHION_DOTTED(major, minor, patch) \
  FALCHION_TEXT_OF(major) "." FALCHION_TEXT_OF(minor) "." FALCHION_TEXT_OF(patch)

namespace falchion {

const char* version() noexcept { return FALCHION_DOTTED(FAL_VERSION_MAJOR, FAL_VERSION_MINOR, FAL_VERSION_PATCH); }

std::string build_info() {
  std::string out = text("falchion ", version(), "\n");
#if defined(__VERSION__)
  out += text("compiler   ", __VERSION__, "\n");
#endif
#if defined(FALCHION_OPENMP)
  out += text("threads    OpenMP, ", cpu::default_threads(), " by default\n");
#else
  out += text("threads    std::thread, ", cpu::default_threads(), " by default\n");
#endif
  out += "cpu levels ";
  std::string separator;
  for (const cpu::Level& level : cpu::cpu_levels()) {
    out += text(separator, level.name, level.usable ? "" : text(" (no: ", level.why_not, ")"));
    separator = ", ";
  }
  const cuda::Device device = cuda::current_device();
  out += device.sm == 0 ? text("\ngpus       none: ", device.why_not, "\n")
                        : text("\ngpus       ", device.name, " (sm_", device.sm, "), ", device.sms, " SMs, ",
                               device.memory >> 30, " GiB\n");
  out += text("variants   ", variants().size(), " of ", listed_variants().size());
  std::vector<std::pair<std::string, std::string>> groups;  // the types of each operation, back end, level and head dim
  for (const Variant& variant : variants()) {
    const std::string head = text(variant.op, " ", name(variant.backend), " ", variant.name(),
                                  variant.d > 0 ? text(" d", variant.d) : "", ":");
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& known) { return known.first == head; });
    if (group == groups.end()) group = groups.insert(group, {head, ""});
    group->second += text(" ", name(variant.dtype));
  }
  for (const auto& [head, types] : groups) out += text("; ", head, types);
  return out + "\n";
}

}  // namespace falchion
