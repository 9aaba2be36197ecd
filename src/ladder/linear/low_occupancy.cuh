// src/ladder/linear/low_occupancy.cuh: what the low-occupancy kernels of steps 02, 04 and 05 share. A block of threads
// has one column of S. Its lanes form teams, and each team takes four tokens, all at the same time.
#pragma once

#include <algorithm>

#include "ladder/linear/dispatch.cuh"
#include "ladder/linear/sizes.hpp"

namespace falchion::ladder::linear::on_gpu {

inline constexpr int kTokens = 4;  // successive tokens of one team

/// Turns sums[t] from what the tokens of team t add to the column into what the column is before them. Thread e has row
/// e of the column, S, in a register, and walks over the teams.
template <int kTeams, int kE>
__device__ void scan(float (&sums)[kTeams][kE], float& S) {
  __syncthreads();
  if (threadIdx.x < kE) {
    for (auto& row : sums) {
      const float sum = row[threadIdx.x];
      row[threadIdx.x] = S;
      S += sum;
    }
  }
  __syncthreads();
}

/// Returns the sum over a team of neighbouring lanes, in all of them.
template <int kLanes>
__device__ float sum_of_team(float x) {
#pragma unroll
  for (int other = kLanes / 2; other > 0; other /= 2) x += __shfl_xor_sync(~0u, x, other);
  return x;
}

/// For steps 04 and 05, where the rows E of the column are taken in pieces of four. A team has one lane for each piece,
/// so that at E 64 a warp is two teams.
template <int kE_, int kWarps>
struct Teams {
  static constexpr int kE = kE_;
  static constexpr int kLanes = kE / 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kTeams = kThreads / kLanes;
  static constexpr int kStep = kTokens * kTeams;  // tokens that a block takes at a time
  using Sums = float[kTeams][kE];

  static __device__ int team() { return threadIdx.x / kLanes; }
  static __device__ int lane() { return threadIdx.x % kLanes; }

  /// Four rows of q and k for each token of this team, and the tokens' numbers of V, in 36 registers.
  struct Loaded {
    float4 q[kTokens], k[kTokens];
    float v[kTokens];
  };

  /// Loads tokens [j, j + kTokens) of the walk, and 0 past its end and past d_qk.
  static __device__ Loaded load(const Problem& p, Head<const float> Q, Head<const float> K, Head<const float> V, int j,
                                int column) {
    Loaded x = {};
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      if (j + t >= p.s) continue;
      x.v[t] = V[j + t][column];
      if (4 * lane() >= p.d_qk) continue;
      x.q[t] = *reinterpret_cast<const float4*>(&Q[j + t][4 * lane()]);
      x.k[t] = *reinterpret_cast<const float4*>(&K[j + t][4 * lane()]);
    }
    return x;
  }

  /// Computes o of the same tokens. scan() says what S is.
  static __device__ void attend(const Problem& p, const Loaded& x, Sums& sums, float& S, Head<float> O, int j,
                                int column) {
    float4 own[kTokens], sum = {};  // own[t]: what the team's tokens add, up to and with t
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const float v = x.v[t];
      sum.x += x.k[t].x * v;
      sum.y += x.k[t].y * v;
      sum.z += x.k[t].z * v;
      sum.w += x.k[t].w * v;
      own[t] = sum;
    }
    float4& shared = *reinterpret_cast<float4*>(&sums[team()][4 * lane()]);  // only scan() and this thread use it
    shared = sum;
    scan(sums, S);
    const float4 before = shared;
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const float4 q = x.q[t], now = own[t];
      const float dot =
          q.x * (before.x + now.x) + q.y * (before.y + now.y) + q.z * (before.z + now.z) + q.w * (before.w + now.w);
      const float o = sum_of_team<kLanes>(dot);
      if (lane() == t && j + t < p.s) O[j + t][column] = o;
    }
  }
};

/// A kernel with one block per column. Kernel has kernel<E, warps>(), tokens<E, warps>(), which is how many tokens it
/// takes in a step, kAlone, the cycles that a step takes alone, and kBytes, the bytes of q and k that an SM gets per
/// cycle.
template <class Kernel>
struct Columns {
  /// Calls f(integral_constant<int, E>, integral_constant<int, warps>). Where blocks are few there are more warps, and
  /// so more tokens at a time. The numbers are those of fast-transformers.
  template <class F>
  static Status with_sizes(const Problem& p, const F& f) {
    const std::int64_t blocks = std::int64_t{p.b} * p.h * p.d_v;
    return with_size<32, 64, 128>(p.d_qk, [&](auto e) {
      if (blocks >= 320) return f(e, std::integral_constant<int, 4>{});
      if (blocks >= 160) return f(e, std::integral_constant<int, 8>{});
      return f(e, std::integral_constant<int, 16>{});
    });
  }
  static Status cycles(const Problem& p, double* out) {
    return with_sizes(p, [&](auto e, auto warps) {
      constexpr int kE = e.value;
      constexpr int kWarps = warps.value;
      constexpr int kStep = Kernel::template tokens<kE, kWarps>();
      Cost cost = {.blocks = double(p.b) * p.h * p.d_v, .steps = double(divide_up(p.s, kStep))};
      Status status = ask_device(Kernel::template kernel<kE, kWarps>(), 32 * kWarps, &cost);
      *out = cost.cycles({.alone = Kernel::kAlone, .busy = kStep * kE * 2 * sizeof(float) / Kernel::kBytes});
      return status;
    });
  }
  static Status run(const Problem& p, const Tensors& t, Stream stream) {
    if (Status status = p.check(); !status) return status;
    return with_sizes(p, [&](auto e, auto warps) {
      return launch(Kernel::template kernel<e.value, warps.value>(), dim3(p.d_v, p.b * p.h), dim3(32 * warps.value), 0,
                    stream, p, static_cast<const float*>(t.q), static_cast<const float*>(t.k),
                    static_cast<const float*>(t.v), static_cast<float*>(t.o));
    });
  }
};

}  // namespace falchion::ladder::linear::on_gpu
