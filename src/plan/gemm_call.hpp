// src/plan/gemm_call.hpp: the arguments that all kernels of GEMM share, on the CPU and on a GPU.
#pragma once

#include "args/gemm_call.hpp"
#include "falchion/falchion.hpp"

namespace falchion {

/// The problem with the batch as rows of one matrix.
Gemm merged(Gemm problem);

/// Sizes and factors only.
void set_sizes(const Gemm& problem, GemmCall* call) noexcept;
/// All fields, for the operands of a run. Returns whether their batch is rows of one matrix; then the call is that of
/// merged(problem).
bool set_call(const Gemm& problem, const GemmOperands& operands, GemmCall* call) noexcept;

}  // namespace falchion
