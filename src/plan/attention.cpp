// src/plan/attention.cpp: problem + what this machine is -> PlanData: tiles, splits, threads and memory on the CPU. On
// the GPU: attention_gpu.cpp. Which of them: paths.cpp.
#include <algorithm>
#include <cmath>

#include "base/divide.hpp"
#include "plan/attention.hpp"
#include "plan/attention_launch.hpp"
#include "plan/constants.hpp"
#include "plan/paths.hpp"
#include "plan/plan_data.hpp"
#include "plan/work.hpp"

namespace falchion {
namespace {

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

/// Parts to cut the keys into: the fewest that keep the threads busy. 1 if some parts could have no visible key, for
/// probabilities (each part would need the sum of all), and for packed lengths (their rows are known too late).
int choose_splits(const Attention& problem, std::int64_t items, int threads) {
  const bool all_seen = problem.band.left < 0 || problem.band.left >= problem.s_k;
  if (problem.split_keys > 0)
    return static_cast<int>(std::max<std::int64_t>(ceil_div(problem.s_k, problem.split_keys), 1));
  if (problem.probabilities || problem.packed || !all_seen || items == 0) return 1;
  const std::int64_t most = std::clamp<std::int64_t>(problem.s_k / tiles::kKeysPerSplit, 1, tiles::kMaxSplits);
  return fewest_parts(items, threads, most);
}

/// Keys of a block. A short sequence gets a short block: a packed block is padded to its full length. And threads share
/// the packing by blocks, so there should be one for each thread. With split_keys the bits of a row depend on its own
/// keys alone, so a block depends on nothing but split_keys, of which it is a part.
int choose_keys(const Attention& problem, int most, int threads) {
  if (problem.split_keys > 0) {
    std::int64_t keys = std::min<std::int64_t>(most, problem.split_keys) / 32 * 32;
    while (problem.split_keys % keys != 0) keys -= 32;
    return static_cast<int>(keys);
  }
  auto keys = static_cast<int>(std::min<std::int64_t>(most, ceil_div(std::max<std::int64_t>(problem.s_k, 1), 32) * 32));
  while (keys / 2 >= tiles::kMinKeys && problem.b * problem.h_k * ceil_div(problem.s_k, keys) < threads)
    keys = keys / 64 * 32;
  return keys;
}

}  // namespace

DType attention_dtype(const PlanData& plan) { return plan.attention().problem.dtype; }

void resolve_attention(PlanData* plan) {
  Attention& problem = plan->attention().problem;
  if (problem.score.scale == 0)
    problem.score.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(problem.d_qk)));
}

void plan_attention_cpu(PlanData* plan) {
  AttentionPlan& attention = plan->attention();
  const cpu::AttentionKernel& kernel = *plan->variant->kernel_as<cpu::AttentionKernel>();
  const Attention& problem = attention.problem;
  const std::int64_t heads = problem.b * problem.h_k;
  // Packed lengths are known at run time only, s_q is a hint and may be 0: there is always some memory to work in.
  const std::int64_t longest_q = problem.packed ? std::max<std::int64_t>(problem.s_q, 1) : problem.s_q;
  const std::int64_t rows_a_head = problem.h_k == 0 ? 0 : longest_q * (problem.h_q / problem.h_k);
  const double worth = 1 + attention_flops(problem) / tiles::kFlopPerThread;
  const int threads = static_cast<int>(std::min<double>(threads_wanted(plan->target), worth));

  attention.decode = rows_a_head > 0 && rows_a_head <= tiles::kDecodeRows;
  attention.rows = attention.decode ? tiles::kDecodeRows : choose_rows(rows_a_head, heads, threads, kernel.tile_rows);
  attention.keys = choose_keys(problem, kernel.tile_keys, threads);
  const auto cut = [&](std::int64_t heads_an_item) {
    attention.heads = static_cast<int>(heads_an_item);
    plan->items = heads_an_item == 0
                      ? 0
                      : problem.b * ceil_div(problem.h_k, heads_an_item) * ceil_div(rows_a_head, attention.rows);
    attention.splits = choose_splits(problem, plan->items, threads);
  };
  // Decode reads K and V in the order of memory when one worker takes all heads of a key, so keys are split first,
  // heads only where there are too few keys for the threads.
  cut(attention.decode ? std::min<std::int64_t>(problem.h_k, tiles::kDecodeHeads) : 1);
  while (attention.heads > 1 && plan->items * attention.splits < threads) cut((attention.heads + 1) / 2);
  plan->threads = static_cast<int>(std::clamp<std::int64_t>(plan->items * attention.splits, 1, threads));
  if (plan->items == 0) return;  // nothing to compute, nothing to keep
  attention.memory = kernel.memory(to_args(*plan, nullptr, nullptr));
  attention.memory.rotated = rotated_bytes(problem);
  plan->workspace = workspace_layout(attention.memory, plan->threads).total;
}

}  // namespace falchion
