// src/plan/paths.cpp: see paths.hpp.
#include "plan/paths.hpp"

#include <algorithm>
#include <utility>

#include "base/divide.hpp"
#include "base/fields.hpp"
#include "cpu/levels.hpp"
#include "cpu/threads.hpp"
#include "plan/constants.hpp"
#include "plan/operation.hpp"
#include "plan/text.hpp"

namespace falchion {
namespace {

/// Why a back end without any kernel of the operation is not taken.
std::string no_kernel(Backend backend, const Operation& operation) {
  const bool older = backend == Backend::sm90 && is_listed_for(Backend::sm80, operation);
  return text("Falchion has no kernel of ", operation.name, " for ", name(backend),
              older ? "; those of sm80 run on this GPU too" : "");
}

constexpr const char* kEmulated = "amx_emulated";

bool names_level(const Target& target) { return target.cpu_level != nullptr && *target.cpu_level != '\0'; }

/// The CPU level that is requested by name, and where; name is null if any will do.
struct ForcedLevel {
  const char* name;
  const char* where;
  const char* taken;  // the level to take: that one, or with the environment variable perhaps a lower one

  static ForcedLevel of(const Target& target) {
    if (names_level(target)) return {target.cpu_level, "cpu_level", target.cpu_level};
    const char* name = cpu::level_from_environment();
    return {name, "FALCHION_CPU", name};
  }
  bool is_of_environment() const { return name != nullptr && same(where, "FALCHION_CPU"); }
};

Status check_level(const ForcedLevel& forced) {
  if (forced.name == nullptr) return {};
  for (const cpu::Level& level : cpu::cpu_levels()) {
    if (!same(level.name, forced.name)) continue;
    if (level.usable) return {};
    return {Code::unsupported,
            text(forced.where, " = ", forced.name, ": ", level.why_not, "; usable here: ", cpu::usable_levels())};
  }
  return {Code::unsupported,
          text(forced.where, " = ", forced.name, ": there is no such CPU level; usable here: ", cpu::usable_levels())};
}

/// Plans for one GPU back end. If a variant was chosen but the grid is too large for it, that is recorded too.
Status try_gpu(Backend backend, PlanData* plan) {
  plan->variant = nullptr;
  Status status = plan->operation->plan_gpu(backend, plan);
  if (!status && plan->variant != nullptr) {
    plan->rejected.push_back(
        {text(name(backend), " ", name(plan->variant->dtype), " ", plan->variant->name()), status.why});
  }
  return status;
}

/// The GPU paths, fastest first. ok: one was taken.
Status choose_gpu(PlanData* plan) {
  const Target& target = plan->target;
  const bool hopper = target.sm == 0 || (target.sm >= 90 && target.sm < 100);  // wgmma and TMA as sm_90a has them
  Status status{Code::unsupported, "no GPU path"};
  if (target.backend == Backend::sm90 || (target.backend == Backend::best && hopper))
    status = try_gpu(Backend::sm90, plan);
  if (!status && (target.backend == Backend::sm80 || target.backend == Backend::best))
    status = try_gpu(Backend::sm80, plan);
  return status;
}

/// Whether the variant is one of the CPU for the plan's operation and types.
bool fits_on_cpu(const Variant& v, const PlanData& plan) {
  if (v.backend != Backend::cpu || !v.is(plan.operation->name)) return false;
  return std::visit([&](const auto& x) { return v.dtype == x.problem.dtype || v.dtype == dtype_on_cpu(x.problem); },
                    plan.decided);
}

/// Whether this build has a variant of a CPU level for the plan.
bool is_built_for(const PlanData& plan, const char* level) {
  const auto all = variants();
  return std::any_of(all.begin(), all.end(),
                     [&](const Variant& v) { return fits_on_cpu(v, plan) && same(v.level, level); });
}

/// FALCHION_CPU is for a whole process, and not every operation and type has a kernel of each level. So the next lower
/// level that has one is taken, which is recorded. The levels below amx_emulated are those below amx.
void go_below(ForcedLevel* forced, PlanData* plan) {
  const DType dtype = plan->operation->dtype(*plan);
  if (!forced->is_of_environment() || is_built_for(*plan, forced->name)) return;
  const char* from = same(forced->name, kEmulated) ? "amx" : forced->name;
  bool below = false;
  for (const cpu::Level& level : cpu::cpu_levels()) {
    if (below && level.usable && !same(level.name, kEmulated) && is_built_for(*plan, level.name)) {
      forced->taken = level.name;
      plan->rejected.push_back(
          {text("cpu ", forced->name, " ", name(dtype)),
           text("FALCHION_CPU = ", forced->name, " has no such kernel here; the next level below is ", level.name)});
      return;
    }
    below = below || same(level.name, from);
  }
}

std::string why_not(const Variant& listed, const ForcedLevel& forced) {
  if (forced.name != nullptr && !same(listed.level, forced.taken))
    return text("not asked for: ", forced.where, " = ", forced.name);
  if (forced.name == nullptr && same(listed.level, kEmulated))
    return "AMX tiles computed with AVX-512, for tests: only when forced";
  for (const cpu::Level& level : cpu::cpu_levels()) {
    if (same(level.name, listed.level) && !level.usable) return level.why_not;
  }
  return built(listed) == nullptr ? "this build has no such variant" : "";
}

/// The first variant that fits. A path that does not is recorded with its reason.
const Variant* choose_cpu(const ForcedLevel& forced, PlanData* plan) {
  const Operation& operation = *plan->operation;
  const DType dtype = operation.dtype(*plan);
  const auto fits = [&](const Variant& v) { return v.backend == Backend::cpu && v.is(operation.name); };
  const auto all = variants();
  if (std::none_of(all.begin(), all.end(), fits)) {
    const bool listed = is_listed_for(Backend::cpu, operation);
    plan->rejected.push_back(
        {text("cpu ", name(dtype)), listed ? "no cpu variant is built" : no_kernel(Backend::cpu, operation)});
    return nullptr;
  }
  bool known = false;
  for (const Variant& listed : listed_variants()) {
    if (!fits_on_cpu(listed, *plan)) continue;
    const std::string reason = why_not(listed, forced);
    if (reason.empty()) return built(listed);
    plan->rejected.push_back({text("cpu ", listed.level, " ", name(listed.dtype)), reason});
    known = true;
  }
  if (!known) plan->rejected.push_back({text("cpu ", name(dtype)), "no level of the CPU has a kernel of this type"});
  return nullptr;
}

Status refuse(const PlanData& plan) {
  std::string why = text("no path for ", plan.operation->name, " ", name(plan.operation->dtype(plan)));
  for (const Rejected& path : plan.rejected) why += text("; ", path.path, ": ", path.reason);
  const Operation& operation = *plan.operation;
  if (!is_listed_for(Backend::sm80, operation) && !is_listed_for(Backend::sm90, operation)) {
    const bool cpu_has_it = is_listed_for(Backend::cpu, operation) && is_gpu(plan.target.backend);
    why += cpu_has_it ? "; nearest: backend = cpu" : "; nearest: backend = ref, the definition";
  }
  return {Code::unsupported, std::move(why)};
}

/// The known properties of an architecture.
cuda::Device device_named(int sm) {
  constexpr std::pair<int, int> kSms[] = {{80, 108}, {86, 84}, {89, 128}, {90, 132}, {100, 148}, {120, 170}};
  cuda::Device device;
  device.sm = sm;
  device.sms = 108;
  for (const auto& [known, sms] : kSms) {
    if (known <= sm) device.sms = sms;
  }
  device.name = text("sm_", sm);
  const bool small = sm == 86 || sm == 89 || sm >= 120;
  device.shared_per_sm = small ? 100 << 10 : sm >= 90 ? 228 << 10 : 164 << 10;
  device.shared_per_block = device.shared_per_sm - cuda::kReservedShared;
  return device;
}

}  // namespace

Status choose_path(PlanData* plan) {
  const Target& target = plan->target;
  const bool any = target.backend == Backend::best && !names_gpu(target);
  ForcedLevel forced = ForcedLevel::of(target);

  // A level in the target requests the CPU; FALCHION_CPU only sets the level if the CPU is taken.
  const bool cpu_asked = target.backend == Backend::cpu || (any && names_level(target));
  if (!cpu_asked && target.backend != Backend::ref) {
    Status status = choose_gpu(plan);
    if (status) return status;
    plan->variant = nullptr;
    plan->backend = Backend::ref;
    if (!any) return status.code == Code::device ? status : refuse(*plan);
  }
  if (any || cpu_asked) {
    if (Status status = check_level(forced); !status) return status;
    go_below(&forced, plan);
    plan->variant = choose_cpu(forced, plan);
    plan->backend = Backend::cpu;
    plan->target.cpu_level =
        nullptr;  // the caller's string may not live as long as the plan; variant->level has the name
    if (plan->variant != nullptr) {
      plan->operation->plan_cpu(plan);
      return {};
    }
  }
  plan->backend = Backend::ref;
  const bool ref_will_do = any && forced.name == nullptr;  // a named level is taken or refused, never replaced by ref
  return ref_will_do || target.backend == Backend::ref ? Status{} : refuse(*plan);
}

Backend backend_of_host(const Operation& operation, DType dtype, const Target& target) {
  if (ForcedLevel::of(target).name != nullptr) return Backend::cpu;
  const auto usable = [](const char* name) {
    const auto& levels = cpu::cpu_levels();
    return !same(name, kEmulated) && std::any_of(levels.begin(), levels.end(), [&](const cpu::Level& level) {
      return level.usable && same(level.name, name);
    });
  };
  for (const Variant& v : variants()) {  // each call of a one-call form comes here
    if (v.backend == Backend::cpu && v.dtype == dtype && v.is(operation.name) && usable(v.level)) return Backend::cpu;
  }
  return Backend::ref;
}

Status device_for(Backend backend, PlanData* plan, cuda::Device* out) {
  const std::string path = text(name(backend), " ", name(plan->operation->dtype(*plan)));
  const auto reject = [&](Code code, const std::string& reason) {
    plan->rejected.push_back({path, reason});
    return Status{code, text(path, ": ", reason)};
  };
  const auto fits = [&](const Variant& v) { return v.backend == backend && v.is(plan->operation->name); };
  const auto listed = listed_variants(), all = variants();
  if (std::none_of(listed.begin(), listed.end(), fits))
    return reject(Code::unsupported, no_kernel(backend, *plan->operation));
  if (!plan->any_build && std::none_of(all.begin(), all.end(), fits))
    return reject(Code::unsupported,
                  "this build has no such variant (FALCHION_CUDA is off, or FALCHION_VARIANTS left it out)");
  *out = plan->target.sm == 0 ? cuda::device_at(plan->target.device) : device_named(plan->target.sm);
  if (out->sm == 0 && plan->any_build) *out = device_named(backend == Backend::sm90 ? 90 : 80);
  if (out->sm == 0) return reject(Code::device, out->why_not);
  if (out->sm < 80) return reject(Code::unsupported, text(out->name, " is sm_", out->sm, "; built: sm_80 and newer"));
  plan->gpu.all_sms = out->sms;
  if (plan->target.sms > 0) out->sms = std::min(out->sms, plan->target.sms);
  return {};
}

void set_device(const cuda::Device& device, PlanData* plan) {
  plan->gpu.device = device.name;
  plan->gpu.sm = device.sm;
  plan->gpu.sms = device.sms;
  plan->gpu.ordinal = device.ordinal;
}

int threads_wanted(const Target& target) {
  if (target.threads > 0) return target.threads;
  return target.executor.parallel_for != nullptr ? target.executor.threads : cpu::default_threads();
}

int fewest_parts(std::int64_t items, std::int64_t slots, std::int64_t most, std::int64_t waves) {
  int best = 1;
  double best_busy = 0;
  for (int parts = 1; parts <= most && best_busy < tiles::kBalance; ++parts) {
    const std::int64_t all = items * parts, rounds = ceil_div(all, slots);
    if (rounds > waves && parts > 1) break;
    const double busy = static_cast<double>(all) / static_cast<double>(rounds * slots);
    if (busy > best_busy) {
      best = parts;
      best_busy = busy;
    }
  }
  return best;
}

}  // namespace falchion
