// src/api/validate_operands.cpp: what the operands of attention are, and whether these are the problem's. Plan::run
// asks it at every run.
#include <cstdint>

#include "api/operand_checks.hpp"
#include "api/sizes.hpp"
#include "api/validate.hpp"

namespace falchion {

namespace {

/// Adds the operands of attention to a list. Their shapes follow from the problem.
class AttentionLister {
 public:
  AttentionLister(const Attention& a, const Operands& x, OperandList* list)
      : list_(*list),
        a_(a),
        x_(x),
        q_{a.packed ? 1 : a.b, a.packed ? x.q.shape[1] : a.s_q, a.h_q, a.d_qk},
        k_{q_[0], a.packed ? x.k.shape[1] : a.s_k, a.h_k, a.d_qk},
        v_{q_[0], k_[1], a.h_k, a.d_v},
        o_{q_[0], q_[1], a.h_q, a.d_v},
        statistics_{q_[0], a.h_q, q_[1], 1} {}

  void add_inputs() {
    Shape q = q_, k = k_;
    if (a_.packed) q[1] = k[1] = kAnyExtent;
    add_rows("q", x_.q, q);
    add_rows("k", x_.k, k);
    add_rows("v", x_.v, v_);
  }
  void add_outputs() {
    Operand o = rows("o", x_.o, o_);
    o.output = true;
    list_.add(o);
    add_statistic("lse", "Attention::lse", x_.lse, a_.lse);
    add_statistic("row_max", "Attention::row_max", x_.row_max, a_.row_max);
    list_.add({.name = "probabilities",
               .flag = "Attention::probabilities",
               .x = &x_.probabilities,
               .shape = scores(),
               .wanted = a_.probabilities,
               .output = true});
  }
  void add_score_operands() {
    list_.add({.name = "bias",
               .flag = "Attention::bias",
               .x = &x_.bias,
               .dtype = x_.bias.dtype == DType::f32 ? DType::f32 : a_.dtype,
               .shape = scores(),
               .wanted = a_.bias,
               .broadcast = 4});
    list_.add({.name = "mask",
               .flag = "Attention::mask",
               .x = &x_.mask,
               .dtype = DType::boolean,
               .shape = scores(),
               .wanted = a_.mask,
               .broadcast = 4});
    list_.add(
        {.name = "alibi", .flag = "Attention::alibi", .x = &x_.alibi, .shape = slopes(x_.alibi), .wanted = a_.alibi});
  }
  /// What the backward pass has beside q, k, v and what makes scores. o and lse are inputs there.
  void add_gradients() {
    add_rows("o", x_.o, o_);
    list_.add({.name = "lse", .x = &x_.lse, .shape = statistics_});
    list_.add({.name = "grad_o", .x = &x_.grad_o, .dtype = a_.dtype, .shape = o_, .moved = true});
    list_.add({.name = "grad_lse",
               .flag = "Attention::grad_lse",
               .x = &x_.grad_lse,
               .shape = statistics_,
               .wanted = a_.grad_lse});
    const bool no_q = (a_.frozen & 1) != 0, no_kv = (a_.frozen & 2) != 0;
    add_gradient("grad_q", "Attention::frozen to 0 or 2", x_.grad_q, q_, !no_q);
    add_gradient("grad_k", "Attention::frozen to 0 or 1", x_.grad_k, k_, !no_kv);
    add_gradient("grad_v", "Attention::frozen to 0 or 1", x_.grad_v, v_, !no_kv);
    list_.add({.name = "grad_bias",
               .flag = "Attention::grad_bias",
               .x = &x_.grad_bias,
               .shape = scores(),
               .wanted = a_.grad_bias,
               .output = true,
               .broadcast = 4});
    list_.add({.name = "grad_alibi",
               .flag = "Attention::grad_alibi",
               .x = &x_.grad_alibi,
               .shape = slopes(x_.grad_alibi),
               .wanted = a_.grad_alibi,
               .output = true});
  }
  void add_arrays() {
    add_lengths("cu_seqlens_q", "packed", a_.packed, x_.cu_seqlens_q, a_.b + 1);
    add_lengths("cu_seqlens_k", "packed", a_.packed, x_.cu_seqlens_k, a_.b + 1);
    add_lengths("used_q", "used_q", a_.used_q, x_.used_q, a_.b);
    add_lengths("used_k", "used_k", a_.used_k, x_.used_k, a_.b);
    add_lengths("first_k", "first_k", a_.first_k, x_.first_k, a_.b);
    list_.add({.name = "rng.at",
               .flag = "dropout",
               .wanted = a_.dropout > 0,
               .required = false,
               .data = x_.rng.at,
               .length = 2,
               .element = sizeof *x_.rng.at});
  }

 private:
  Shape scores() const { return {a_.b, a_.h_q, a_.s_q, a_.s_k}; }
  Shape slopes(const Tensor& x) const { return {x.shape[0] == 1 ? 1 : a_.b, 1, a_.h_q, 1}; }
  /// A tensor of the problem's type whose rows kernels read and write.
  Operand rows(const char* name, const Tensor& x, const Shape& shape) const {
    return {.name = name, .x = &x, .dtype = a_.dtype, .shape = shape, .contiguous = true, .moved = true};
  }
  void add_rows(const char* name, const Tensor& x, const Shape& shape) { list_.add(rows(name, x, shape)); }
  void add_statistic(const char* name, const char* flag, const Tensor& x, bool wanted) {
    list_.add({.name = name, .flag = flag, .x = &x, .shape = statistics_, .wanted = wanted, .output = true});
  }
  void add_gradient(const char* name, const char* flag, const Tensor& x, const Shape& shape, bool wanted) {
    Operand gradient = rows(name, x, shape);
    gradient.flag = flag;
    gradient.dtype = a_.grads == Grads::rounded ? a_.dtype : DType::f32;
    gradient.wanted = wanted;
    gradient.output = true;
    list_.add(gradient);
  }
  void add_lengths(const char* name, const char* flag, bool wanted, const std::int32_t* data, std::int64_t n) {
    list_.add({.name = name, .flag = flag, .wanted = wanted, .data = data, .length = n, .element = sizeof *data});
  }

  OperandList& list_;
  const Attention& a_;
  const Operands& x_;
  const Shape q_, k_, v_, o_, statistics_;
};

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
  AttentionLister all(a, x, &list);
  all.add_inputs();
  if (pass == Pass::forward) all.add_outputs();
  all.add_score_operands();
  if (pass == Pass::backward) all.add_gradients();
  all.add_arrays();
  return list;
}

Pass pass_of(const Operands& x) {
  return is_any_given({&x.grad_o, &x.grad_lse, &x.grad_q, &x.grad_k, &x.grad_v, &x.grad_bias, &x.grad_alibi})
             ? Pass::backward
             : Pass::forward;
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
