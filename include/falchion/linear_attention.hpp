/// falchion/linear_attention.hpp: causal linear attention: the problem and the tensors of a run.
#pragma once

#include <cstdint>

#include "falchion/tensor.hpp"

namespace falchion {

/// The feature map phi, which q and k go through when they are loaded. elu_plus_one is x > 0 ? x + 1 : exp(x).
enum class FeatureMap : std::uint8_t { identity, elu_plus_one };
/// How the state fades: not at all (none); by one constant for each head, as in retention and lightning attention
/// (head); or by one number for each token and head, as in simple GLA and Mamba-2 (token).
enum class Decay : std::uint8_t { none, head, token };

/// Causal linear attention (Katharopoulos et al. 2020, arXiv:2006.16236), a recurrence over tokens j of a sequence:
///   S_j = e^(g_j) S_(j-1) + phi(k_j) v_j^T,    o_j = scale phi(q_j)^T S_j,    S_(-1) = initial_state or 0
/// Each value head has its own state S (d_qk, d_v). With `normalise` a vector z_j = e^(g_j) z_(j-1) + phi(k_j) is kept
/// beside S, and o_j is divided by scale phi(q_j) z_j + eps. With `reverse` the recurrence runs from the last token to
/// the first.
struct LinearAttention {
  DType dtype = DType::bf16;  // the type of q: f32, f16 or bf16; states and decay are always f32
  DType dtype_k = DType::as_q, dtype_v = DType::as_q, dtype_o = DType::as_q;  // only as_q is built today
  std::int64_t b = 0, s = 0;       // packed: b is the number of sequences, s the longest length that is allowed
  std::int64_t h_qk = 1, h_v = 1;  // h_v / h_qk value heads share each head of q and k
  std::int64_t d_qk = 0, d_v = 0;  // any numbers from 1 to 256, independent of each other
  float scale = 0;                 // 0 asks for 1/sqrt(d_qk); the fast-transformers library uses 1
  FeatureMap feature_map = FeatureMap::identity;
  Decay decay = Decay::none;
  bool normalise = false;
  float eps = 1e-6F;  // used with normalise; finite and >= 0
  bool reverse = false;

  // Which optional operands the run will have.
  bool packed = false;  // q, k, v, o are (1, total, h, d), and cu_seqlens cuts them; states still have b entries
  bool initial_state = false, final_state = false;  // with normalise also initial_z, final_z
  bool operator==(const LinearAttention&) const = default;
};

/// The tensors of one run of LinearAttention. Those after the blank line are only for Pass::backward. All memory must
/// lie where the backend can use it, as for Operands.
struct LinearOperands {
  Tensor q{}, k{};  // inputs   (b, s, h_qk, d_qk), last axis contiguous
  Tensor v{}, o{};  // input, output (b, s, h_v, d_v); the backward pass does not read o
  Tensor decay{};   // input    g, natural logarithm: (b, s, h_v, 1) f32; Decay::head: (1, 1, h_v, 1)
  Tensor initial_state{}, final_state{};     // input, output (b, h_v, d_qk, d_v) f32; one view for both is in place
  Tensor initial_z{}, final_z{};             // input, output (b, h_v, d_qk, 1) f32; one view for both, likewise
  const std::int32_t* cu_seqlens = nullptr;  // (b + 1), starts at 0, sorted, ends at total

  Tensor grad_o{};                                // input    (b, s, h_v, d_v)
  Tensor grad_final_state{}, grad_final_z{};      // inputs, where the problem has final_state
  Tensor grad_q{}, grad_k{}, grad_v{};            // outputs, with the shapes and dtype of q, k, v
  Tensor grad_decay{};                            // output f32, with the shape of decay
  Tensor grad_initial_state{}, grad_initial_z{};  // outputs, where the problem has initial_state
};

}  // namespace falchion
