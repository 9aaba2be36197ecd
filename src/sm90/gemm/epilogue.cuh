// src/sm90/gemm/epilogue.cuh: the epilogue of a GEMM, on the sums in registers: alpha, biases, C, activation and
// residual, each a step over all sums of a warpgroup. Loads of biases are issued before the products of a tile, and C
// and the residual come through the ring, after the last block of k, so that the epilogue does not wait for memory.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/activation.cuh"
#include "gpu/blocks/mma.cuh"
#include "sm90/gemm/load.cuh"

namespace falchion::sm90 {

/// A lane has two columns, 2 (lane % 4) and the next, of each atom of 8 columns, in two rows that are 8 apart. Their
/// sums have number 4 atom + 2 row + column. Calls f(at, half, column) for each pair of columns: its number, which of
/// the two rows, and its first column.
template <int kColumns, class F>
FALCHION_DEVICE void each_pair(F f) {
  CUTE_UNROLL
  for (int atom = 0; atom < kColumns / 8; ++atom) {
    CUTE_UNROLL
    for (int half = 0; half < 2; ++half)
      f(4 * atom + 2 * half, half, 8 * atom + 2 * (static_cast<int>(threadIdx.x) % 4));
  }
}

/// The biases of a tile: those of its columns in shared memory, and those of this lane's two rows.
template <class Config>
class TileBiases {
 public:
  using Element = typename Config::Element;

  /// Call it before the products of the tile. wanted: add() will be called.
  FALCHION_DEVICE TileBiases(const GemmArgs& a, const GemmTile& t, int warpgroup, bool wanted) : a_(a) {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    CUTE_UNROLL
    for (int i = 0; i < kOfColumns; ++i) {
      const int column = thread + 128 * i, half = Config::kColumns / 2;
      const bool up = a.activation == GemmActivation::swiglu && column >= half;
      const std::int64_t of_d = t.column0 + (up ? column - half : column), of_b = up ? a.n + of_d : of_d;
      const bool there = wanted && a.bias_n.data != nullptr && column < Config::kColumns && of_d < a.n;
      of_columns_[i] = there ? element(a.bias_n, a.bias_n_f32, of_b * a.bias_n.stride[3]) : 0.f;
    }
    CUTE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::int64_t i = t.row0 + 64 * warpgroup + thread / 32 * 16 + thread % 32 / 4 + 8 * half;
      const bool there = wanted && a.bias_m.data != nullptr && i < a.m;
      of_rows_[half] =
          there ? element(a.bias_m, a.bias_m_f32, t.batch * a.bias_m.stride[0] + i * a.bias_m.stride[1]) : 0.f;
    }
  }

  /// sums = alpha sums + biases, after the products. of_tile: this warpgroup's shared scratch.
  template <class Sums>
  FALCHION_DEVICE void add(float* of_tile, int warpgroup, Sums& sums) const {
    if (a_.bias_n.data == nullptr) {
      each_pair<Config::kColumns>([&](int at, int half, int) {
        sums(at) = fmaf(a_.alpha, sums(at), of_rows_[half]);
        sums(at + 1) = fmaf(a_.alpha, sums(at + 1), of_rows_[half]);
      });
      return;
    }
    sync_threads<128>(1 + warpgroup);  // all threads have read the biases of the previous tile
    CUTE_UNROLL
    for (int i = 0; i < kOfColumns; ++i) {
      const int column = static_cast<int>(threadIdx.x) % 128 + 128 * i;
      if (Config::kColumns % 128 == 0 || column < Config::kColumns) of_tile[column] = of_columns_[i];
    }
    sync_threads<128>(1 + warpgroup);
    each_pair<Config::kColumns>([&](int at, int half, int column) {
      const float2 two = *reinterpret_cast<const float2*>(of_tile + column);
      sums(at) = fmaf(a_.alpha, sums(at), two.x + of_rows_[half]);
      sums(at + 1) = fmaf(a_.alpha, sums(at + 1), two.y + of_rows_[half]);
    });
  }

 private:
  static constexpr int kOfColumns = (Config::kColumns + 127) / 128;

  static FALCHION_DEVICE float element(const View& x, bool f32, std::int64_t at) {
    return f32 ? static_cast<const float*>(x.data)[at] : static_cast<float>(static_cast<const Element*>(x.data)[at]);
  }

  const GemmArgs& a_;
  float of_columns_[kOfColumns], of_rows_[2];
};

/// sums += by x for up to 128 columns of C or the residual: one stage of the ring, where the first 64 columns lie in
/// the place of A and the others in that of B.
template <class Config, int kFirst, class Sums>
FALCHION_DEVICE void add_stage(typename Config::Shared& shared, int stage, int warpgroup, float by, Sums& sums) {
  using gpu::LaneBlocks;
  using Element = typename Config::Element;
  constexpr int kCount = Config::kColumns - kFirst < 128 ? Config::kColumns - kFirst : 128;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const LaneBlocks rows =
      LaneBlocks{LaneBlocks::down_first(thread % 32)}.from<Config::kRows>(64 * warpgroup + thread / 32 * 16, 0);
  CUTE_UNROLL
  for (int i = 0; i < kCount / 16; ++i) {
    const std::uint32_t box = cute::cast_smem_ptr_to_uint(i < 4 ? shared.a[stage] : shared.b[stage]);
    gpu::Block block;  // two atoms of 8 columns, of four numbers each
    gpu::load_block(box + rows.template at<Config::kRows>(0, i % 4 * 16), block);
    CUTE_UNROLL
    for (int j = 0; j < 8; ++j) {
      const int at = kFirst / 2 + 8 * i + j;
      sums(at) = fmaf(by, gpu::number_of<Element>(block[j / 2], j % 2), sums(at));
    }
  }
}

/// sums += by x, where x is C or the residual, which begins at stage `at` of the ring. half: with swiglu D has only
/// half of the columns.
template <class Config, class Sums, class Release>
FALCHION_DEVICE void add_addend(typename Config::Shared& shared, RingPosition<Config::kStages>& at, int warpgroup,
                                bool half, float by, Sums& sums, const Release& release) {
  const auto add = [&](auto first) {
    shared.full[at.stage].wait(at.parity);
    add_stage<Config, first>(shared, at.stage, warpgroup, by, sums);
    sync_threads<128>(1 + warpgroup);  // all warps have read the stage
    release(at.stage);
    at.advance();
  };
  add(Int<0>{});
  if constexpr (Config::kColumns > 128)
    if (!half) add(Int<128>{});
}

/// Turns the sums into D: activation(alpha sums + beta C + bias) + R. With swiglu the columns of D are the first half.
template <class Config, class Sums, class Release>
FALCHION_DEVICE void finish(const GemmArgs& a, typename Config::Shared& shared, int warpgroup,
                            const TileBiases<Config>& biases, RingPosition<Config::kStages>& at, Sums& sums,
                            const Release& release) {
  constexpr int kCount = Config::kColumns / 2;  // sums of a lane
  const bool pairs = a.activation == GemmActivation::swiglu;
  biases.add(shared.bias[warpgroup], warpgroup, sums);
  if (a.c.data != nullptr) add_addend<Config>(shared, at, warpgroup, pairs, a.beta, sums, release);
  if (pairs) {
    CUTE_UNROLL
    for (int i = 0; i < kCount / 2; i += 2) {
      brief_silu(sums(i), sums(i + 1));
      sums(i) *= sums(i + kCount / 2);
      sums(i + 1) *= sums(i + 1 + kCount / 2);
    }
  } else {
    activate_for_16_bits<kCount>(a.activation, sums);
  }
  if (a.residual.data != nullptr) add_addend<Config>(shared, at, warpgroup, pairs, 1.f, sums, release);
}

}  // namespace falchion::sm90
