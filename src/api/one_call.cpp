// src/api/one_call.cpp: the one-call forms: sizes and flags from the tensors, the rest from the options.
#include "api/one_call.hpp"

#include <algorithm>

#include "api/check.hpp"

namespace falchion {
namespace {

/// The longest of b packed sequences where the host can read the lengths; on the device a guess, which is all a GPU
/// plan needs.
std::int64_t longest(const std::int32_t* cu_seqlens, std::int64_t b, std::int64_t total) {
  if (cu_seqlens == nullptr || b == 0) return 0;
  if (gpu::on_device(cu_seqlens)) return (total + b - 1) / b;
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < b; ++i)
    most = std::max<std::int64_t>(most, std::int64_t{cu_seqlens[i + 1]} - cu_seqlens[i]);
  return std::min(most, total);
}

/// What the tensors say goes before what the options say.
Attention problem_of(const Operands& x, const Attention& options) {
  Attention a = options;
  a.dtype = x.q.dtype;
  a.packed = x.cu_seqlens_q != nullptr || x.cu_seqlens_k != nullptr;
  if (!a.packed) a.b = x.q.shape[0], a.s_q = x.q.shape[1], a.s_k = x.k.shape[1];
  if (a.packed && a.s_q == 0) a.s_q = longest(x.cu_seqlens_q, a.b, x.q.shape[1]);
  if (a.packed && a.s_k == 0) a.s_k = longest(x.cu_seqlens_k, a.b, x.k.shape[1]);
  a.h_q = x.q.shape[2], a.h_k = x.k.shape[2];
  a.d_qk = x.q.shape[3], a.d_v = x.v.shape[3];
  a.used_q = x.used_q != nullptr, a.used_k = x.used_k != nullptr;
  a.alibi = x.alibi != nullptr, a.bias = x.bias.data != nullptr, a.mask = x.mask.data != nullptr;
  a.lse = x.lse.data != nullptr, a.row_max = x.row_max.data != nullptr,
  a.probabilities = x.probabilities.data != nullptr;
  return a;
}

LinearAttention problem_of(const LinearOperands& x, Pass pass, const LinearAttention& options) {
  LinearAttention a = options;
  a.dtype = x.q.dtype;
  a.packed = x.cu_seqlens != nullptr;
  if (!a.packed) a.b = x.q.shape[0], a.s = x.q.shape[1];
  if (a.packed && a.s == 0) a.s = longest(x.cu_seqlens, a.b, x.q.shape[1]);
  a.h_qk = x.q.shape[2], a.h_v = x.v.shape[2];
  a.d_qk = x.q.shape[3], a.d_v = x.v.shape[3];
  if (x.decay.data == nullptr) a.decay = Decay::none;
  if (x.decay.data != nullptr && a.decay == Decay::none) {  // (1, 1, h_v, 1): a head's; one token alone is the same
    const bool head = x.decay.shape[0] == 1 && x.decay.shape[1] == 1;
    a.decay = head ? Decay::head : Decay::token;
  }
  a.initial_state = x.initial_state.data != nullptr;
  a.final_state = (pass == Pass::forward ? x.final_state : x.grad_final_state).data != nullptr;
  return a;
}

}  // namespace

Status attention(const Operands& operands, const Attention& options, Target target, Stream stream) noexcept try {
  return run_once(problem_of(operands, options), Pass::forward, operands, target, stream);
} catch (...) { return caught(); }

Status linear_attention(const LinearOperands& operands, const LinearAttention& options, Target target,
                        Stream stream) noexcept try {
  const Pass pass = operands.grad_o.data != nullptr ? Pass::backward : Pass::forward;
  return run_once(problem_of(operands, pass, options), pass, operands, target, stream);
} catch (...) { return caught(); }

}  // namespace falchion
