// src/api/validate_operands.cpp: what the operands of attention are, and whether these are the problem's. Plan::run
// asks it at every run.
#include <cstdint>

#include "api/operand_checks.hpp"
#include "api/sizes.hpp"
#include "api/validate.hpp"
#include "base/fields.hpp"

namespace falchion {

namespace {

/// What the tensors of a run must be like. Their shapes follow from the problem; of packed rows the operands say how
/// many.
class Shapes {
 public:
  Shapes(const Attention& a, const Operands& x)
      : a_(a),
        x_(x),
        b_(a.packed ? 1 : a.b),
        rows_q_(a.packed ? x.q.shape[1] : a.s_q),
        rows_k_(a.packed ? x.k.shape[1] : a.s_k) {}

  Operand operand(const OperandField& of, const Tensor& x, Pass pass, bool wanted) const {
    using F = OperandField;
    Operand out{.name = of.name, .flag = of.flag, .x = &x, .wanted = wanted};
    out.dtype = type_of(of, x);
    out.shape = shape_of(of, x);
    out.output = of.in(pass) == F::writes;
    out.broadcast = of.shape == F::scores ? 4 : 0;
    out.contiguous = of.has_rows() && of.shape != F::loose_o;
    out.moved = of.has_rows();
    return out;
  }

 private:
  DType type_of(const OperandField& of, const Tensor& x) const {
    switch (of.type) {
      case OperandField::same: return a_.dtype;
      case OperandField::f32: return DType::f32;
      case OperandField::f32_or_same: return x.dtype == DType::f32 ? DType::f32 : a_.dtype;
      case OperandField::boolean: return DType::boolean;
      case OperandField::gradient: return a_.grads == Grads::rounded ? a_.dtype : DType::f32;
    }
    return DType::f32;
  }
  Shape shape_of(const OperandField& of, const Tensor& x) const {
    const bool says = a_.packed && (&x == &x_.q || &x == &x_.k);  // how many rows there are
    switch (of.shape) {
      case OperandField::q: return {b_, says ? kAnyExtent : rows_q_, a_.h_q, a_.d_qk};
      case OperandField::k: return {b_, says ? kAnyExtent : rows_k_, a_.h_k, a_.d_qk};
      case OperandField::v: return {b_, rows_k_, a_.h_k, a_.d_v};
      case OperandField::o:
      case OperandField::loose_o: return {b_, rows_q_, a_.h_q, a_.d_v};
      case OperandField::row_numbers: return {b_, a_.h_q, rows_q_, 1};
      case OperandField::pairs:
      case OperandField::scores: return {a_.b, a_.h_q, a_.s_q, a_.s_k};
      case OperandField::head_numbers: return {x.shape[0] == 1 ? 1 : a_.b, 1, a_.h_q, 1};
    }
    return {};
  }

  const Attention& a_;
  const Operands& x_;
  const std::int64_t b_, rows_q_, rows_k_;
};

void add_arrays(const Attention& a, const Operands& x, OperandList* list) {
  const auto lengths = [&](const char* name, const char* flag, bool wanted, const std::int32_t* data, std::int64_t n) {
    list->add({.name = name, .flag = flag, .wanted = wanted, .data = data, .length = n, .element = sizeof *data});
  };
  lengths("cu_seqlens_q", "packed", a.packed, x.cu_seqlens_q, a.b + 1);
  lengths("cu_seqlens_k", "packed", a.packed, x.cu_seqlens_k, a.b + 1);
#define FALCHION_LENGTHS(key, ...) lengths(#key, #key, a.key, x.key, a.b);
#include "base/fields.def"
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

}  // namespace

OperandList operands_of(const Attention& a, Pass pass, const Operands& x) {
  OperandList list("Attention");
  const Shapes shapes(a, x);
  each_operand(a, pass, x, [&](const OperandField& of, const Tensor& tensor, bool wanted) {
    if (of.in(pass) != OperandField::neither) list.add(shapes.operand(of, tensor, pass, wanted));
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
  if (a.dropout > 0 && x.rng.origin != Rng::Origin{}) check_origin(a, x.rng.origin, &check);
  check_rows_without_sequence("q", a.packed, a.b, x.q.shape[1], &check);
  check_rows_without_sequence("k", a.packed, a.b, x.k.shape[1], &check);
  check_overlaps(list, &check);
  return check.take();
}

}  // namespace falchion
