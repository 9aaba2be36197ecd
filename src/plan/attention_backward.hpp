// src/plan/attention_backward.hpp: planning the backward pass of softmax attention, as its entry of plan/operation.hpp
// asks for it.
#pragma once

#include "plan/plan_data.hpp"

namespace falchion {

void plan_attention_backward_cpu(PlanData* plan);
Status plan_attention_backward_gpu(Backend backend, PlanData* plan);

/// Whether one kernel owns tiles of keys and adds to the sums of grad_q; else two own tiles of keys and of rows.
bool computes_pairs_once(const Variant& variant) noexcept;

/// The layout of a run's operands.
Layout backward_layout_of(const PlanData& plan, const Operands& operands) noexcept;

}  // namespace falchion
