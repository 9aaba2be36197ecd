// src/api/run.hpp: what Plan::run does for each operation, and what every run checks first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/operand_list.hpp"
#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"

namespace falchion {

/// Validates the operands and hands them over with the plan, which is one of that operation.
Status run_attention(const PlanData& plan, const Operands& operands, void* workspace, std::size_t bytes, Stream stream);
Status run_linear_attention(const PlanData& plan, const LinearOperands& operands, void* workspace, std::size_t bytes,
                            Stream stream);

/// There, large enough, aligned?
Status check_workspace(const PlanData& plan, const void* workspace, std::size_t bytes);

/// Is the current device, which the run has made current, one that was planned for, and has nothing broken its context
/// as far as is known?
Status check_device(const PlanData& plan);

/// Of an empty tensor nothing is read.
const void* data_of(const Tensor& x);
/// The answer where CUDA's driver was asked for the place of an operand and failed: that is no fault of the operand.
Status unknown_place(const char* name, std::string_view asks);
/// Does each of them lie where the plan's backend can use it? In a process that uses CUDA that is asked of its driver
/// for each pointer (some 0.2 us), for plans of the host too.
/// The workspace is asked too.
Status check_places(const PlanData& plan, const OperandList& list, const void* workspace);

/// Why the operands need a variant for unaligned ones, which this build does not have: the first tensor whose rows do
/// not begin at multiples of 16 bytes, or that TMA cannot follow, with the number that says so.
Status no_variant_for(DType dtype, std::int64_t d_qk, std::int64_t d_v, const OperandList& list);

/// What a launch returned, as a Status.
Status launched(int error);

inline bool on_gpu(const PlanData& plan) { return is_gpu(plan.backend); }

}  // namespace falchion
