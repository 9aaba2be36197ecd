// src/api/validate.hpp: every precondition, once. Each refusal names the argument, its value and the limit.
#pragma once

#include "api/operand_list.hpp"
#include "falchion/falchion.hpp"

namespace falchion {

/// Whether the problem is meaningful (else invalid), and within what any backend could have (else unsupported).
Status validate_problem(const Attention& problem, Pass pass);
Status validate_problem(const LinearAttention& problem, Pass pass);
Status validate_problem(const Gemm& problem, Pass pass);
Status validate_problem(const Norm& problem, Pass pass);
Status validate_problem(const Quantise& problem, Pass pass);

/// Which pass the operands are for: backward where any of the gradients is given, by its memory or, since an empty
/// tensor may have none, by its shape.
Pass pass_of(const Operands& operands);
Pass pass_of(const LinearOperands& operands);
Pass pass_of(const NormOperands& operands);
inline Pass pass_of(const auto&) { return Pass::forward; }  // of a problem that has no other

/// What only the backward pass has must fit together.
void check_backward(const Attention& problem, Check* check);

/// Backend, thread count, executor, architecture.
Status validate_target(const Target& target);

/// Whether these are the tensors of that problem: the flags' operands and no others, shapes, dtypes, strides,
/// alignment, and outputs without overlaps. Reads no element. Allocates nothing unless it refuses. list: operands_of()
/// of them, if the caller has it already.
Status validate_operands(const Attention& problem, const Operands& operands, const OperandList& list);
Status validate_operands(const LinearAttention& problem, const LinearOperands& operands, const OperandList& list);
Status validate_operands(const Gemm& problem, const GemmOperands& operands, const OperandList& list);
Status validate_operands(const Norm& problem, const NormOperands& operands, const OperandList& list);
Status validate_operands(const Quantise& problem, const QuantiseOperands& operands, const OperandList& list);
Status validate_operands(const auto& problem, Pass pass, const auto& operands) {
  return validate_operands(problem, operands, operands_of(problem, pass, operands));
}

}  // namespace falchion
