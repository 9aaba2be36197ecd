// src/sm90/gemm/epilogue.cuh: the epilogue of a GEMM, on the sums in registers: alpha, scales, biases, C, activation
// and residual, each a step over all sums of a warpgroup. Loads of scales and biases are issued before the products of
// a tile, and C and the residual come through the ring, after the last block of k, so that the epilogue does not wait
// for memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/host_device.hpp"
#include "gpu/blocks/activation.cuh"
#include "gpu/blocks/mma.cuh"
#include "sm90/gemm/load.cuh"

namespace falchion::sm90 {

/// Calls f with a number of the type of D, where that has 16 bits: the type of A, or where A has 8 bits bf16 or f16.
template <class Config, class F>
FALCHION_DEVICE auto with_type_of_d(const GemmArgs& a, F f) {
  if constexpr (Config::kScaled)
    return a.half_f16 ? f(f16{}) : f(bf16{});
  else
    return f(typename Config::Element{});
}

/// Of each atom of 8 columns a lane has two, 2 (lane % 4) and the next, in two rows that are 8 apart. Their sums have
/// number 4 atom + 2 row + column, and those of the next wave follow. Calls f(at, row, column) for each pair of
/// columns: its number, which of the lane's rows, and its first column.
template <class Config, class F>
FALCHION_DEVICE void each_pair(F f) {
  const int of_lane = 2 * (gpu::hidden(static_cast<int>(threadIdx.x)) % 4);
  CUTE_UNROLL
  for (int wave = 0; wave < Config::kWaves; ++wave) {
    CUTE_UNROLL
    for (int atom = 0; atom < Config::kColumns / 8; ++atom) {
      CUTE_UNROLL
      for (int half = 0; half < 2; ++half)
        f(Config::kColumns / 2 * wave + 4 * atom + 2 * half, 2 * wave + half, 8 * atom + of_lane);
    }
  }
}

/// The scales and biases of a tile: those of its columns, of which each thread loads some, and those of this lane's
/// rows.
template <class Config>
class TileTerms {
 public:
  /// Call it before the products of the tile, so that they hide the loads. wanted: finish() will be called.
  FALCHION_DEVICE TileTerms(const GemmArgs& a, const GemmTile& t, int warpgroup, bool wanted) : a_(a) {
    const int thread = gpu::hidden(static_cast<int>(threadIdx.x) % 128);
    CUTE_UNROLL
    for (int i = 0; i < kOfColumns; ++i) {
      const int column = thread + 128 * i, half = Config::kColumns / 2;
      const bool up = a.activation == GemmActivation::swiglu && column >= half;
      const std::int64_t of_d = t.column0 + (up ? column - half : column), of_b = up ? a.n + of_d : of_d;
      const bool there = wanted && column < Config::kColumns && of_d < a.n;
      biases_of_columns_[i] =
          there && a.bias_n.data != nullptr ? bias(a.bias_n, a.bias_n_f32, of_b * a.bias_n.stride[3]) : 0.f;
      if constexpr (Config::kScaled)
        scales_of_columns_[i] = there && a.scale_b.data != nullptr ? scale(a.scale_b, t.batch, of_b) : 1.f;
    }
    CUTE_UNROLL
    for (int row = 0; row < kOfRows; ++row) {
      const std::int64_t i =
          t.row0 + Config::row_of(row / 2, 4 * warpgroup + thread / 32) + thread % 32 / 4 + 8 * (row % 2);
      const bool there = wanted && i < a.m;
      biases_of_rows_[row] = there && a.bias_m.data != nullptr
                                 ? bias(a.bias_m, a.bias_m_f32, t.batch * a.bias_m.stride[0] + i * a.bias_m.stride[1])
                                 : 0.f;
      if constexpr (Config::kScaled)
        scales_of_rows_[row] = there && a.scale_a.data != nullptr ? scale(a.scale_a, t.batch, i) : 1.f;
    }
  }

  /// sums = alpha s_a (s_b sums) + biases, after the products: s_a s_b alone may be beyond f32 where the result is not.
  /// of_tile: this warpgroup's shared scratch.
  template <class Sums>
  FALCHION_DEVICE void apply(float* of_tile, int warpgroup, Sums& sums) const {
    if constexpr (std::is_same_v<typename Config::Sum, std::int32_t>) {
      CUTE_UNROLL
      for (int i = 0; i < Config::kNumbers; ++i) sums(i) = static_cast<float>(__float_as_int(sums(i)));
    }
    if constexpr (Config::kScaled) {
      if (a_.scale_b.data != nullptr) {
        share(of_tile, warpgroup, scales_of_columns_);
        each_pair<Config>([&](int at, int, int column) {
          const float2 two = *reinterpret_cast<const float2*>(of_tile + column);
          sums(at) *= two.x;
          sums(at + 1) *= two.y;
        });
      }
    }
    if (a_.bias_n.data == nullptr) {
      each_pair<Config>([&](int at, int row, int) {
        sums(at) = fmaf(factor(row), sums(at), biases_of_rows_[row]);
        sums(at + 1) = fmaf(factor(row), sums(at + 1), biases_of_rows_[row]);
      });
      return;
    }
    share(of_tile, warpgroup, biases_of_columns_);
    each_pair<Config>([&](int at, int row, int column) {
      const float2 two = *reinterpret_cast<const float2*>(of_tile + column);
      sums(at) = fmaf(factor(row), sums(at), two.x + biases_of_rows_[row]);
      sums(at + 1) = fmaf(factor(row), sums(at + 1), two.y + biases_of_rows_[row]);
    });
  }

 private:
  static constexpr int kOfColumns = (Config::kColumns + 127) / 128, kOfRows = 2 * Config::kWaves;

  FALCHION_DEVICE float bias(const View& x, bool f32, std::int64_t at) const {
    if (f32) return static_cast<const float*>(x.data)[at];
    return with_type_of_d<Config>(
        a_, [&](auto type) { return static_cast<float>(static_cast<const decltype(type)*>(x.data)[at]); });
  }
  static FALCHION_DEVICE float scale(const View& x, std::int64_t batch, std::int64_t row) {
    return static_cast<const float*>(x.data)[batch * x.stride[0] + row * x.stride[1]];
  }
  FALCHION_DEVICE float factor(int row) const {
    if constexpr (Config::kScaled)
      return a_.alpha * scales_of_rows_[row];
    else
      return a_.alpha;
  }
  /// Shows the numbers of the tile's columns to all threads of the warpgroup.
  static FALCHION_DEVICE void share(float* of_tile, int warpgroup, const float (&of_columns)[kOfColumns]) {
    sync_threads<128>(1 + warpgroup);  // all threads have read what was there
    CUTE_UNROLL
    for (int i = 0; i < kOfColumns; ++i) {
      const int column = static_cast<int>(threadIdx.x) % 128 + 128 * i;
      if (Config::kColumns % 128 == 0 || column < Config::kColumns) of_tile[column] = of_columns[i];
    }
    sync_threads<128>(1 + warpgroup);
  }

  const GemmArgs& a_;
  float biases_of_columns_[kOfColumns], biases_of_rows_[kOfRows];
  float scales_of_columns_[Config::kScaled ? kOfColumns : 1], scales_of_rows_[Config::kScaled ? kOfRows : 1];
};

/// sums += by x for the columns of C or the residual from `first` on that are in a stage of the ring: 64 in the place
/// of A, and where kAddendColumns are more, the others in that of B.
template <class Config, class Half, class Sums>
FALCHION_DEVICE void add_stage(typename Config::Shared& shared, int stage, int warpgroup, int first, float by,
                               Sums& sums) {
  using gpu::LaneBlocks;
  const int thread = gpu::hidden(static_cast<int>(threadIdx.x) % 128);
  CUTE_UNROLL
  for (int wave = 0; wave < Config::kWaves; ++wave) {
    const int row = Config::row_of(wave, 4 * warpgroup + thread / 32);
    const LaneBlocks rows = LaneBlocks{LaneBlocks::down_first(thread % 32)}.from<Config::kRows>(row, 0);
    CUTE_UNROLL
    for (int i = 0; i < Config::kAddendColumns / 16; ++i) {
      if (first + 16 * i >= Config::kColumns) break;
      const std::uint32_t box = i < 4 ? cute::cast_smem_ptr_to_uint(shared.a[stage])  //
                                      : cute::cast_smem_ptr_to_uint(shared.b[stage]);
      gpu::Block block;  // two atoms of 8 columns, of four numbers each
      gpu::load_block(box + rows.template at<Config::kRows>(0, i % 4 * 16), block);
      CUTE_UNROLL
      for (int j = 0; j < 8; ++j) {
        const int at = (Config::kColumns * wave + first) / 2 + 8 * i + j;
        sums(at) = fmaf(by, gpu::number_of<Half>(block[j / 2], j % 2), sums(at));
      }
    }
  }
}

/// sums += by x, where x is C or the residual, which begins at stage `at` of the ring. With swiglu D has only half of
/// the columns.
template <class Config, class Sums, class Release>
FALCHION_DEVICE void add_addend(const GemmArgs& a, typename Config::Shared& shared, RingPosition<Config::kStages>& at,
                                int warpgroup, float by, Sums& sums, const Release& release) {
  const int columns = a.activation == GemmActivation::swiglu ? Config::kColumns / 2 : Config::kColumns;
  CUTE_UNROLL
  for (int first = 0; first < Config::kColumns; first += Config::kAddendColumns) {
    if (first >= columns) break;
    shared.full[at.stage].wait(at.parity);
    with_type_of_d<Config>(
        a, [&](auto type) { add_stage<Config, decltype(type)>(shared, at.stage, warpgroup, first, by, sums); });
    sync_threads<128>(1 + warpgroup);  // all warps have read the stage
    release(at.stage);
    at.advance();
  }
}

/// Turns the sums into D: activation(alpha s_a s_b sums + beta C + bias) + R. With swiglu the columns of D are the
/// first half.
template <class Config, class Sums, class Release>
FALCHION_DEVICE void finish(const GemmArgs& a, typename Config::Shared& shared, int warpgroup,
                            const TileTerms<Config>& terms, RingPosition<Config::kStages>& at, Sums& sums,
                            const Release& release) {
  terms.apply(shared.of_columns[warpgroup], warpgroup, sums);
  if (a.c.data != nullptr) add_addend<Config>(a, shared, at, warpgroup, a.beta, sums, release);
  if (a.activation == GemmActivation::swiglu) {
    constexpr int kOfWave = Config::kColumns / 2;
    CUTE_UNROLL
    for (int i = 0; i < Config::kNumbers; i += 2) {
      if (i % kOfWave >= kOfWave / 2) continue;
      brief_silu(sums(i), sums(i + 1));
      sums(i) *= sums(i + kOfWave / 2);
      sums(i + 1) *= sums(i + 1 + kOfWave / 2);
    }
  } else {
    activate_for_16_bits<Config::kNumbers>(a.activation, sums);
  }
  if (a.residual.data != nullptr) add_addend<Config>(a, shared, at, warpgroup, 1.f, sums, release);
}

}  // namespace falchion::sm90
