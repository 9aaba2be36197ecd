// src/plan/explain.hpp: each operation's parts of explain(), and their common functions.
#pragma once

#include <string>

#include "plan/json.hpp"
#include "plan/plan_data.hpp"
#include "plan/story.hpp"

namespace falchion {

/// "cpu avx512"
std::string level_text(const PlanData& plan);
/// The name of a variant's tile; null of the usual one, and where there is no variant.
Json tile_json(const Variant* variant);
/// Of a plan of a GPU: what it may run, and on which operands.
void tell_choices(const PlanData& plan, Story* story);
/// "k stays whole", or how it is cut.
std::string parts_of_k(const GemmGpuCut& cut);

// For each operation: describe(); the fields of its problem under their own names; the problem, with its work; the
// decision.
std::string describe_attention(const PlanData& plan);
Json problem_facts(const Attention& problem);
Json attention_facts(const PlanData& plan);
void tell_attention_problem(const PlanData& plan, Story* story);
void tell_attention(const PlanData& plan, Story* story);
void tell_attention_backward(const PlanData& plan, Story* story);

std::string describe_linear(const PlanData& plan);
Json problem_facts(const LinearAttention& problem);
Json linear_facts_of(const PlanData& plan);
void tell_linear_problem(const PlanData& plan, Story* story);
void tell_linear(const PlanData& plan, Story* story);

std::string describe_gemm(const PlanData& plan);
Json problem_facts(const Gemm& problem);
Json gemm_facts(const PlanData& plan);
void tell_gemm_problem(const PlanData& plan, Story* story);
void tell_gemm(const PlanData& plan, Story* story);

std::string describe_norm(const PlanData& plan);
Json problem_facts(const Norm& problem);
Json norm_facts(const PlanData& plan);
void tell_norm_problem(const PlanData& plan, Story* story);
void tell_norm(const PlanData& plan, Story* story);
std::string describe_norm_backward(const PlanData& plan);
void tell_norm_backward_problem(const PlanData& plan, Story* story);
void tell_norm_backward(const PlanData& plan, Story* story);

std::string describe_quantise(const PlanData& plan);
Json problem_facts(const Quantise& problem);
Json quantise_facts(const PlanData& plan);
void tell_quantise_problem(const PlanData& plan, Story* story);
void tell_quantise(const PlanData& plan, Story* story);

}  // namespace falchion
