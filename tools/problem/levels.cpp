// tools/problem/levels.cpp
#include "problem/levels.hpp"
#include "api/data_of.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "command/words.hpp"
#include "cpu/levels.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "runtime/runtime.hpp"
#include "tool.hpp"

namespace falchion::tools {

const char* require_level(const std::string& level) {
  for (const auto& known : cpu::cpu_levels()) {
    if (level != known.name) continue;
    if (!known.usable) throw UsageError{fmt::format("level \"{}\" cannot run here: {}", level, known.why_not)};
    return known.name;
  }
  std::vector<std::string> names;
  for (const auto& known : cpu::cpu_levels()) names.emplace_back(known.name);
  throw UsageError{fmt::format("level \"{}\" does not exist; usable here: {}{}", level, cpu::usable_levels(),
                               did_you_mean(level, names))};
}

std::string Path::name() const {
  return level.empty() ? falchion::name(backend) : fmt::format("{} {}", falchion::name(backend), level);
}

Target Path::target(int threads) const {
  Target out(backend);
  out.threads = threads;
  if (!level.empty()) out.cpu_level = require_level(level);
  return out;
}

void require_here(Backend backend) {
  if (!is_gpu(backend)) return;
  const auto refuse = [&](const std::string& why) {
    throw UsageError{fmt::format("--backend {}: {}", name(backend), why)};
  };
  const auto all = variants();
  if (std::none_of(all.begin(), all.end(), [&](const Variant& v) { return v.backend == backend; }))
    refuse("this build has no kernel of it (FALCHION_CUDA is off, or FALCHION_VARIANTS left them out)");
  const cuda::Device device = cuda::current_device();
  if (device.sm == 0) refuse(device.why_not);
  if (backend == Backend::sm90 ? device.sm / 10 != 9 : device.sm < 80)
    refuse(fmt::format("{} is sm_{}, its kernels run on {}", device.name, device.sm,
                       backend == Backend::sm90 ? "sm_90 alone" : "sm_80 and newer"));
}

std::vector<Path> usable_gpu_paths(DType dtype, const char* operation) {
  std::vector<Path> out;
  const int sm = cuda::current_device().sm;
  for (const Backend backend : {Backend::sm90, Backend::sm80}) {
    const bool fits = backend == Backend::sm90 ? sm == 90 : sm >= 80;
    for (const Variant& v : variants()) {
      if (!fits || v.backend != backend || v.dtype != dtype || !v.is(operation)) continue;
      out.push_back({backend, ""});
      break;
    }
  }
  return out;
}

std::vector<Path> usable_paths(DType dtype, bool with_ref, bool with_emulated, const char* operation) {
  std::vector<Path> out;
  for (const auto& level : cpu::cpu_levels()) {
    if (!level.usable || (!with_emulated && same(level.name, "amx_emulated"))) continue;
    for (const Variant& v : variants()) {
      if (v.backend != Backend::cpu || !v.is(operation) || v.dtype != dtype || !same(v.level, level.name)) continue;
      out.push_back({Backend::cpu, level.name});
      break;
    }
  }
  if (with_ref) out.push_back({Backend::ref, ""});
  return out;
}

std::string plan_backend(const Plan& plan) { return name(data_of(plan)->backend); }

std::string plan_level(const Plan& plan) {
  const Variant* variant = data_of(plan)->variant;
  return variant != nullptr ? variant->name() : "";
}

bool on_gpu(const Plan& plan) { return is_gpu(data_of(plan)->backend); }

int plan_threads(const Plan& plan) { return data_of(plan)->threads; }

std::string limiting_unit(const Plan& plan) {
  if (on_gpu(plan)) return "";
  const std::string level = plan_level(plan);
  const bool bytes = data_of(plan)->is<GemmPlan>() && data_of(plan)->gemm().problem.dtype == DType::i8;
  if (bytes && (level == "vnni" || level.starts_with("amx"))) return "";  // their rate is not measured
  if (level == "amx_emulated") return "avx512";
  // Linear attention leaves the tiles where its products are those of f32 (cpu/linear_attention/backward.hpp).
  const PlanData& data = *data_of(plan);
  if (!data.is<LinearPlan>()) return level;
  const LinearAttention& problem = data.linear().problem;
  const bool exact = problem.dtype == DType::f32 || (data.pass == Pass::backward && problem.decay != Decay::none);
  return (level == "amx" || level == "avx512_bf16") && exact ? "avx512" : level;
}

std::string unit_title(const std::string& unit) {
  if (unit == "amx") return "AMX bf16";
  if (unit == "avx512_bf16") return "AVX-512 bf16";
  if (unit == "avx512") return "AVX-512 f32";
  if (unit == "avx2") return "AVX2 f32";
  if (unit == "neon") return "NEON f32";
  return unit.empty() ? "" : "base f32";
}

}  // namespace falchion::tools
