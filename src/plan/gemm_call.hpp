// src/plan/gemm_call.hpp: what of a GEMM every kernel is handed, on the CPU and on a GPU.
#pragma once

#include "args/gemm_call.hpp"
#include "falchion/falchion.hpp"

namespace falchion {

/// Sizes and factors.
void set_sizes(const Gemm& problem, GemmCall* call) noexcept;
/// The operands that are read and written, after the sizes. Without a product, a and b may be null and have any strides.
void set_operands(const Gemm& problem, const GemmOperands& operands, GemmCall* call) noexcept;

}  // namespace falchion
