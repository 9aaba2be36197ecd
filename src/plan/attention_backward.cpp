// src/plan/attention_backward.cpp: problem + what this machine is -> PlanData, for the backward pass of attention on
// the CPU: blocks of keys, parts, threads and memory.
#include <algorithm>
#include <cstdint>

#include "base/divide.hpp"
#include "plan/attention_backward.hpp"
#include "plan/attention_backward_launch.hpp"
#include "plan/constants.hpp"
#include "plan/paths.hpp"
#include "plan/plan_data.hpp"
#include "plan/work.hpp"

namespace falchion {
namespace {

/// Keys of a block: K, V and the sums of their gradients stay in L2 while all queries pass, and each block loads the
/// queries once more. A short sequence gets a short block.
int choose_keys(const Attention& problem, int most) {
  const std::int64_t room = std::int64_t{most} * tiles::kBackwardWidth;
  while (most * (problem.d_qk + problem.d_v) > room) most /= 2;
  return static_cast<int>(std::min<std::int64_t>(most, ceil_div(std::max<std::int64_t>(problem.s_k, 1), 32) * 32));
}

}  // namespace

void plan_attention_backward_cpu(PlanData* plan) {
  AttentionPlan& attention = plan->attention();
  const Attention& problem = attention.problem;
  const cpu::AttentionBackwardKernel& kernel = *plan->variant->kernel_as<cpu::AttentionBackwardKernel>();
  const double worth = 1 + attention_backward_flops(problem) / tiles::kFlopPerThread;
  const int threads = static_cast<int>(std::min<double>(threads_wanted(plan->target), worth));

  plan->items = problem.b * problem.h_k;
  attention.rows = kernel.tile_rows;
  attention.keys = choose_keys(problem, kernel.tile_keys);
  const auto blocks = [&] { return std::max<std::int64_t>(ceil_div(problem.s_k, attention.keys), 1); };
  while (attention.keys / 2 >= tiles::kBackwardKeys && plan->items * blocks() < threads) attention.keys /= 2;
  attention.keys = attention.keys / 32 * 32;
  const std::int64_t most = std::min<std::int64_t>(blocks(), tiles::kMaxSplits);
  attention.backward.parts = plan->items == 0 ? 1 : fewest_parts(plan->items, threads, most);
  // There is something to do without any item: gradients of what an empty axis shares are 0.
  plan->threads = static_cast<int>(std::clamp<std::int64_t>(plan->items * attention.backward.parts, 1, threads));
  attention.backward.memory = kernel.memory(to_backward_args(*plan, nullptr, nullptr));
  plan->workspace = backward_workspace(attention.backward.memory, plan->threads).total;
}

}  // namespace falchion
