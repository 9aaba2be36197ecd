// src/api/validate.cpp: validates a problem and a target. Tensors: validate_operands.cpp.
#include "api/validate.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "api/sizes.hpp"

namespace falchion {
namespace {

constexpr std::int64_t kKeysOfScale = 128;  // a block of keys that shares a scale is whole tiles of every kernel

void check_sizes(const Attention& a, Check* check) {
  check_size("b", a.b, kMaxHeads, check);
  check_size("s_q", a.s_q, kMaxSequence, check);
  check_size("s_k", a.s_k, kMaxSequence, check);
  check_size("h_q", a.h_q, kMaxHeads, check);
  check_size("h_k", a.h_k, kMaxHeads, check);
  check->require(a.h_k > 0 || a.h_q == 0, "h_k = 0 with h_q = ", a.h_q, ": query heads need a K/V head");
  check->require(a.h_k <= 0 || a.h_q % a.h_k == 0, "h_q = ", a.h_q, " is not a multiple of h_k = ", a.h_k);
  check_head_dim("d_qk", a.d_qk, check);
  check_head_dim("d_v", a.d_v, check);
  if (!check->ok()) return;
  const auto real = [](std::int64_t x) {
    return static_cast<double>(x);
  };  // exact enough: the limits are far below 2^63
  const double heads = real(a.b) * real(a.h_q);
  check->require(heads <= real(kMaxHeads), "b * h_q = ", a.b, " * ", a.h_q, " is over the limit of ", kMaxHeads);
  // Every count that a plan makes of this (bytes of packed K, work items, partial results) then fits into 64 bits.
  // Without query heads there may still be heads of K.
  const double elements = real(a.b) * real(std::max(a.h_q, a.h_k) + 1) * real(a.s_q + a.s_k + 1) * real(a.d_qk + a.d_v);
  check->require(elements < 0x1p52, "b * h * s * d overflows: b = ", a.b, ", h_q = ", a.h_q, ", h_k = ", a.h_k,
                 ", s_q = ", a.s_q, ", s_k = ", a.s_k);
}

void check_band(const Band& band, Check* check) {
  check->require(band.left >= 0 || band.left == Band::unbounded, "band.left = ", band.left,
                 ": it must be 0 or more, or unbounded (-1)");
  check->require(band.right >= 0 || band.right == Band::unbounded, "band.right = ", band.right,
                 ": it must be 0 or more, or unbounded (-1)");
  check->require(band.align <= Align::at, "band.align = ", static_cast<int>(band.align), " is no Align");
  const bool bounded = band.left != Band::unbounded || band.right != Band::unbounded;
  check->require(
      !bounded || band.align != Align::unset,
      "band.align is unset: a bounded band needs bottom_right (FlashAttention: the last query sees the last key) "
      "or top_left (PyTorch: query 0 sees key 0) or at (query 0 stands at key band.offset)");
  check->require(band.align == Align::at || band.offset == 0, "band.offset = ", band.offset,
                 " with band.align = ", name(band.align), ": only Align::at has an offset");
  check->require(-kMaxSequence <= band.offset && band.offset <= kMaxSequence, "band.offset = ", band.offset,
                 ": it must be in [-", kMaxSequence, ", ", kMaxSequence, "]");
}

void check_score(const Attention& a, Check* check) {
  check->require(std::isfinite(a.score.scale), "score.scale = ", a.score.scale,
                 ": it must be a finite number, where 0 stands for 1/sqrt(d_qk)");
  check->require(std::isfinite(a.score.softcap) && a.score.softcap >= 0, "score.softcap = ", a.score.softcap,
                 ": it must be finite and above 0, or 0 for none");
  check->require(a.dropout >= 0 && a.dropout <= 1, "dropout = ", a.dropout, ": it must be in [0, 1]");
}

void check_rotary(const Attention& a, Check* check) {
  check->require(a.rotary_dim >= 0 && a.rotary_dim % 2 == 0 && a.rotary_dim <= a.d_qk, "rotary_dim = ", a.rotary_dim,
                 ": it must be an even number in [0, d_qk = ", a.d_qk, "]");
  check->require(a.rotary_dim == 0 || a.cache, "rotary_dim = ", a.rotary_dim,
                 " without cache: positions are those of a cache's keys");
  check->require(!a.rotary_pairs || a.rotary_dim > 0, "rotary_pairs without rotary_dim: no column turns");
}

/// What q of 8 bits is not built with is refused by its name.
void check_bytes_of_q(const Attention& a, Pass pass, Check* check) {
  check->supported(pass == Pass::forward, "dtype = ", a.dtype,
                   " in the backward pass is not built; nearest: bf16 numbers of the same values");
  check->require(!a.v_scale || is_8bit(dtype_of_v(a)), "v_scale with dtype_v = ", dtype_of_v(a),
                 ": only v of 8 bits has scales");
  check->require(a.k_scale_rows <= 1 || a.k_scale, "k_scale_rows = ", a.k_scale_rows, " without k_scale");
  check->require(a.k_scale_rows <= 1 || a.k_scale_rows % kKeysOfScale == 0, "k_scale_rows = ", a.k_scale_rows,
                 ": it must be 0 (all keys share a scale) or a multiple of ", kKeysOfScale);
  const auto without = [&](bool asked, const char* name) {
    check->supported(!asked, name, " with q of 8 bits (dtype = ", a.dtype, ") is not built");
  };
  without(a.cache, "cache");
  without(a.first_k, "first_k");
  without(a.alibi, "alibi");
  without(a.bias, "bias");
  without(a.mask, "mask");
  without(a.dropout > 0, "dropout");
  without(a.row_max, "row_max");
  without(a.probabilities, "probabilities");
}

/// k and v of a cache may have 8 bits, and scales then; q too, where there is no cache.
void check_bytes(const Attention& a, Pass pass, Check* check) {
  check->require(a.k_scale_rows >= 0 && a.k_scale_rows <= kMaxSequence, "k_scale_rows = ", a.k_scale_rows,
                 ": it must be in [0, ", kMaxSequence, "]");
  if (is_8bit(a.dtype)) return check_bytes_of_q(a, pass, check);
  check->require(!a.q_scale, "q_scale with dtype = ", a.dtype, ": only q of 8 bits (e4m3, i8) has scales");
  check->supported(a.k_scale_rows <= 1, "k_scale_rows = ", a.k_scale_rows, " with dtype = ", a.dtype,
                   ": only with q of 8 bits do keys share a scale by blocks; nearest: 0");
  const DType k = dtype_of_k(a), v = dtype_of_v(a);
  check->supported(k == v, "dtype_v = ", v, " with dtype_k = ", k,
                   ": k and v of different types are not built; nearest: dtype_v = ", k);
  check->supported(k != DType::e5m2, "dtype_k = e5m2 is not built yet; nearest: e4m3");
  check->require(!a.k_scale || is_8bit(k), "k_scale with dtype_k = ", k,
                 ": only numbers of 8 bits (e4m3, i8) have scales");
  check->require(!a.v_scale || is_8bit(v), "v_scale with dtype_v = ", v,
                 ": only numbers of 8 bits (e4m3, i8) have scales");
}

/// What a cache is not built with is refused by its name.
void check_cache(const Attention& a, Pass pass, Check* check) {
  check->require(a.page_size >= 0 && a.page_size <= kMaxSequence, "page_size = ", a.page_size,
                 ": it must be 0 (a cache without pages) or more, up to ", kMaxSequence);
  check->require(a.page_size == 0 || a.cache, "page_size = ", a.page_size,
                 " without cache: pages are those of a cache");
  check->require(!a.append || a.cache, "append without cache: new keys are written into a cache");
  check_rotary(a, check);
  check_bytes(a, pass, check);
  if (!a.cache) return;
  check->require(a.used_k, "cache without used_k: a cache has its full capacity, and used_k says how many keys count");
  check->supported(pass == Pass::forward,
                   "cache in the backward pass is not built; nearest: unpacked keys with used_k");
  const auto without = [&](bool asked, const char* name) {
    check->supported(!asked, name, " with a cache is not built; nearest: unpacked keys with used_k and no cache");
  };
  without(a.bias, "bias");
  without(a.mask, "mask");
  without(a.dropout > 0, "dropout");
  without(a.row_max, "row_max");
  without(a.probabilities, "probabilities");
}

}  // namespace

void check_backward(const Attention& a, Check* check) {
  check->require(a.frozen <= 3, "frozen = ", static_cast<int>(a.frozen),
                 ": it must be 0 (nothing), 1 (no grad_q), 2 (no grad_k and grad_v) or 3");
  check->require(!(a.zero_unused && a.grads == Grads::accumulate),
                 "zero_unused with grads = accumulate: gradients are added to what is there, so nothing is set to 0");
  check->require(!a.grad_bias || a.bias, "grad_bias without bias: there is no bias to have a gradient");
  check->require(!a.grad_alibi || a.alibi, "grad_alibi without alibi: there are no slopes to have a gradient");
  check->require(!a.grad_sinks || a.sinks, "grad_sinks without sinks: there are no sinks to have a gradient");
}

Status validate_problem(const Attention& a, Pass pass) {
  Check check;
  check_pass(pass, &check);
  check_dtypes(a, &check);
  check_sizes(a, &check);
  check_band(a.band, &check);
  check_score(a, &check);
  check.require(a.grads <= Grads::accumulate, "grads = ", static_cast<int>(a.grads), " is no Grads");
  check.require(a.split_keys >= 0 && a.split_keys <= kMaxSequence && a.split_keys % 64 == 0,
                "split_keys = ", a.split_keys, ": it must be 0 (parts begin anywhere) or a multiple of 64, up to ",
                kMaxSequence);
  check.supported(a.split_keys == 0 || !(a.packed || a.probabilities), "split_keys with ",
                  a.packed ? "packed lengths" : "probabilities", " is not built");
  check_cache(a, pass, &check);
  if (pass == Pass::backward) check_backward(a, &check);
  check.require(pass == Pass::backward || !(a.packed && a.probabilities),
                "probabilities with packed lengths: they are for small unpacked problems");
  check.supported(!(a.packed && (a.bias || a.mask)), a.bias ? "bias" : "mask",
                  " with packed lengths is not built; nearest: unpacked (b, s, h, d) with used_q and used_k");
  return check.take();
}

Status validate_target(const Target& target) {
  Check check;
  check.require(target.backend <= Backend::sm90, "backend = ", static_cast<int>(target.backend), " is no Backend");
  check.require(target.threads >= 0, "threads = ", target.threads, ": it must be 0 (all there are) or more");
  const Executor& pool = target.executor;
  check.require(pool.parallel_for != nullptr || pool == Executor{},
                "executor.parallel_for is null with executor.self = ", pool.self,
                " and executor.threads = ", pool.threads, ": an executor needs its function");
  check.require(pool.parallel_for == nullptr || pool.threads >= 1, "executor.threads = ", pool.threads,
                ": it must be 1 or more");
  check.require(target.segments >= 0, "segments = ", target.segments, ": it must be 0 (the plan decides) or more");
  check.require(target.device >= -1, "device = ", target.device,
                ": it must be CUDA's number of a device, or -1 (no device is named)");
  check.require(target.device < 0 || target.sm == 0, "device = ", target.device, " with sm = ", target.sm,
                ": a plan is for a device that is here or for an architecture");
  check.require(target.device < 0 || (target.backend != Backend::cpu && target.backend != Backend::ref),
                "device = ", target.device, " with backend = ", name(target.backend), ": device is for GPU backends");
  check.require(target.sm >= 0, "sm = ", target.sm,
                ": it must be 0 (the GPU that is here) or an architecture such as 80, 90");
  check.supported(target.sm == 0 || target.sm >= 80, "sm = ", target.sm, ": GPUs from sm_80 on; nearest: 80");
  check.require(target.backend != Backend::sm90 || target.sm == 0 || (target.sm >= 90 && target.sm < 100),
                "backend = sm90 with sm = ", target.sm, ": its kernels (wgmma, TMA) run on sm_90 alone");
  check.require(target.sms >= 0 && target.sms <= kMaxSms, "sms = ", target.sms,
                ": it must be 0 (all SMs of the GPU) or more, up to ", kMaxSms);
  check.require(target.sms == 0 || (target.backend != Backend::cpu && target.backend != Backend::ref),
                "sms = ", target.sms, " with backend = ", name(target.backend), ": sms is for GPU backends");
  check.require(target.sm == 0 || (target.backend != Backend::cpu && target.backend != Backend::ref),
                "sm = ", target.sm, " with backend = ", name(target.backend), ": sm is for GPU backends");
  return check.take();
}

}  // namespace falchion
