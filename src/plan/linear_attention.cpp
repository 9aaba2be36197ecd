// src/plan/linear_attention.cpp: problem + what this machine is -> PlanData: threads, and how many segments a sequence
// is cut into when heads are few. On the GPU: linear_attention_gpu.cpp. Which of them: paths.cpp.
#include "plan/linear_attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/divide.hpp"
#include "plan/constants.hpp"
#include "plan/launch.hpp"
#include "plan/paths.hpp"
#include "plan/plan_data.hpp"
#include "plan/work.hpp"
#include "ref/linear_attention.hpp"

namespace falchion {
DType linear_dtype(const PlanData& plan) { return plan.linear().problem.dtype; }

std::size_t linear_ref_workspace(const PlanData& plan) {
  return ref::linear_attention_workspace(plan.linear().problem, plan.pass);
}

void resolve_linear(PlanData* plan) {
  LinearAttention& problem = plan->linear().problem;
  if (problem.scale == 0) problem.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(problem.d_qk)));
}

void plan_linear_attention_cpu(PlanData* plan) {
  LinearPlan& linear = plan->linear();
  const LinearAttention& problem = linear.problem;
  const cpu::LinearAttentionKernel& kernel = *plan->variant->kernel_as<cpu::LinearAttentionKernel>();
  const double worth = 1 + linear_attention_flops(problem, plan->pass, kernel.chunk) / tiles::kFlopPerThread;
  const std::int64_t threads = static_cast<std::int64_t>(std::min<double>(threads_wanted(plan->target), worth));
  // In the backward pass a worker has all value heads of a head of q and k, since it sums their dq and dk.
  const std::int64_t heads = problem.b * (plan->pass == Pass::forward ? problem.h_v : problem.h_qk),
                     rounds = ceil_div(heads, threads);
  plan->items = heads;
  // A segment's state is computed before it runs, half as much work again: not worth it for threads that are busy
  // anyway.
  const bool busy = static_cast<double>(heads) >= tiles::kLinearBusy * static_cast<double>(rounds * threads);
  const std::int64_t wanted = busy || heads == 0 ? 1 : ceil_div(tiles::kItemsPerThread * threads, heads);
  cut_into_segments(wanted, tiles::kLinearChunks, kernel.chunk, plan);
  plan->threads = static_cast<int>(std::clamp<std::int64_t>(heads * linear.segments, 1, threads));
  if (heads == 0) return;  // nothing to compute, nothing to keep
  const cpu::LinearMemory memory = kernel.memory(to_linear_args(*plan, nullptr, nullptr));
  linear.memory = memory;
  plan->workspace = aligned(memory.states) + aligned(memory.scratch) * static_cast<std::size_t>(plan->threads);
}

void cut_into_segments(std::int64_t wanted, std::int64_t least, int chunk, PlanData* plan) {
  LinearPlan& linear = plan->linear();
  const std::int64_t chunks = std::max<std::int64_t>(ceil_div(linear.problem.s, chunk), 1);
  if (plan->target.segments > 0) {
    wanted = plan->target.segments;
    least = 1;
  }
  const std::int64_t most = linear.problem.packed ? 1 : std::max<std::int64_t>(chunks / least, 1);
  const std::int64_t chunks_each = ceil_div(chunks, std::clamp<std::int64_t>(wanted, 1, most));
  linear.segment = chunks_each * chunk;
  linear.segments = static_cast<int>(ceil_div(chunks, chunks_each));  // none of them is empty
}

int linear_chunk(const PlanData& plan) {
  if (plan.variant == nullptr) return 64;
  if (is_gpu(plan.variant->backend)) return plan.variant->facts_as<gpu::LinearVariantFacts>().chunk;
  return plan.variant->kernel_as<cpu::LinearAttentionKernel>()->chunk;
}

}  // namespace falchion
