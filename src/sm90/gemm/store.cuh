// src/sm90/gemm/store.cuh: the end of a tile of a GEMM for a consumer warpgroup: it turns its rows of sums into D, or
// stores them as a part of the sums where k is split.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/mma.cuh"
#include "gpu/blocks/sm90_wgmma.cuh"
#include "gpu/gemm/store.cuh"
#include "sm90/gemm/epilogue.cuh"

namespace falchion::sm90 {

/// Rounds 64 columns of D of 16 bits into a box, from sum number `at` of the lane on.
template <class Half, class Fragment>
FALCHION_DEVICE void put_box(unsigned char* to, int at, float by, const Fragment& sums, Half) {
  using gpu::LaneBlocks;
  const int lane = gpu::hidden(static_cast<int>(threadIdx.x) % 32);
  const LaneBlocks first{LaneBlocks::down_first(lane)};
  CUTE_UNROLL
  for (int i = 0; i < 4; ++i) {
    gpu::Block block;  // two atoms of 8 columns, of four numbers each
    CUTE_UNROLL
    for (int j = 0; j < 4; ++j)
      block[j] = gpu::round_pair<Half>(by * sums(at + 8 * i + 2 * j), by * sums(at + 8 * i + 2 * j + 1));
    gpu::store_block(cute::cast_smem_ptr_to_uint(to) + first.template at<16>(0, 16 * i), 0, block);
  }
}
/// Copies 32 columns of sums in i32 into a box. They come as floats with the same bits.
template <class Fragment>
FALCHION_DEVICE void put_box(unsigned char* to, int at, float, const Fragment& sums, std::int32_t) {
  const int lane = gpu::hidden(static_cast<int>(threadIdx.x) % 32);
  CUTE_UNROLL
  for (int atom = 0; atom < 4; ++atom) {
    CUTE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int of_pair = at + 4 * atom + 2 * half;
      *reinterpret_cast<float2*>(to + byte_of_pair(lane / 4 + 8 * half, 8 * atom + 2 * (lane % 4))) =
          make_float2(sums(of_pair), sums(of_pair + 1));
    }
  }
}

/// Stores D, of type Out, by TMA. A warp puts 128 bytes of its 16 rows into shared memory, and TMA stores them from
/// there while the next ones are put. Each warp has room for two such boxes and waits for no other warp. With swiglu
/// the columns of D are the first half.
template <class Config, class Out, class Fragment>
FALCHION_DEVICE void store_boxes(const GemmArgs& a, const GemmTile& t, const GemmMaps& maps,
                                 typename Config::Shared& shared, int warpgroup, float by, const Fragment& sums) {
  constexpr int kBytes = 16 * 128, kColumns = 128 / static_cast<int>(sizeof(Out));
  constexpr int kBoxes = (Config::kColumns + kColumns - 1) / kColumns;
  static_assert(GemmTiles::kOutBytes == 2 * kBytes);
  const int lane = gpu::hidden(static_cast<int>(threadIdx.x) % 32);
  const int warp = 4 * warpgroup + static_cast<int>(threadIdx.x) % 128 / 32;
  const bool pairs = a.activation == GemmActivation::swiglu;
  int place = 0;
  CUTE_UNROLL
  for (int wave = 0; wave < Config::kWaves; ++wave) {
    CUTE_UNROLL
    for (int box = 0; box < kBoxes; ++box) {
      if (pairs && box >= kBoxes / 2) break;
      // Wait until TMA has read the box before the last one. The first box of a tile waits for both, since the previous
      // tile may have ended with a box in the same place.
      if (lane == 0) wave == 0 && box == 0 ? cute::tma_store_wait<0>() : cute::tma_store_wait<1>();
      __syncwarp();
      unsigned char* const to = shared.out[warp] + place * kBytes;
      place ^= 1;
      const int begin = Config::box_column(box, kColumns);
      put_box(to, (Config::kColumns * wave + begin) / 2, by, sums, Out{});
      publish_to_async();
      __syncwarp();
      const std::int64_t column = t.column0 + begin, row = t.row0 + Config::row_of(wave, warp);
      if (lane == 0 && column < a.n && row < a.m) {
        const ColumnOfD of(a, column);
        cute::SM90_TMA_STORE_4D::copy(&maps.d, to, of.n1, of.n2, static_cast<int>(row),
                                      a.d.stride[0] != 0 ? static_cast<int>(t.batch) : 0);
      }
      if (lane == 0) cute::tma_store_arrive();
    }
  }
}

/// The same for the type that D has.
template <class Config, class Fragment>
FALCHION_DEVICE void store_in_boxes(const GemmArgs& a, const GemmTile& t, const GemmMaps& maps,
                                    typename Config::Shared& shared, int warpgroup, const Fragment& sums) {
  const float by = a.plain ? a.alpha : 1.f;  // else they have been multiplied
  if constexpr (std::is_same_v<typename Config::Sum, std::int32_t>) {
    if (a.d_i32) return store_boxes<Config, std::int32_t>(a, t, maps, shared, warpgroup, by, sums);
  }
  with_type_of_d<Config>(
      a, [&](auto type) { store_boxes<Config, decltype(type)>(a, t, maps, shared, warpgroup, by, sums); });
}

/// Stores the sums of a part of k, unchanged.
template <class Config, class Fragment>
FALCHION_DEVICE void store_part(const GemmArgs& a, const GemmTile& t, int warpgroup, const Fragment& sums) {
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  CUTE_UNROLL
  for (int at = 0; at < 2 * Config::kWaves; ++at) {
    const int row = Config::row_of(at / 2, 4 * warpgroup + thread / 32) + lane / 4 + 8 * (at % 2);
    if (t.row0 + row >= a.m) continue;
    float* const to = gpu::partials_of(a, t, t.first_row + row) + 2 * (lane % 4);
    CUTE_UNROLL
    for (int atom = 0; atom < Config::kColumns / 8; ++atom) {
      const int of_pair = Config::kColumns / 2 * (at / 2) + 4 * atom + 2 * (at % 2);
      *reinterpret_cast<float2*>(to + 8 * atom) = make_float2(sums(of_pair), sums(of_pair + 1));
    }
  }
}

/// Moves 64 columns of a warp's 16 rows of sums through shared memory, so that each lane gets four neighbouring
/// columns. With swiglu they are 32 gates and the 32 matching columns of "up".
class SumsOfWarp {
 public:
  explicit FALCHION_DEVICE SumsOfWarp(unsigned char* memory) : memory_(memory) {}

  /// kBox: which 64 columns of the fragment, wave after wave.
  template <int kBox, class Config, class Fragment>
  FALCHION_DEVICE void put(const Fragment& sums, bool pairs) const {
    constexpr int kFirst = kBox / Config::kBoxes * (Config::kColumns / 8), kIn = kBox % Config::kBoxes;
    const int lane = gpu::hidden(static_cast<int>(threadIdx.x) % 32);
    CUTE_UNROLL
    for (int atom = 0; atom < 8; ++atom) {
      const int of_pairs = kFirst + 4 * kIn + atom % 4 + atom / 4 * (Config::kColumns / 16);
      const int of_all = kFirst + Config::box_column(kIn) / 8 + atom;
      CUTE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int p = 4 * of_pairs + 2 * half, q = 4 * of_all + 2 * half;
        const float2 two = pairs ? make_float2(sums(p), sums(p + 1)) : make_float2(sums(q), sums(q + 1));
        const int row = lane / 4 + 8 * half;
        *reinterpret_cast<float2*>(chunk(row, 2 * atom + lane % 4 / 2) + lane % 2 * 8) = two;
      }
    }
  }
  FALCHION_DEVICE float4 four(int row, int at) const { return *reinterpret_cast<const float4*>(chunk(row, at)); }

 private:
  /// Chunk c of row r lies at c ^ 2 (r % 8), so that the four rows of a phase of 8-byte stores lie in different banks.
  FALCHION_DEVICE unsigned char* chunk(int row, int c) const { return memory_ + row * 256 + (c ^ row % 8 * 2) * 16; }
  unsigned char* memory_;
};

/// Stores D without TMA: turns the sums into D four columns at a time.
template <class Config, class Fragment>
FALCHION_DEVICE void store_columns(const GemmArgs& a, const GemmTile& t, typename Config::Shared& shared, int warpgroup,
                                   const Fragment& sums) {
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32, warp = 4 * warpgroup + thread / 32;
  const bool pairs = a.activation == GemmActivation::swiglu;
  const SumsOfWarp staged(shared.out[warp]);
  const Epilogue<typename Config::Element> epilogue(a);
  const int fours = pairs ? 8 : 16;  // in a row of the box
  constexpr int kBoxes = Config::kWaves * Config::kBoxes;
#pragma unroll 1
  for (int box = 0; box < kBoxes; ++box) {
    switch (box) {
      case 0: staged.put<0, Config>(sums, pairs); break;
      case 1: staged.put<(kBoxes > 1 ? 1 : 0), Config>(sums, pairs); break;
      case 2: staged.put<(kBoxes > 2 ? 2 : 0), Config>(sums, pairs); break;
      default: staged.put<(kBoxes > 3 ? 3 : 0), Config>(sums, pairs); break;
    }
    __syncwarp();
    const int in = box % Config::kBoxes, begin = pairs ? 32 * in : Config::box_column(in);
#pragma unroll 1
    for (int at = lane; at < 16 * fours; at += 32) {
      const int row = at / fours, four = at % fours;
      const std::int64_t i = t.row0 + Config::row_of(box / Config::kBoxes, warp) + row;
      const std::int64_t j = t.column0 + begin + 4 * four;
      // A column must come once: where D is C, a second time would begin with the result of the first.
      const bool again = !pairs && begin + 4 * four < 64 * in;
      if (i >= a.m || j >= a.n || again) continue;
      const float4 z = staged.four(row, four), up = staged.four(row, four + (pairs ? 8 : 0));
      float of_z[4] = {z.x, z.y, z.z, z.w}, of_up[4] = {up.x, up.y, up.z, up.w};
      epilogue.run(t.batch, i, j, of_z, of_up);
    }
    __syncwarp();
  }
}

}  // namespace falchion::sm90
