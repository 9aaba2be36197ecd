// src/plan/attention.hpp: planning softmax attention, as the entries of plan/operation.hpp ask for it.
#pragma once

#include "plan/plan_data.hpp"

namespace falchion {

// Operation's dtype, resolve, plan_cpu and plan_gpu.
DType attention_dtype(const PlanData& plan);
void resolve_attention(PlanData* plan);
void plan_attention_cpu(PlanData* plan);
Status plan_attention_gpu(Backend backend, PlanData* plan);

/// Tiles of `rows` rows that one head (group) is cut into; packed: an upper bound for total_q rows.
std::int64_t gpu_row_tiles(const Attention& problem, std::int64_t total_q, int group, int rows);

/// Query heads (groups) that are processed side by side if tiles are drawn from a counter: those whose K and V have at
/// most `most` bytes together, and at least those of one K/V head. total_k: the keys of all packed sequences.
std::int64_t gpu_section(const Attention& problem, std::int64_t total_k, int group, std::int64_t most_bytes);

/// The layout of a run's operands.
Layout layout_of(const PlanData& plan, const Operands& operands) noexcept;

}  // namespace falchion
