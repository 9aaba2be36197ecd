// src/api/validate_linear.cpp: validates a problem of linear attention, and its tensors.
#include <array>
#include <cmath>
#include <cstdint>

#include "api/operand_checks.hpp"
#include "api/sizes.hpp"
#include "api/validate.hpp"

namespace falchion {
namespace {

void check_sizes(const LinearAttention& a, Check* check) {
  check_size("b", a.b, kMaxHeads, check);
  check_size("s", a.s, kMaxSequence, check);
  check_size("h_qk", a.h_qk, kMaxHeads, check);
  check_size("h_v", a.h_v, kMaxHeads, check);
  check_head_dim("d_qk", a.d_qk, check);
  check_head_dim("d_v", a.d_v, check);
  check->require((a.h_qk == 0) == (a.h_v == 0), "h_qk = ", a.h_qk, " with h_v = ", a.h_v,
                 ": both must be 0, or neither");
  check->require(a.h_qk <= 0 || a.h_v % a.h_qk == 0, "h_v = ", a.h_v, " is not a multiple of h_qk = ", a.h_qk);
  if (!check->ok()) return;
  const auto real = [](std::int64_t x) { return static_cast<double>(x); };
  const double heads = real(a.b) * real(a.h_v);
  check->require(heads <= real(kMaxHeads), "b * h_v = ", a.b, " * ", a.h_v, " is over the limit of ", kMaxHeads);
  // Every count that a plan makes of this (bytes of states, of the reference's memory, segments) then fits into 64
  // bits.
  const double elements = (heads + real(a.b)) * (real(a.s) + 1 + real(a.d_qk)) * real(a.d_qk + a.d_v);
  check->require(elements < 0x1p52, "b * h_v * s * d overflows: b = ", a.b, ", h_v = ", a.h_v, ", s = ", a.s);
}

constexpr const char *kDecay = "LinearAttention::decay", *kInitial = "LinearAttention::initial_state",
                     *kFinal = "LinearAttention::final_state",
                     *kInitialZ = "LinearAttention::initial_state and normalise",
                     *kFinalZ = "LinearAttention::final_state and normalise";

/// The two kinds of operands that linear attention has.
struct LinearList {
  const LinearAttention& a;
  OperandList list{"LinearAttention"};

  /// q, k, v, o and their gradients: the problem's type, rows contiguous.
  void rows(bool output, const char* name, const Tensor& x, const Shape& shape) {
    list.add(
        {.name = name, .x = &x, .dtype = a.dtype, .shape = shape, .output = output, .contiguous = true, .moved = true});
  }
  /// Optional operands: f32. in_place: the input whose memory this output may use.
  void maybe(bool output, const char* name, const char* flag, const Tensor& x, bool wanted, const Shape& shape,
             const Tensor* in_place = nullptr) {
    list.add({.name = name,
              .flag = flag,
              .x = &x,
              .shape = shape,
              .wanted = wanted,
              .output = output,
              .in_place = {in_place}});
  }
};

}  // namespace

OperandList operands_of(const LinearAttention& a, Pass pass, const LinearOperands& x) {
  constexpr bool input = false, output = true;
  const std::int64_t batch = a.packed ? 1 : a.b, tokens = a.packed ? x.q.shape[1] : a.s;
  const bool decays = a.decay != Decay::none, head = a.decay == Decay::head;
  const bool initial_z = a.initial_state && a.normalise, final_z = a.final_state && a.normalise;
  const Shape k{batch, tokens, a.h_qk, a.d_qk}, v{batch, tokens, a.h_v, a.d_v};
  const Shape state{a.b, a.h_v, a.d_qk, a.d_v}, z{a.b, a.h_v, a.d_qk, 1};
  const Shape decay{head ? 1 : batch, head ? 1 : tokens, a.h_v, 1};

  LinearList all{a};
  all.rows(input, "q", x.q, {batch, a.packed ? kAnyExtent : a.s, a.h_qk, a.d_qk});
  all.rows(input, "k", x.k, k);
  all.rows(input, "v", x.v, v);
  all.maybe(input, "decay", kDecay, x.decay, decays, decay);
  all.maybe(input, "initial_state", kInitial, x.initial_state, a.initial_state, state);
  all.maybe(input, "initial_z", kInitialZ, x.initial_z, initial_z, z);
  if (pass == Pass::forward) {
    all.rows(output, "o", x.o, v);
    all.maybe(output, "final_state", kFinal, x.final_state, a.final_state, state, &x.initial_state);
    all.maybe(output, "final_z", kFinalZ, x.final_z, final_z, z, &x.initial_z);
  } else {
    all.rows(input, "grad_o", x.grad_o, v);
    all.maybe(input, "grad_final_state", kFinal, x.grad_final_state, a.final_state, state);
    all.maybe(input, "grad_final_z", kFinalZ, x.grad_final_z, final_z, z);
    all.rows(output, "grad_q", x.grad_q, k);
    all.rows(output, "grad_k", x.grad_k, k);
    all.rows(output, "grad_v", x.grad_v, v);
    all.maybe(output, "grad_decay", kDecay, x.grad_decay, decays, decay);
    all.maybe(output, "grad_initial_state", kInitial, x.grad_initial_state, a.initial_state, state);
    all.maybe(output, "grad_initial_z", kInitialZ, x.grad_initial_z, initial_z, z);
  }
  all.list.add({.name = "cu_seqlens",
                .flag = "packed",
                .wanted = a.packed,
                .data = x.cu_seqlens,
                .length = a.b + 1,
                .element = sizeof *x.cu_seqlens});
  return all.list;
}

Status validate_problem(const LinearAttention& a, Pass pass) {
  Check check;
  check_pass(pass, &check);
  check_dtypes(a, &check);
  check_sizes(a, &check);
  check.require(std::isfinite(a.scale), "scale = ", a.scale,
                ": it must be a finite number, where 0 stands for 1/sqrt(d_qk)");
  check.require(a.feature_map <= FeatureMap::elu_plus_one, "feature_map = ", static_cast<int>(a.feature_map),
                " is no FeatureMap");
  check.require(a.decay <= Decay::token, "decay = ", static_cast<int>(a.decay), " is no Decay");
  check.require(std::isfinite(a.eps) && a.eps >= 0, "eps = ", a.eps, ": it must be finite and 0 or more");
  return check.take();
}

Pass pass_of(const LinearOperands& x) {
  return is_any_given({&x.grad_o, &x.grad_final_state, &x.grad_final_z, &x.grad_q, &x.grad_k, &x.grad_v, &x.grad_decay,
                       &x.grad_initial_state, &x.grad_initial_z})
             ? Pass::backward
             : Pass::forward;
}

Status validate_operands(const LinearAttention& a, const LinearOperands& x, const OperandList& list) {
  Check check;
  check_operands(list, &check);
  check_rows_without_sequence("q", a.packed, a.b, x.q.shape[1], &check);
  if (a.decay == Decay::token) {
    const bool empty = a.b == 0 || a.h_v == 0;  // then the strides of a dense tensor are 0
    check.require(empty || x.decay.shape[1] <= 1 || x.decay.stride[1] != 0,
                  "decay.stride[1] = 0: a decay that is the same for every token is Decay::head");
  }
  check_overlaps(list, &check);
  return check.take();
}

}  // namespace falchion
