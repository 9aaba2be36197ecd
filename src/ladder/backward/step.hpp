// src/ladder/backward/step.hpp: what a step of the ladder of the backward pass is. The ladder goes from three naive
// kernels to the library's, one idea in each file, and `falchion ladder backward` runs every step. docs/ladder.md walks
// through them. It is not part of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ladder/attention/step.hpp"

namespace falchion::ladder::backward {

/// The gradients of O = softmax(scale Q K^T) V, of which O and the lse of each row are given:
///   P = exp(scale Q K^T - lse)     dP = dO V^T       D = the sum of dO O over each row      dS = P (dP - D)
///   dV = P^T dO                    dK = scale dS^T Q                                        dQ = scale dS K
/// q, o, grad_o and grad_q are (b, s_q, h, d), k, v, grad_k and grad_v are (b, s_k, h, d), all dense. They are f32 in
/// host memory for the CPU, and bf16 in device memory for the GPU. lse is (b, h, s_q) in f32.
struct Tensors {
  const void *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr, *grad_o = nullptr;
  const float* lse = nullptr;
  void *grad_q = nullptr, *grad_k = nullptr, *grad_v = nullptr, *workspace = nullptr;
};

/// One step, that is, one idea.
struct Step {
  const char* name;   // "recompute": for --step
  const char* title;  // "Tiles, P computed again"
  const char* file;   // "02_recompute.cu"
  const char* why;    // a paragraph: what changed, and why it is faster
  std::size_t (*workspace_bytes)(const Problem&);
  Status (*run)(const Problem&, const Tensors&, Stream);  // on the GPU it only enqueues
  int only_sm = 0;                                        // the only architecture that it runs on; 0: any

  bool runs_on(int sm) const { return only_sm == 0 || only_sm == sm; }
};

std::span<const Step* const> cpu_steps();
std::span<const Step* const> gpu_steps();  // none in a build without CUDA; runs_on says whether a device can run one

/// A row sees the keys [0, past_key).
FALCHION_HD int past_key(const Problem& p, int row) {
  const int keys = p.causal ? row + 1 + p.s_k - p.s_q : p.s_k;
  return keys < 0 ? 0 : keys < p.s_k ? keys : p.s_k;
}
/// The first row that sees key k0 or a later one; all rows after it do so too. s_q where there is none.
FALCHION_HD int first_row(const Problem& p, int k0) {
  const int row = p.causal ? k0 - (p.s_k - p.s_q) : 0;
  return row < 0 ? 0 : row < p.s_q ? row : p.s_q;
}

/// The bytes of P and dS of every head in f32, which the naive step writes to memory.
inline std::size_t pair_bytes(const Problem& p) { return 2 * score_bytes(p); }

}  // namespace falchion::ladder::backward
