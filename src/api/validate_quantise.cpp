// src/api/validate_quantise.cpp: validates a problem of Quantise, and its tensors.
#include <cstdint>

#include "api/sizes.hpp"
#include "api/validate.hpp"
#include "plan/quantise.hpp"

namespace falchion {
namespace {

void check_quantise_dtypes(const Quantise& q, Check* check) {
  check->require(q.dtype != DType::as_q, "dtype = as_q (0): the type of x is unset; it must be f32, f16 or bf16");
  check->require(q.dtype <= kLastDType, "dtype = ", static_cast<int>(q.dtype), " is no DType");
  check->require(q.dtype_y <= kLastDType, "dtype_y = ", static_cast<int>(q.dtype_y), " is no DType");
  if (!check->ok()) return;
  check->require(q.dtype == DType::f32 || q.dtype == DType::f16 || q.dtype == DType::bf16, "dtype = ", q.dtype,
                 ": x must be f32, f16 or bf16");
  check->require(q.dtype_y == DType::e4m3 || q.dtype_y == DType::i8, "dtype_y = ", q.dtype_y, ": y must be e4m3 or i8");
}

}  // namespace

OperandList operands_of(const Quantise& q, Pass, const QuantiseOperands& x) {
  const Shape all{q.b, q.s, q.h, q.d};
  OperandList list{"Quantise"};
  list.add({.name = "x", .x = &x.x, .dtype = q.dtype, .shape = all, .moved = true});
  list.add({.name = "mean",
            .flag = "Quantise::smooth",
            .x = &x.mean,
            .shape = {q.b, 1, q.h, q.d},
            .wanted = q.smooth,
            .output = !q.mean_given,
            .broadcast = q.mean_given ? 3U : 0U,
            .moved = true});
  list.add({.name = "scale",
            .x = &x.scale,
            .shape = {q.b, blocks_of(q), q.h, 1},
            .output = !q.scale_given,
            .broadcast = q.scale_given ? 3U : 0U});
  list.add({.name = "y", .x = &x.y, .dtype = q.dtype_y, .shape = all, .output = true, .moved = true});
  return list;
}

Status validate_problem(const Quantise& q, Pass pass) {
  Check check;
  check.require(pass == Pass::forward, "pass = ", static_cast<int>(pass), ": Quantise has no other pass than forward");
  check_quantise_dtypes(q, &check);
  check_size("b", q.b, kMaxHeads, &check);
  check_size("s", q.s, kMaxSequence, &check);
  check_size("h", q.h, kMaxHeads, &check);
  check_head_dim("d", q.d, &check);
  check_size("rows", q.rows, kMaxSequence, &check);
  const double all = static_cast<double>(q.b) * static_cast<double>(q.s) * static_cast<double>(q.h);
  check.require(all <= static_cast<double>(kMaxHeads), "b * s * h = ", q.b, " * ", q.s, " * ", q.h,
                " is over the limit of ", kMaxHeads);
  check.require(!q.scale_given || !q.powers_of_two, "powers_of_two with scale_given: a scale that is given stays");
  check.require(q.smooth || !q.mean_given, "mean_given without smooth: smooth subtracts the mean");
  return check.take();
}

Status validate_operands(const Quantise&, const QuantiseOperands&, const OperandList& list) {
  Check check;
  check_operands(list, &check);
  check_overlaps(list, &check);
  return check.take();
}

}  // namespace falchion
