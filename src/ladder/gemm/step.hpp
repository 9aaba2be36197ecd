// src/ladder/gemm/step.hpp: what a step of the ladder of matrix products is. The ladder goes from the naive kernel to
// the library's, one idea in each file, and `falchion ladder gemm` runs every step. docs/ladder.md walks through them.
// It is not part of the library.
#pragma once

#include <cstddef>
#include <span>

#include "falchion/falchion.hpp"

namespace falchion::ladder::gemm {

/// C = A B. A is (m, k), B is (k, n) and C is (m, n).
struct Problem {
  int m = 0, n = 0, k = 0;
};

/// All three lie row after row without gaps. They have the type of the step, and lie in the memory of the CPU or the
/// GPU that runs it. Sums are f32, whatever the type.
struct Tensors {
  const void *a = nullptr, *b = nullptr;
  void *c = nullptr, *workspace = nullptr;
};

/// One step, that is, one idea.
struct Step {
  const char* name;   // "shared-tile": for --step
  const char* title;  // "Tiles of 32 x 32 in shared memory"
  const char* file;   // "03_shared_tile.cu"
  const char* why;    // a paragraph: what changed, and why it is faster
  DType dtype;        // f32, or bf16 from the first step on tensor cores on
  std::size_t (*workspace_bytes)(const Problem&);
  Status (*run)(const Problem&, const Tensors&, Stream);  // on the GPU it only enqueues
  int only_sm = 0;                                        // the only architecture that it runs on; 0: any

  bool runs_on(int sm) const { return only_sm == 0 || only_sm == sm; }
};

std::span<const Step* const> cpu_steps();
std::span<const Step* const> gpu_steps();  // none in a build without CUDA; runs_on says whether a device can run one

/// Beside the ladder: an idea that pays on some shapes, the step of the ladder that it branches off from, and one of
/// those shapes.
struct Branch {
  const Step *step, *parent;
  Problem shape;
};
std::span<const Branch> gpu_branches();  // likewise

inline std::size_t no_workspace(const Problem&) { return 0; }

}  // namespace falchion::ladder::gemm
