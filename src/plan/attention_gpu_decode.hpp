// src/plan/attention_gpu_decode.hpp: what Hopper's forward kernel for few query rows takes, and its grid.
#pragma once

#include <cstdint>
#include <string>

#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"
#include "runtime/runtime.hpp"

namespace falchion {

bool is_decode_of_hopper(const Variant& variant);
/// rows: query rows for each K/V head.
std::string why_not_decode(const Variant& listed, const Attention& a, std::int64_t rows);
void decide_decode_grid(const cuda::Device& device, std::int64_t rows, PlanData* plan);
/// The facts of a variant, for a launch with the plan's rows.
gpu::AttentionFacts decode_facts(const PlanData& plan);
/// What the workspace of a problem with split_keys has: a place for each part.
std::size_t decode_parts_bytes(const PlanData& plan);

}  // namespace falchion
