// src/api/validate_operands.cpp: lists the operands of attention, and validates them. Plan::run calls it at every run.
#include <cstdint>

#include "api/operand_checks.hpp"
#include "api/sizes.hpp"
#include "api/validate.hpp"
#include "base/divide.hpp"
#include "base/size.hpp"

namespace falchion {

namespace {

DType type_of(const Attention& a, const OperandField& of, const Tensor& x) {
  switch (of.type) {
    case OperandField::same: return a.dtype;
    case OperandField::as_k: return dtype_of_k(a);
    case OperandField::as_v: return dtype_of_v(a);
    case OperandField::as_o: return dtype_of_o(a);
    case OperandField::f32: return DType::f32;
    case OperandField::f32_or_same: return x.dtype == DType::f32 ? DType::f32 : a.dtype;
    case OperandField::boolean: return DType::boolean;
    case OperandField::gradient: return a.grads == Grads::rounded ? a.dtype : DType::f32;
    case OperandField::i32: return DType::i32;
  }
  return DType::f32;
}

/// What the problem says of an operand.
Operand described(const Attention& a, Pass pass, const Operands& x, const OperandField& of, const Tensor& tensor) {
  Operand out{.name = of.name, .flag = of.flag, .x = &tensor, .dtype = type_of(a, of, tensor)};
  out.shape = shape_of(a, x, of);
  const bool packed_k = a.packed && !a.cache;
  if ((a.packed && &tensor == &x.q) || (packed_k && &tensor == &x.k)) out.shape[1] = kAnyExtent;  // how many rows
  if (a.page_size > 0 && &tensor == &x.k) out.shape[0] = kAnyExtent;                              // how many pages
  if (of.shape == OperandField::page_table || of.shape == OperandField::rotary) out.shape[1] = kAnyExtent;
  if (of.shape == OperandField::head_numbers && tensor.shape[0] == 1) out.shape[0] = 1;
  const bool appended = a.append && (&tensor == &x.k || &tensor == &x.v);
  out.output = of.in(pass) == OperandField::writes || appended;
  const bool scales = of.shape == OperandField::key_numbers || of.shape == OperandField::query_numbers;
  out.broadcast = of.shape == OperandField::scores ? 4 : scales ? 3 : 0;
  out.contiguous = of.has_rows() && of.shape != OperandField::loose_o;
  out.moved = of.has_rows();
  return out;
}

void add_arrays(const Attention& a, const Operands& x, OperandList* list) {
  const auto lengths = [&](const char* name, const char* flag, bool wanted, const std::int32_t* data, std::int64_t n) {
    list->add({.name = name, .flag = flag, .wanted = wanted, .data = data, .length = n, .element = sizeof *data});
  };
  lengths("cu_seqlens_q", "packed", a.packed, x.cu_seqlens_q, a.b + 1);
  lengths("cu_seqlens_k", a.cache ? "packed without cache" : "packed", a.packed && !a.cache, x.cu_seqlens_k, a.b + 1);
#define FALCHION_LENGTHS(key, ...) lengths(#key, #key, a.key, x.key, a.b);
#include "base/fields.def"
  list->add({.name = "page_starts",
             .flag = "page_size",
             .wanted = a.page_size > 0,
             .required = a.page_size == 0,  // each sequence may have a row of the table instead
             .data = x.page_starts,
             .length = a.b + 1,
             .element = sizeof *x.page_starts});
  list->add({.name = "rng.at",
             .flag = "dropout",
             .wanted = a.dropout > 0,
             .required = false,
             .data = x.rng.at,
             .length = 2,
             .element = sizeof *x.rng.at});
}

/// The counter of dropout has 32 bits for each of these, and four keys share one draw.
void check_origin(const Attention& a, const Rng::Origin& origin, Check* check) {
  constexpr std::int64_t kMost = std::int64_t{1} << 32;
  const auto in_range = [&](const char* name, std::int64_t x, std::int64_t most) {
    return check->require(0 <= x && x <= most, "rng.origin.", name, " = ", x, ": it must be in [0, ", most, "]");
  };
  const std::int64_t heads = origin.h_q == 0 ? a.h_q : origin.h_q;
  if (!in_range("h_q", origin.h_q, kMaxHeads) || !in_range("h", origin.h, kMost) || !in_range("b", origin.b, kMost) ||
      !in_range("i", origin.i, kMost - a.s_q) || !in_range("j", origin.j, kMost - a.s_k))
    return;
  check->require(origin.j % 4 == 0, "rng.origin.j = ", origin.j, ": it must be a multiple of 4");
  check->require(origin.h + a.h_q <= heads, "rng.origin.h + h_q = ", origin.h, " + ", a.h_q,
                 " is over rng.origin.h_q = ", heads, ", the query heads of the larger problem");
  check->require(heads == 0 || origin.b <= kMost / heads - a.b, "(rng.origin.b + b) * rng.origin.h_q = (", origin.b,
                 " + ", a.b, ") * ", heads, " is over the limit of ", kMost);
}

/// How many scales of k or v a batch entry of so many rows has, where each key could have its own. With blocks of
/// packed keys there is one more for each sequence, as many as they can take.
std::int64_t scales_of_keys(const Attention& a, const OperandField& of, std::int64_t rows) {
  if (is_8bit(a.dtype) && &of == operand_named("v_scale")) return 1;
  if (a.k_scale_rows <= 1) return rows;
  return a.packed ? rows / a.k_scale_rows + a.b : ceil_div(rows, a.k_scale_rows);
}

/// With q of 8 bits all keys share a scale of k, or blocks of them do.
void check_shared_scale(const Attention& a, const Tensor& x, Check* check) {
  if (!is_8bit(a.dtype) || !a.k_scale || a.k_scale_rows > 1) return;
  check->supported(x.shape[1] <= 1 || x.stride[1] == 0, "k_scale.shape[1] = ", x.shape[1],
                   " with k_scale.stride[1] = ", x.stride[1], " and k_scale_rows = ", a.k_scale_rows,
                   ": with q of 8 bits all keys share a scale (extent 1 or stride 0), or blocks of k_scale_rows do");
}

}  // namespace

Shape shape_of(const Attention& a, const Operands& x, const OperandField& of) {
  const bool packed_k = a.packed && !a.cache;
  const std::int64_t b = a.packed ? 1 : a.b, b_k = a.page_size > 0 ? x.k.shape[0] : packed_k ? 1 : a.b;
  const std::int64_t rows_q = a.packed ? x.q.shape[1] : a.s_q;
  const std::int64_t rows_k = a.page_size > 0 ? a.page_size : packed_k ? x.k.shape[1] : a.s_k;
  switch (of.shape) {
    case OperandField::q: return {b, rows_q, a.h_q, a.d_qk};
    case OperandField::k: return {b_k, rows_k, a.h_k, a.d_qk};
    case OperandField::v: return {b_k, rows_k, a.h_k, a.d_v};
    case OperandField::k_new: return {b, rows_q, a.h_k, a.d_qk};
    case OperandField::v_new: return {b, rows_q, a.h_k, a.d_v};
    case OperandField::o:
    case OperandField::loose_o: return {b, rows_q, a.h_q, a.d_v};
    case OperandField::row_numbers: return {b, a.h_q, rows_q, 1};
    case OperandField::pairs:
    case OperandField::scores: return {a.b, a.h_q, a.s_q, a.s_k};
    case OperandField::head_numbers: return {a.b, 1, a.h_q, 1};
    case OperandField::page_table: return {x.page_starts != nullptr ? 1 : a.b, x.page_table.shape[1], 1, 1};
    case OperandField::rotary: return {1, x.rotary.shape[1], 2, a.rotary_dim / 2};
    case OperandField::key_numbers: return {b_k, scales_of_keys(a, of, rows_k), a.h_k, 1};
    case OperandField::query_numbers: return {b, rows_q, a.h_q, 1};
  }
  return {};
}

OperandList operands_of(const Attention& a, Pass pass, const Operands& x) {
  OperandList list("Attention");
  each_operand(a, pass, x, [&](const OperandField& of, const Tensor& tensor, bool wanted) {
    if (of.in(pass) == OperandField::neither) return;
    Operand operand = described(a, pass, x, of, tensor);
    operand.wanted = wanted;
    list.add(operand);
  });
  add_arrays(a, x, &list);
  return list;
}

Pass pass_of(const Operands& x) {
  bool backward = false;
  each_operand({}, Pass::backward, x, [&](const OperandField& of, const Tensor& tensor, bool) {
    backward = backward || (of.forward == OperandField::neither && is_given(tensor));
  });
  return backward ? Pass::backward : Pass::forward;
}

Status validate_operands(const Attention& a, const Operands& x, const OperandList& list) {
  Check check;
  check_operands(list, &check);
  check.require(a.rotary_dim == 0 || x.rotary.shape[1] > 0, "rotary.shape[1] = 0: it needs a row for each position");
  if (a.dropout > 0 && x.rng.origin != Rng::Origin{}) check_origin(a, x.rng.origin, &check);
  check_shared_scale(a, x.k_scale, &check);
  check_rows_without_sequence("q", a.packed, a.b, x.q.shape[1], &check);
  check_rows_without_sequence("k", a.packed && !a.cache, a.b, x.k.shape[1], &check);
  check_overlaps(list, &check);
  return check.take();
}

}  // namespace falchion
