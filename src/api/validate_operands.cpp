// src/api/validate_operands.cpp: are these the tensors of that problem? Plan::run asks it at every run.
#include <cstdint>

#include "api/operand_checks.hpp"
#include "api/validate.hpp"

namespace falchion {
namespace {

void check_shapes(const Attention& a, const Operands& x, const Operand (&tensors)[10], Check* check) {
  const std::int64_t batch = a.packed ? 1 : a.b, q_rows = a.packed ? x.q.shape[1] : a.s_q,
                     k_rows = a.packed ? x.k.shape[1] : a.s_k;
  const DType bias = x.bias.dtype == DType::f32 ? DType::f32 : a.dtype;
  check_tensor(tensors[0], a.dtype, {batch, a.packed ? kAnyExtent : a.s_q, a.h_q, a.d_qk}, check);
  check_tensor(tensors[1], a.dtype, {batch, a.packed ? kAnyExtent : a.s_k, a.h_k, a.d_qk}, check);
  check_tensor(tensors[2], a.dtype, {batch, k_rows, a.h_k, a.d_v}, check);
  check_tensor(tensors[3], a.dtype, {batch, q_rows, a.h_q, a.d_v}, check);
  check_tensor(tensors[4], DType::f32, {batch, a.h_q, q_rows, 1}, check);
  check_tensor(tensors[5], DType::f32, {batch, a.h_q, q_rows, 1}, check);
  check_tensor(tensors[6], DType::f32, {a.b, a.h_q, a.s_q, a.s_k}, check);
  check_tensor(tensors[7], bias, {a.b, a.h_q, a.s_q, a.s_k}, check);
  check_tensor(tensors[8], DType::boolean, {a.b, a.h_q, a.s_q, a.s_k}, check);
  check_tensor(tensors[9], DType::f32, {x.alibi.shape[0] == 1 ? 1 : a.b, 1, a.h_q, 1}, check);
}

}  // namespace

Status validate_operands(const Attention& a, const Operands& x) {
  Check check;
  const Operand tensors[10] = {
      {.name = "q", .x = &x.q, .contiguous = true},
      {.name = "k", .x = &x.k, .contiguous = true},
      {.name = "v", .x = &x.v, .contiguous = true},
      {.name = "o", .x = &x.o, .output = true, .contiguous = true},
      {.name = "lse", .flag = "Attention::lse", .x = &x.lse, .wanted = a.lse, .output = true},
      {.name = "row_max", .flag = "Attention::row_max", .x = &x.row_max, .wanted = a.row_max, .output = true},
      {.name = "probabilities",
       .flag = "Attention::probabilities",
       .x = &x.probabilities,
       .wanted = a.probabilities,
       .output = true},
      {.name = "bias", .flag = "Attention::bias", .x = &x.bias, .wanted = a.bias, .broadcast = true},
      {.name = "mask", .flag = "Attention::mask", .x = &x.mask, .wanted = a.mask, .broadcast = true},
      {.name = "alibi", .flag = "Attention::alibi", .x = &x.alibi, .wanted = a.alibi},
  };
  check_shapes(a, x, tensors, &check);
  check_array("cu_seqlens_q", "Attention", "packed", a.packed, x.cu_seqlens_q, a.b + 1, &check);
  check_array("cu_seqlens_k", "Attention", "packed", a.packed, x.cu_seqlens_k, a.b + 1, &check);
  check_array("used_q", "Attention", "used_q", a.used_q, x.used_q, a.b, &check);
  check_array("used_k", "Attention", "used_k", a.used_k, x.used_k, a.b, &check);
  check_array("first_k", "Attention", "first_k", a.first_k, x.first_k, a.b, &check);
  if (a.dropout > 0) check_aligned("rng.at", "", x.rng.at, sizeof(std::uint64_t), &check);
  check_rows_without_sequence("q", a.packed, a.b, x.q.shape[1], &check);
  check_rows_without_sequence("k", a.packed, a.b, x.k.shape[1], &check);
  const Array arrays[] = {{"cu_seqlens_q", x.cu_seqlens_q, a.b + 1},
                          {"cu_seqlens_k", x.cu_seqlens_k, a.b + 1},
                          {"used_q", x.used_q, a.b},
                          {"used_k", x.used_k, a.b},
                          {"first_k", x.first_k, a.b},
                          {"rng.at", a.dropout > 0 ? x.rng.at : nullptr, 4}};
  if (check.ok()) check_overlaps(tensors, arrays, &check);
  return check.take();
}

}  // namespace falchion
