// src/api/validate_operands.cpp: what the operands of attention are, and whether these are the problem's. Plan::run
// asks it at every run.
#include <cstdint>

#include "api/operand_checks.hpp"
#include "api/validate.hpp"

namespace falchion {

OperandList operands_of(const Attention& a, const Operands& x) {
  const std::int64_t batch = a.packed ? 1 : a.b;
  const std::int64_t q_rows = a.packed ? x.q.shape[1] : a.s_q, k_rows = a.packed ? x.k.shape[1] : a.s_k;
  const Shape scores{a.b, a.h_q, a.s_q, a.s_k}, statistics{batch, a.h_q, q_rows, 1};
  OperandList list("Attention");
  list.add({.name = "q",
            .x = &x.q,
            .dtype = a.dtype,
            .shape = {batch, a.packed ? kAnyExtent : a.s_q, a.h_q, a.d_qk},
            .contiguous = true,
            .moved = true});
  list.add({.name = "k",
            .x = &x.k,
            .dtype = a.dtype,
            .shape = {batch, a.packed ? kAnyExtent : a.s_k, a.h_k, a.d_qk},
            .contiguous = true,
            .moved = true});
  list.add({.name = "v",
            .x = &x.v,
            .dtype = a.dtype,
            .shape = {batch, k_rows, a.h_k, a.d_v},
            .contiguous = true,
            .moved = true});
  list.add({.name = "o",
            .x = &x.o,
            .dtype = a.dtype,
            .shape = {batch, q_rows, a.h_q, a.d_v},
            .output = true,
            .contiguous = true,
            .moved = true});
  list.add(
      {.name = "lse", .flag = "Attention::lse", .x = &x.lse, .shape = statistics, .wanted = a.lse, .output = true});
  list.add({.name = "row_max",
            .flag = "Attention::row_max",
            .x = &x.row_max,
            .shape = statistics,
            .wanted = a.row_max,
            .output = true});
  list.add({.name = "probabilities",
            .flag = "Attention::probabilities",
            .x = &x.probabilities,
            .shape = scores,
            .wanted = a.probabilities,
            .output = true});
  list.add({.name = "bias",
            .flag = "Attention::bias",
            .x = &x.bias,
            .dtype = x.bias.dtype == DType::f32 ? DType::f32 : a.dtype,
            .shape = scores,
            .wanted = a.bias,
            .broadcast = true});
  list.add({.name = "mask",
            .flag = "Attention::mask",
            .x = &x.mask,
            .dtype = DType::boolean,
            .shape = scores,
            .wanted = a.mask,
            .broadcast = true});
  list.add({.name = "alibi",
            .flag = "Attention::alibi",
            .x = &x.alibi,
            .shape = {x.alibi.shape[0] == 1 ? 1 : a.b, 1, a.h_q, 1},
            .wanted = a.alibi});
  const auto lengths = [&](const char* name, const char* flag, bool wanted, const std::int32_t* data, std::int64_t n) {
    list.add({.name = name, .flag = flag, .wanted = wanted, .data = data, .length = n, .element = sizeof *data});
  };
  lengths("cu_seqlens_q", "packed", a.packed, x.cu_seqlens_q, a.b + 1);
  lengths("cu_seqlens_k", "packed", a.packed, x.cu_seqlens_k, a.b + 1);
  lengths("used_q", "used_q", a.used_q, x.used_q, a.b);
  lengths("used_k", "used_k", a.used_k, x.used_k, a.b);
  lengths("first_k", "first_k", a.first_k, x.first_k, a.b);
  list.add({.name = "rng.at",
            .flag = "dropout",
            .wanted = a.dropout > 0,
            .required = false,
            .data = x.rng.at,
            .length = 2,
            .element = sizeof *x.rng.at});
  return list;
}

Status validate_operands(const Attention& a, const Operands& x, const OperandList& list) {
  Check check;
  check_operands(list, &check);
  check_rows_without_sequence("q", a.packed, a.b, x.q.shape[1], &check);
  check_rows_without_sequence("k", a.packed, a.b, x.k.shape[1], &check);
  check_overlaps(list, &check);
  return check.take();
}
Status validate_operands(const Attention& a, const Operands& x) { return validate_operands(a, x, operands_of(a, x)); }

}  // namespace falchion
