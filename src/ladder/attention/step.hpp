// src/ladder/attention/step.hpp: what a step of the ladder is. The ladder goes from the naive kernel to the library's,
// one idea in each file, and `falchion ladder attention` runs every step. docs/ladder.md walks through them. It is not
// part of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "falchion/falchion.hpp"
#include "ladder/head.hpp"
#include "policy/mask.hpp"

namespace falchion::ladder {

/// O = softmax(scale Q K^T) V for b batch entries of h heads. The head dim is 64 or 128.
struct Problem {
  int b = 1, h = 1, s_q = 0, s_k = 0, d = 64;
  bool causal = false;  // bottom-right: the last query sees the last key
  float scale = 0.125;  // > 0

  FALCHION_HD BandMask mask() const { return BandMask::make(s_k, std::int64_t{s_k} - s_q, -1, causal ? 0 : -1); }
};

/// q and o (b, s_q, h, d), k and v (b, s_k, h, d), all dense. They are f32 in host memory for the CPU, and bf16 in
/// device memory for the GPU.
struct Tensors {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void *o = nullptr, *workspace = nullptr;
};

/// One step, that is, one idea.
struct Step {
  const char* name;   // "flash1": for --step
  const char* title;  // "FlashAttention-1: tiles"
  const char* file;   // "01_naive.cu"
  const char* why;    // a paragraph: what changed, and why it is faster
  std::size_t (*workspace_bytes)(const Problem&);
  Status (*run)(const Problem&, const Tensors&, Stream);  // on the GPU it only enqueues
  int only_sm = 0;                                        // the only architecture that it runs on; 0: any
  bool eight_bits = false;                                // rounds q, k and v to e4m3 first

  bool runs_on(int sm) const { return only_sm == 0 || only_sm == sm; }
};

std::span<const Step* const> cpu_steps();
std::span<const Step* const> gpu_steps();  // none in a build without CUDA; runs_on says whether a device can run one

/// Step eight-bits, with sums of P V that go on over so many tiles of 128 keys before they are added up in f32. It
/// shows why the step has one. d is 64.
Status run_with_long_sums(const Problem& p, const Tensors& t, int tiles, Stream stream);

/// Head number bh of x, counted through the batch. s is the number of rows of a head.
template <class T>
FALCHION_HD Head<T> head_of(const Problem& p, T* x, int s, int bh) {
  return {x + (std::int64_t{bh / p.h} * s * p.h + bh % p.h) * p.d, std::int64_t{p.h} * p.d};
}

inline std::size_t no_workspace(const Problem&) { return 0; }
/// The bytes of S of every head in f32, which the naive step writes to memory.
inline std::size_t score_bytes(const Problem& p) {
  return sizeof(float) * static_cast<std::size_t>(p.b) * p.h * p.s_q * p.s_k;
}

}  // namespace falchion::ladder
