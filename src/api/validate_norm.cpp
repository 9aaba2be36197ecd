// src/api/validate_norm.cpp: validates a norm, and its tensors.
#include <cmath>
#include <cstdint>
#include <utility>

#include "api/operand_checks.hpp"
#include "api/sizes.hpp"
#include "api/validate.hpp"
#include "plan/norm.hpp"
#include "ref/norm_backward.hpp"

namespace falchion {
namespace {

constexpr std::int64_t kMaxRows = kMaxHeads;                  // kernels count rows in 31 bits
constexpr std::int64_t kMaxRow = kMaxSequence;                // d
constexpr std::int64_t kMaxElements = std::int64_t{1} << 60;  // of x: no tensor reaches further

bool is_built(DType x) { return x == DType::f32 || x == DType::f16 || x == DType::bf16; }

void check_norm_dtypes(const Norm& n, Check* check) {
  check->require(n.dtype != DType::as_q, "dtype = as_q (0): the type of x is unset; it must be f32, f16 or bf16");
  for (const auto& [name, dtype] :
       {std::pair{"dtype", n.dtype}, {"dtype_y", n.dtype_y}, {"dtype_residual", n.dtype_residual}}) {
    check->require(dtype <= kLastDType, name, " = ", static_cast<int>(dtype), " is no DType");
    check->require(dtype != DType::boolean, name, " = boolean: it must be f32, f16 or bf16");
    check->supported(dtype == DType::as_q || is_built(dtype), name, " = ", dtype,
                     " is not built yet; nearest: f32, f16, bf16");
  }
}

/// The caller chooses the type of weight and bias.
DType own_dtype(const Tensor& x) { return is_built(x.dtype) ? x.dtype : DType::f32; }

/// Whether the product of the first three extents of x is the problem's rows. In double, because an extent may be huge.
bool makes_rows(const Shape& x, std::int64_t rows) {
  return static_cast<double>(x[0]) * static_cast<double>(x[1]) * static_cast<double>(x[2]) == static_cast<double>(rows);
}

/// The operands of the backward pass.
void add_gradients(const Norm& n, const NormOperands& x, OperandList* list) {
  const Shape& all = x.x.shape;
  list->add(
      {.name = "x", .x = &x.x, .dtype = n.dtype, .shape = {kAnyExtent, kAnyExtent, kAnyExtent, n.d}, .moved = true});
  list->add({.name = "weight",
             .flag = "Norm::weight",
             .x = &x.weight,
             .dtype = own_dtype(x.weight),
             .shape = all,
             .wanted = n.weight,
             .broadcast = 3});
  list->add({.name = "grad_y", .x = &x.grad_y, .dtype = dtype_of_y(n), .shape = all, .moved = true});
  list->add({.name = "grad_residual_out",
             .flag = "Norm::residual_out",
             .x = &x.grad_residual_out,
             .dtype = dtype_of_residual(n),
             .shape = all,
             .wanted = n.residual_out,
             .moved = true});
  list->add({.name = "grad_x",
             .flag = "another Norm::frozen",
             .x = &x.grad_x,
             .dtype = n.dtype,
             .shape = all,
             .wanted = ref::wants_grad_x(n),
             .output = true,
             .moved = true,
             .in_place = {&x.x, &x.grad_y, &x.grad_residual_out}});
  list->add({.name = "grad_weight",
             .flag = "Norm::weight, and another Norm::frozen",
             .x = &x.grad_weight,
             .dtype = own_dtype(x.grad_weight),
             .shape = x.weight.shape,
             .wanted = ref::wants_grad_weight(n),
             .output = true});
  list->add({.name = "grad_bias",
             .flag = "Norm::bias",
             .x = &x.grad_bias,
             .dtype = own_dtype(x.grad_bias),
             .shape = all,
             .wanted = n.bias,
             .output = true,
             .broadcast = 3});
}

void check_flags_of(Pass pass, const Norm& n, Check* check) {
  if (pass == Pass::backward) {
    check->require(!n.residual, "residual with pass = backward: x is the sum, residual_out of the forward pass");
    check->require(!n.mean && !n.rstd, n.mean ? "mean" : "rstd", " with pass = backward: it is computed again from x");
    check->require(n.frozen <= 3, "frozen = ", static_cast<int>(n.frozen),
                   ": it must be 0 to 3, where 1 is grad_x and 2 is grad_weight");
    return;
  }
  check->require(n.frozen == 0, "frozen = ", static_cast<int>(n.frozen), " with pass = forward: it has no gradients");
  check->require(n.residual || !n.residual_out, "residual_out without residual: it is the sum of x and residual");
  check->require(n.kind == NormKind::layer || !n.mean, "mean with kind = rms: RMSNorm has no mean");
}

}  // namespace

Pass pass_of(const NormOperands& x) {
  return is_any_given({&x.grad_y, &x.grad_residual_out, &x.grad_x, &x.grad_weight, &x.grad_bias}) ? Pass::backward
                                                                                                  : Pass::forward;
}

OperandList operands_of(const Norm& n, Pass pass, const NormOperands& x) {
  const Shape& all = x.x.shape;
  OperandList list{"Norm", "but it must be"};
  if (pass == Pass::backward) {
    add_gradients(n, x, &list);
    return list;
  }
  const auto add = [&](const char* name, const char* flag, const Tensor& tensor, DType dtype, bool wanted) {
    list.add({.name = name, .flag = flag, .x = &tensor, .dtype = dtype, .shape = all, .wanted = wanted, .moved = true});
  };
  const auto add_factor = [&](const char* name, const char* flag, const Tensor& tensor, bool wanted) {
    list.add({.name = name,
              .flag = flag,
              .x = &tensor,
              .dtype = own_dtype(tensor),
              .shape = all,
              .wanted = wanted,
              .broadcast = 3});
  };
  const auto add_output = [&](const char* name, const char* flag, const Tensor& tensor, DType dtype, bool wanted) {
    list.add({.name = name,
              .flag = flag,
              .x = &tensor,
              .dtype = dtype,
              .shape = all,
              .wanted = wanted,
              .output = true,
              .moved = true,
              .in_place = {&x.x, &x.residual}});
  };
  const auto add_statistic = [&](const char* name, const char* flag, const Tensor& tensor, bool wanted) {
    const Shape rows{all[0], all[1], all[2], 1};
    list.add({.name = name, .flag = flag, .x = &tensor, .shape = rows, .wanted = wanted, .output = true});
  };
  list.add(
      {.name = "x", .x = &x.x, .dtype = n.dtype, .shape = {kAnyExtent, kAnyExtent, kAnyExtent, n.d}, .moved = true});
  add("residual", "Norm::residual", x.residual, dtype_of_residual(n), n.residual);
  add_factor("weight", "Norm::weight", x.weight, n.weight);
  add_factor("bias", "Norm::bias", x.bias, n.bias);
  add_output("y", "", x.y, dtype_of_y(n), true);
  add_output("residual_out", "Norm::residual_out", x.residual_out, dtype_of_residual(n), n.residual_out);
  add_statistic("mean", "Norm::mean", x.mean, n.mean);
  add_statistic("rstd", "Norm::rstd", x.rstd, n.rstd);
  return list;
}

Status validate_problem(const Norm& n, Pass pass) {
  Check check;
  check_pass(pass, &check);
  check_norm_dtypes(n, &check);
  check.require(n.kind <= NormKind::rms, "kind = ", static_cast<int>(n.kind), " is no NormKind");
  check_size("rows", n.rows, kMaxRows, &check);
  check_size("d", n.d, kMaxRow, &check);
  check.require(n.rows <= 0 || n.d <= kMaxElements / n.rows, "rows = ", n.rows, " with d = ", n.d,
                ": the elements of x are over the limit of ", kMaxElements);
  check.require(std::isfinite(n.eps) && n.eps >= 0, "eps = ", n.eps, ": it must be finite and 0 or more");
  check_flags_of(pass, n, &check);
  check.require(n.weight || !n.zero_centered, "zero_centered without weight: the factor is 1 + weight");
  return check.take();
}

Status validate_operands(const Norm& n, const NormOperands& x, const OperandList& list) {
  Check check;
  check_operands(list, &check);
  check.require(makes_rows(x.x.shape, n.rows), "x.shape = ", x.x.shape, ": its first three extents must make ", n.rows,
                " rows");
  check_overlaps(list, &check);
  return check.take();
}

}  // namespace falchion
