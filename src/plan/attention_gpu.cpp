// src/plan/attention_gpu.cpp: problem + device -> row, grid, splits, workspace. Every decision about the GPU is here.
#include "plan/attention_gpu.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "gpu/runtime.hpp"
#include "plan/text.hpp"
#include "plan/tiles.hpp"
#include "sm90/attention_schedule.hpp"

namespace falchion {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
bool same(const char* a, const char* b) { return std::strcmp(a, b) == 0; }

/// The GPU to plan for: the one that is here, or what is known of the architecture that target.sm names.
gpu::Device device_for(const Target& target) {
  if (target.sm == 0) return gpu::current_device();
  constexpr std::pair<int, int> kSms[] = {{80, 108}, {86, 84}, {89, 128}, {90, 132}, {100, 148}, {120, 170}};
  gpu::Device device;
  device.sm = target.sm, device.sms = 108;
  for (const auto& [sm, sms] : kSms) {
    if (sm <= target.sm) device.sms = sms;
  }
  device.name = text("sm_", target.sm);
  const bool small = target.sm == 86 || target.sm == 89 || target.sm >= 120;
  device.shared_per_block = small ? 99 << 10 : target.sm >= 90 ? 227 << 10 : 163 << 10;
  return device;
}

/// What only the level general has.
std::string needs_general(const Attention& a) {
  if (a.bias) return "bias";
  if (a.mask) return "mask";
  if (a.dropout.p > 0) return "dropout";
  if (a.row_max) return "row_max";
  if (a.probabilities) return "probabilities";
  const std::int64_t chunk = 16 / size_of(a.dtype);
  if (a.d_qk % chunk != 0 || a.d_v % chunk != 0) return text("a head dim that is no multiple of ", chunk);
  if (!(a.score.scale > 1e-30f && a.score.scale < 1e30f)) return text("scale = ", a.score.scale);
  return "";
}

std::string why_not(const Variant& listed, const Attention& a, const gpu::Device& device) {
  if (listed.d < std::max(a.d_qk, a.d_v))
    return text("head dims up to ", listed.d, ", the problem's are ", a.d_qk, " and ", a.d_v);
  if (!same(listed.level, "general")) {
    const std::string feature = needs_general(a);
    if (!feature.empty()) return text(feature, " needs a general row of sm80");
    const char* score = a.score.softcap > 0 ? "softcap" : a.alibi ? "alibi" : nullptr;
    if (score != nullptr && !same(listed.level, "score"))
      return text(score, " needs a score row of sm90 or a general one");
  }
  // A packed problem says by its hint s_q how long its sequences are; 0 says nothing.
  const std::int64_t rows = a.packed && a.s_q == 0 ? tiles::kFewRows + 1 : a.h_k == 0 ? 0 : a.s_q * (a.h_q / a.h_k);
  if (same(listed.level, "few") && rows > tiles::kFewRows)
    return text("for at most ", tiles::kFewRows, " rows a K/V head, here are ", rows);
  if (listed.backend == Backend::sm90 && rows <= tiles::kFewRows)
    return text("for more than ", tiles::kFewRows, " rows a K/V head, here are ", rows);
  if (listed.backend == Backend::sm90 && device.sm / 10 != 9)
    return text(device.name, " is sm_", device.sm, ", this is machine code of sm_90a");
  const Variant* row = built(listed);
  if (row == nullptr) return "this build has no such row";
  if (static_cast<std::size_t>(row->gpu->shared_bytes) > device.shared_per_block) {
    return text("a CTA needs ", row->gpu->shared_bytes, " bytes of shared memory, ", device.name, " gives ",
                device.shared_per_block);
  }
  return "";
}

/// Head dims as of multi-head latent attention, 192 and 128; up to 128 both, the plain row of 128 is faster.
bool is_mla(const Attention& a) { return a.d_qk > tiles::kMlaHeadDimV && a.d_v <= tiles::kMlaHeadDimV; }

/// The first row that fits. Rows of too small a head dim go without saying where a larger one is taken.
const Variant* choose_row(Backend backend, const char* level, const gpu::Device& device, PlanData* plan) {
  for (const Variant& listed : listed_variants()) {
    if (listed.backend != backend || listed.dtype != plan->problem.dtype) continue;
    if (level != nullptr && !same(level, listed.level)) continue;
    if (listed.d < std::max(plan->problem.d_qk, plan->problem.d_v)) continue;
    if (same(listed.level, "mla") && !is_mla(plan->problem)) continue;
    const std::string reason = why_not(listed, plan->problem, device);
    if (reason.empty()) return built(listed);
    if (level != nullptr) continue;
    const std::string path = text(name(backend), " ", listed.level, " ", name(listed.dtype), " d");
    const bool again = !plan->rejected.empty() && plan->rejected.back().path.starts_with(path) &&
                       plan->rejected.back().reason == reason;  // of a larger head dim
    if (!again) plan->rejected.push_back({text(path, listed.d), reason});
  }
  return nullptr;
}

/// Few rows: the query heads of a K/V head share a tile, where that saves a tenth of the tiles. A box of TMA holds
/// whole groups.
int choose_group(Backend backend, const Attention& a, int rows) {
  if (a.h_k == 0 || a.h_q == 0) return 1;
  const std::int64_t g = a.h_q / a.h_k;
  if (backend == Backend::sm90 && rows % g != 0) return 1;
  return 10 * ceil_div(a.s_q * g, rows) <= 9 * g * ceil_div(a.s_q, rows) ? static_cast<int>(g) : 1;
}

/// Parts of the keys: the fewest that keep the device busy. A row's maximum and its probabilities need all keys at
/// once; packed rows are known too late for their partial results to have a place.
int choose_splits(const Attention& a, const gpu::AttentionKernel& kernel, std::int64_t items, std::int64_t slots) {
  if (a.packed || a.row_max || a.probabilities || items == 0) return 1;
  const bool bounded = a.band.left >= 0 && a.band.right >= 0 && a.band.left < a.s_k && a.band.right < a.s_k;
  const std::int64_t seen = bounded ? std::min(a.s_k, a.band.left + a.band.right + a.s_q) : a.s_k;
  const bool few = a.s_q * (a.h_q / a.h_k) <= tiles::kFewRows;
  const std::int64_t least = few ? std::int64_t{tiles::kKeyTilesPerSplit} * kernel.keys
                                 : std::clamp(a.s_q, tiles::kKeysPerSplit, tiles::kKeysPerSplitOfMany);
  const std::int64_t most = std::clamp<std::int64_t>(seen / least, 1, gpu::kMaxSplits);
  int best = 1;
  double best_busy = 0;
  for (int splits = 1; splits <= most && best_busy < tiles::kBalance; ++splits) {
    const std::int64_t parts = items * splits, waves = ceil_div(parts, slots);
    if (waves > tiles::kSplitWaves && splits > 1) break;  // many waves even out by themselves
    const double busy = static_cast<double>(parts) / static_cast<double>(waves * slots);
    if (busy > best_busy) best = splits, best_busy = busy;
  }
  return best;
}

/// Hopper: CTAs that walk over the tiles, so that the loads of one run under the end of the one before; 0: one CTA a
/// tile, handed out by the hardware: for long bands, and where there are too few tiles to even out their lengths.
/// pairs: under a triangle, where the lengths of tiles differ by far more than two are worth. Where only the device
/// knows how long tiles are, their number is odd: an even one would give a CTA the same tile of each sequence, over and
/// over.
void choose_walkers(std::int64_t slots, PlanData* plan) {
  const Attention& a = plan->problem;
  const std::int64_t items = plan->items * plan->splits;
  if (plan->backend != Backend::sm90 || items == 0) return;
  const bool full = a.band.left < 0 && a.band.right < 0, known = !a.packed && !a.used_k;
  const bool even = known ? a.s_k <= tiles::kWalkKeys && items > slots
                          : a.s_k > 0 && a.s_k <= tiles::kWalkUnknownKeys && items > tiles::kUnknownTiles * slots;
  if (!full && !even) return;
  plan->gpu.pairs = known && a.band.left < 0 && a.band.right >= 0 && 2 * a.s_q >= a.s_k && plan->gpu.tiles > 1;
  const auto schedule =
      sm90::Schedule::make(static_cast<int>(items), static_cast<int>(plan->gpu.tiles), plan->gpu.pairs);
  const std::int64_t ctas = known || full ? slots : slots - (slots % 2 == 0 ? 1 : 0);
  // How many tiles a packed problem has is known at run time; its hints may say too little.
  plan->gpu.walkers = static_cast<int>(a.packed ? ctas : std::min<std::int64_t>(schedule.units, ctas));
}

Status decide(const gpu::Device& device, PlanData* plan) {
  const Attention& a = plan->problem;
  const gpu::AttentionKernel& kernel = *plan->variant->gpu;
  GpuPlan& gpu = plan->gpu;
  gpu.device = device.name, gpu.sm = device.sm, gpu.sms = device.sms, gpu.ordinal = device.ordinal;
  gpu.group = choose_group(plan->backend, a, kernel.rows);
  const std::int64_t heads = a.h_q / gpu.group;
  gpu.tiles = gpu_row_tiles(a, a.packed ? a.b * a.s_q : 0, gpu.group, kernel.rows);
  const std::int64_t items = gpu.tiles * heads * (a.packed ? 1 : a.b);
  const std::int64_t slots = std::int64_t{device.sms} * kernel.ctas;
  plan->splits = choose_splits(a, kernel, items, slots);
  plan->items = items;
  plan->rows = kernel.rows, plan->keys = kernel.keys;
  const std::int64_t rows = a.b * a.s_q * a.h_q;
  if (static_cast<double>(items) * plan->splits > INT32_MAX || (a.probabilities && rows > INT32_MAX)) {
    return {Code::unsupported,
            text("b * h_q * s_q: ", items, " row tiles (", rows, " rows) are over the grid's limit of ", INT32_MAX)};
  }
  choose_walkers(slots, plan);
  // Not for a grid that leaves room on the SMs: the next kernel would be spread over what is free now, not evenly.
  gpu.early = device.sm >= 90 && items * plan->splits >= 2 * slots;
  if (plan->splits > 1) {
    gpu.partial_m_l = static_cast<std::size_t>(ceil_div(plan->splits * rows * a.d_v, 4) * 4) * sizeof(float);
    plan->workspace = gpu.partial_m_l + static_cast<std::size_t>(plan->splits * rows) * 2 * sizeof(float);
  } else if (a.probabilities && !a.lse) {
    plan->workspace = static_cast<std::size_t>(rows) * sizeof(float);  // the LSE that probabilities are made from
  }
  return {};
}

}  // namespace

std::int64_t gpu_row_tiles(const Attention& a, std::int64_t total_q, int group, int rows) {
  return a.packed ? ceil_div(total_q * group, rows) + a.b : ceil_div(a.s_q * group, rows);
}

namespace {

/// Rows of q, k, v and o begin at multiples of 16 bytes: what moves 16 bytes at a time asks for it.
bool aligned_to_16(const Attention& a, const Operands& x) noexcept {
  const std::int64_t chunk = 16 / size_of(a.dtype);
  if (a.d_qk % chunk != 0 || a.d_v % chunk != 0) return false;
  for (const Tensor* t : {&x.q, &x.k, &x.v, &x.o}) {
    if (reinterpret_cast<std::uintptr_t>(t->data) % 16 != 0) return false;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      if (t->shape[axis] > 1 && t->stride[axis] % chunk != 0) return false;
    }
  }
  return true;
}

/// What a tensor map can say beyond that: strides of a row of elements at least, below 2^40 bytes; extents below 2^32.
bool fits_tma(const Attention& a, const Operands& x) noexcept {
  const std::int64_t most = (std::int64_t{1} << 40) / size_of(a.dtype) - 1;
  for (const Tensor* t : {&x.q, &x.k, &x.v}) {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      if (t->shape[axis] > INT32_MAX) return false;
      if (t->shape[axis] > 1 && (t->stride[axis] < t->shape[3] || t->stride[axis] > most)) return false;
    }
  }
  return true;
}

}  // namespace

GpuRow gpu_row(const PlanData& plan, const Operands& x) noexcept {
  const bool aligned = aligned_to_16(plan.problem, x);
  const bool fits = aligned && (plan.variant->backend != Backend::sm90 || fits_tma(plan.problem, x));
  return {fits ? plan.variant : plan.gpu.unaligned, aligned};
}

Status plan_attention_gpu(Backend backend, PlanData* plan) {
  const std::string path = text(name(backend), " ", name(plan->problem.dtype));
  const auto reject = [&](Code code, const std::string& reason) {
    plan->rejected.push_back({path, reason});
    return Status{code, text(path, ": ", reason)};
  };
  const auto of_backend = [&](const Variant& v) { return v.backend == backend; };
  const auto listed = listed_variants(), rows = variants();
  if (std::none_of(listed.begin(), listed.end(), of_backend))
    return reject(Code::unsupported, "no row of variants.def yet: its kernels arrive in a later version");
  if (std::none_of(rows.begin(), rows.end(), of_backend))
    return reject(Code::unsupported,
                  "this build has no such row (FALCHION_CUDA is off, or FALCHION_VARIANTS left it out)");
  const gpu::Device device = device_for(plan->target);
  if (device.sm == 0) return reject(Code::device, device.why_not);
  if (device.sm < 80)
    return reject(Code::unsupported, text(device.name, " is sm_", device.sm, "; built: sm_80 and newer"));

  const std::size_t before = plan->rejected.size();
  plan->variant = choose_row(backend, nullptr, device, plan);
  if (plan->variant == nullptr) {
    if (plan->rejected.size() == before) plan->rejected.push_back({path, "no row of this type"});
    return {Code::unsupported, text("no ", path, " row fits: ", plan->rejected.back().reason)};
  }
  plan->backend = backend;
  plan->gpu.unaligned =
      same(plan->variant->level, "general") ? plan->variant : choose_row(Backend::sm80, "general", device, plan);
  Status status = decide(device, plan);
  if (!status) plan->rejected.push_back({text(path, " ", plan->variant->level), status.why});
  return status;
}

}  // namespace falchion
