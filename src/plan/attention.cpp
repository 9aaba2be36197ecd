// src/plan/attention.cpp: problem + what this machine is -> PlanData. Every decision about attention is taken here.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/levels.hpp"
#include "cpu/threads.hpp"
#include "plan/attention_gpu.hpp"
#include "plan/attention_launch.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "plan/tiles.hpp"
#include "plan/work.hpp"

namespace falchion {
namespace {

constexpr const char* kOp = "attention_forward";

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
bool same(const char* a, const char* b) { return std::strcmp(a, b) == 0; }

// ---- which path -----------------------------------------------------------------------------------------------------

/// The CPU level that is asked for by name, and where it was asked; name is null when any will do.
struct ForcedLevel {
  const char* name;
  const char* where;

  static ForcedLevel of(const Target& target) {
    if (target.cpu_level != nullptr && *target.cpu_level != '\0') return {target.cpu_level, "cpu_level"};
    return {cpu::level_from_environment(), "FALCHION_CPU"};
  }
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

/// The GPU paths, fastest first. ok: one was taken.
Status choose_gpu(PlanData* plan) {
  const Target& target = plan->target;
  const bool hopper = target.sm == 0 || (target.sm >= 90 && target.sm < 100);  // wgmma and TMA as sm_90a has them
  Status status{Code::unsupported, "no GPU path"};
  if (target.backend == Backend::sm90 || (target.backend == Backend::best && hopper))
    status = plan_attention_gpu(Backend::sm90, plan);
  if (!status && (target.backend == Backend::sm80 || target.backend == Backend::best))
    status = plan_attention_gpu(Backend::sm80, plan);
  return status;
}

std::string why_not(const Variant& listed, const ForcedLevel& forced) {
  if (forced.name != nullptr && !same(listed.level, forced.name))
    return text("not asked for: ", forced.where, " = ", forced.name);
  if (forced.name == nullptr && same(listed.level, "amx_emulated"))
    return "AMX tiles computed with AVX-512, for tests: only when forced";
  for (const cpu::Level& level : cpu::cpu_levels()) {
    if (same(level.name, listed.level) && !level.usable) return level.why_not;
  }
  return built(listed) == nullptr ? "this build has no such row" : "";
}

/// The first row that fits. A path that does not is recorded with its reason.
const Variant* choose_cpu(const ForcedLevel& forced, PlanData* plan) {
  if (variants().empty()) plan->rejected.push_back({text("cpu ", name(plan->problem.dtype)), "no cpu row is built"});
  for (const Variant& listed : listed_variants()) {
    if (variants().empty() || listed.backend != Backend::cpu || listed.dtype != plan->problem.dtype ||
        !same(listed.op, kOp))
      continue;
    if (listed.d != 0 && (listed.d != plan->problem.d_qk || listed.d != plan->problem.d_v)) continue;
    const std::string reason = why_not(listed, forced);
    if (reason.empty()) return built(listed);
    plan->rejected.push_back({text("cpu ", listed.level, " ", name(listed.dtype)), reason});
  }
  return nullptr;
}

Status refuse(const PlanData& plan) {
  std::string why = text("no path for ", kOp, " ", name(plan.problem.dtype));
  for (const Rejected& path : plan.rejected) why += text("; ", path.path, ": ", path.reason);
  return {Code::unsupported, std::move(why)};
}

// ---- how: tiles, splits, threads, memory ----------------------------------------------------------------------------

int threads_wanted(const Target& target) {
  if (target.threads > 0) return target.threads;
  return target.executor.parallel_for != nullptr ? target.executor.threads : cpu::default_threads();
}

/// Rows of a work item: as many as the L2 holds, halved while threads would get too few items.
int choose_rows(std::int64_t rows_a_head, std::int64_t heads, int threads, int tile) {
  const auto whole_tiles = [tile](std::int64_t rows) { return static_cast<int>(ceil_div(rows, tile) * tile); };
  int rows = whole_tiles(std::clamp<std::int64_t>(rows_a_head, 1, std::max(tile, tiles::kMaxRows / tile * tile)));
  while (rows / 2 >= tiles::kMinRows &&
         heads * ceil_div(rows_a_head, rows) < std::int64_t{tiles::kItemsPerThread} * threads) {
    rows = whole_tiles(rows / 2);
  }
  return rows;
}

/// Parts to cut the keys into: the fewest that keep the threads busy. Not where some parts could have no key to see,
/// nor for probabilities (each part would need the sum of all), nor for packed lengths (their rows are known too late).
int choose_splits(const Attention& problem, std::int64_t items, int threads) {
  const bool all_seen = problem.band.left < 0 || problem.band.left >= problem.s_k;
  if (problem.probabilities || problem.packed || !all_seen || items == 0) return 1;
  const std::int64_t most = std::clamp<std::int64_t>(problem.s_k / tiles::kKeysPerSplit, 1, tiles::kMaxSplits);
  int best = 1;
  double best_busy = 0;
  for (int splits = 1; splits <= most && best_busy < tiles::kBalance; ++splits) {
    const std::int64_t parts = items * splits, rounds = ceil_div(parts, threads);
    const double busy = static_cast<double>(parts) / static_cast<double>(rounds * threads);
    if (busy > best_busy) best = splits, best_busy = busy;
  }
  return best;
}

void decide(const cpu::AttentionKernel& kernel, PlanData* plan) {
  const Attention& problem = plan->problem;
  const std::int64_t heads = problem.b * problem.h_k;
  // Packed lengths are known at run time only, s_q is a hint and may be 0: there is always some memory to work in.
  const std::int64_t longest_q = problem.packed ? std::max<std::int64_t>(problem.s_q, 1) : problem.s_q;
  const std::int64_t rows_a_head = problem.h_k == 0 ? 0 : longest_q * (problem.h_q / problem.h_k);
  const double worth = 1 + attention_flops(problem) / tiles::kFlopPerThread;
  const int threads = static_cast<int>(std::min<double>(threads_wanted(plan->target), worth));

  plan->decode = rows_a_head > 0 && rows_a_head <= tiles::kDecodeRows;
  plan->rows = plan->decode ? tiles::kDecodeRows : choose_rows(rows_a_head, heads, threads, kernel.tile_rows);
  // A short sequence gets a short block: a packed block is padded to its full length. And blocks are what threads share
  // the packing by, so there should be one for each.
  plan->keys = static_cast<int>(
      std::min<std::int64_t>(kernel.tile_keys, ceil_div(std::max<std::int64_t>(problem.s_k, 1), 32) * 32));
  while (plan->keys / 2 >= tiles::kMinKeys && problem.b * problem.h_k * ceil_div(problem.s_k, plan->keys) < threads)
    plan->keys = plan->keys / 64 * 32;
  const auto cut = [&](std::int64_t heads_an_item) {
    plan->heads = static_cast<int>(heads_an_item);
    plan->items =
        heads_an_item == 0 ? 0 : problem.b * ceil_div(problem.h_k, heads_an_item) * ceil_div(rows_a_head, plan->rows);
    plan->splits = choose_splits(problem, plan->items, threads);
  };
  // Decode reads K and V in the order of memory when one worker takes all heads of a key, so keys are split first,
  // heads only where there are too few keys for the threads.
  cut(plan->decode ? std::min<std::int64_t>(problem.h_k, tiles::kDecodeHeads) : 1);
  while (plan->heads > 1 && plan->items * plan->splits < threads) cut((plan->heads + 1) / 2);
  plan->threads = static_cast<int>(std::clamp<std::int64_t>(plan->items * plan->splits, 1, threads));
  if (plan->items == 0) return;  // nothing to compute, nothing to keep
  plan->memory = kernel.memory(to_args(*plan, nullptr, nullptr));
  plan->workspace = workspace_layout(plan->memory, plan->threads).total;
}

}  // namespace

Status plan_attention(const Attention& problem, Pass pass, const Target& target, PlanData* out) {
  *out = PlanData{};
  out->problem = problem, out->pass = pass, out->target = target;
  if (problem.score.scale == 0)
    out->problem.score.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(problem.d_qk)));
  const bool any = target.backend == Backend::best && target.sm == 0;
  const ForcedLevel forced = ForcedLevel::of(target);

  const bool cpu_asked = target.backend == Backend::cpu || (any && forced.name != nullptr);
  if (!cpu_asked && target.backend != Backend::ref) {
    Status status = choose_gpu(out);
    if (status) return status;
    out->variant = nullptr, out->backend = Backend::ref;
    if (!any) return status.code == Code::device ? status : refuse(*out);
  }
  if (any || cpu_asked) {
    if (Status status = check_level(forced); !status) return status;
    out->variant = choose_cpu(forced, out);
    out->backend = Backend::cpu;
    out->target.cpu_level = nullptr;  // the caller's string need not live as long as the plan: variant->level says it
    if (out->variant != nullptr) return decide(*out->variant->cpu, out), Status{};
  }
  out->backend = Backend::ref;
  return (any && !cpu_asked) || target.backend == Backend::ref ? Status{} : refuse(*out);
}

}  // namespace falchion
