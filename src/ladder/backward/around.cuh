// src/ladder/backward/around.cuh: what steps 02 to 06 do before and after their walk. Before it a small kernel computes
// D and clears the sums of dQ, and after it another one rounds them.
#pragma once

#include <cuda_bf16.h>

#include "base/host_device.hpp"
#include "ladder/attention/launch.cuh"
#include "ladder/backward/step.hpp"

namespace falchion::ladder::backward::on_gpu {

using ladder::on_gpu::with_head_dim;

/// The statistics of a head begin at a multiple of this many rows, which no tile exceeds.
inline constexpr int kPad = 128;
FALCHION_HD int padded_rows(const Problem& p) { return (p.s_q + kPad - 1) / kPad * kPad; }

/// The workspace: two numbers for each row of each head, padded, and the sums of dQ (b, s_q, h, d).
struct Sums {
  float *lse, *delta, *grad_q;

  Sums(const Problem& p, void* workspace) : lse(static_cast<float*>(workspace)) {
    const std::size_t rows = static_cast<std::size_t>(p.b) * p.h * padded_rows(p);
    delta = lse + rows;
    grad_q = delta + rows;
  }
};
inline std::size_t sums_bytes(const Problem& p) {
  return sizeof(float) * static_cast<std::size_t>(p.b) * p.h * (2 * padded_rows(p) + std::size_t(p.s_q) * p.d);
}

/// P = exp(scale S - lse) = 2^(scale log2(e) S - log2(e) lse), which takes one multiply-add and one exponential. The
/// lse is kept in this unit. A row that has seen no key, or that lies past the end, has an lse of +inf, and so P = 0.
FALCHION_DEVICE float probability(float s, float unit, float lse) { return exp2f(fmaf(s, unit, -lse)); }

/// Computes the statistics of each row, and clears its sums.
Status run_before(const Problem& p, const Tensors& t, const Sums& sums, Stream stream);
/// dQ = scale times its sums, in bf16.
Status run_after(const Problem& p, const Tensors& t, const Sums& sums, Stream stream);

/// Enqueues all of a step; walk(sums) launches the kernel in the middle.
template <class Walk>
Status run_around(const Problem& p, const Tensors& t, Stream stream, const Walk& walk) {
  const Sums sums(p, t.workspace);
  if (Status status = run_before(p, t, sums, stream); !status) return status;
  if (Status status = walk(sums); !status) return status;
  return run_after(p, t, sums, stream);
}

}  // namespace falchion::ladder::backward::on_gpu
