// src/ladder/linear/step.hpp: what a step of the ladder of linear attention is. The ladder goes from the classic
// kernels to the library's, one idea in each file, and `falchion ladder linear` runs every step. docs/ladder.md walks
// through them. It is not part of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "falchion/falchion.hpp"
#include "ladder/head.hpp"

namespace falchion::ladder::linear {

/// o_j = sum over i <= j of (q_j . k_i) v_i, or over i >= j in reverse, for b batch entries of h heads. As a recurrence
/// (Katharopoulos et al. 2020, arXiv:2006.16236) it is S_j = S_(j-1) + k_j v_j^T, o_j = q_j^T S_j, with S (d_qk, d_v).
struct Problem {
  int b = 1, h = 1, s = 0, d_qk = 64, d_v = 64;  // head dims: multiples of 8, at most 128
  bool reverse = false;                          // from the last token to the first

  /// Errors: unsupported (the head dims).
  Status check() const {
    for (const int d : {d_qk, d_v})
      if (d < 8 || d > 128 || d % 8 != 0)
        return {Code::unsupported, "the ladder has head dims 8, 16, ... 128, not " + std::to_string(d)};
    return {};
  }
};

/// q and k (b, s, h, d_qk), v and o (b, s, h, d_v), all dense. They have the type of the step, and lie in the memory of
/// the CPU or the GPU that runs it.
struct Tensors {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void *o = nullptr, *workspace = nullptr;
};

/// One step, that is, one idea.
struct Step {
  const char* name;   // "recurrent": for --step
  const char* title;  // "One block for each head, token by token"
  const char* file;   // "01_recurrent.cu"
  const char* why;    // a paragraph: what changed, and why it is faster
  DType dtype;        // f32, like the classic kernels, or bf16
  std::size_t (*workspace_bytes)(const Problem&);
  Status (*run)(const Problem&, const Tensors&, Stream);  // on the GPU it only enqueues
};

std::span<const Step* const> cpu_steps();
std::span<const Step* const> gpu_steps();  // none in a build without CUDA

/// Head number bh of x, counted through the batch, with rows of d numbers. Row j is the j-th token *of the walk*: in
/// reverse the stride is negative, so that no step needs to know in which direction it goes.
template <class T>
FALCHION_HD Head<T> head_of(const Problem& p, T* x, int d, int bh) {
  const std::int64_t stride = std::int64_t{p.h} * d;
  T* const first = x + std::int64_t{bh / p.h} * p.s * stride + std::int64_t{bh % p.h} * d;
  return p.reverse ? Head<T>{first + (p.s - 1) * stride, -stride} : Head<T>{first, stride};
}

inline std::size_t no_workspace(const Problem&) { return 0; }

}  // namespace falchion::ladder::linear
