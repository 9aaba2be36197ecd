// src/ladder/linear/step.hpp: what a step of the ladder of linear attention is. From the classic kernels to the
// library's, one idea a file, all of them runnable by `falchion ladder linear`. docs/ladder.md walks through them. Not
// part of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "falchion/falchion.hpp"
#include "ladder/head.hpp"

namespace falchion::ladder::linear {

/// o_j = sum over i <= j of (q_j . k_i) v_i, or over i >= j in reverse, for b batch entries of h heads. As a recurrence
/// (Katharopoulos et al. 2020, arXiv:2006.16236): S_j = S_(j-1) + k_j v_j^T, o_j = q_j^T S_j, S of (d_qk, d_v).
struct Problem {
  int b = 1, h = 1, s = 0, d_qk = 64, d_v = 64;  // head dims: at most 128, 8 divides them
  bool reverse = false;                          // from the last token to the first

  /// Errors: unsupported (the head dims).
  Status check() const {
    for (const int d : {d_qk, d_v})
      if (d < 8 || d > 128 || d % 8 != 0)
        return {Code::unsupported, "the ladder has head dims 8, 16, ... 128, not " + std::to_string(d)};
    return {};
  }
};

/// q, k (b, s, h, d_qk), v, o (b, s, h, d_v), dense, of the step's type, where its side has its memory.
struct Tensors {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void *o = nullptr, *workspace = nullptr;
};

/// One idea.
struct Step {
  const char* name;   // "recurrent": for --step
  const char* title;  // "A block a head, token by token"
  const char* file;   // "01_recurrent.cu"
  const char* why;    // what changed, and why it is faster: a paragraph
  DType dtype;        // f32, as the classic kernels were, or bf16
  std::size_t (*workspace_bytes)(const Problem&);
  Status (*run)(const Problem&, const Tensors&, Stream);  // gpu: enqueues
};

std::span<const Step* const> cpu_steps();
std::span<const Step* const> gpu_steps();  // none in a build without CUDA

/// Head number bh, counted through the batch, of x with rows of d numbers, row j the j-th token *of the walk*: in
/// reverse the stride is negative. No step needs to know which way it goes.
template <class T>
FALCHION_HD Head<T> head_of(const Problem& p, T* x, int d, int bh) {
  const std::int64_t stride = std::int64_t{p.h} * d;
  T* const first = x + std::int64_t{bh / p.h} * p.s * stride + std::int64_t{bh % p.h} * d;
  return p.reverse ? Head<T>{first + (p.s - 1) * stride, -stride} : Head<T>{first, stride};
}

inline std::size_t no_workspace(const Problem&) { return 0; }

}  // namespace falchion::ladder::linear
