// src/ladder/gemm/hopper.cuh: what steps 10 to 13 and their branches share: tiles that TMA loads and wgmma multiplies,
// the tensor maps, and the store of C from registers. They run on sm_90 alone.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_tma.cuh"
#include "gpu/blocks/sm90_wgmma.cuh"
#include "ladder/gemm/order.hpp"
#include "ladder/gemm/whole_rows.cuh"

namespace falchion::ladder::gemm::on_gpu {

using namespace cute;  // NOLINT: the letters of its layouts are what these files are about
using bf16 = cute::bfloat16_t;
using cutlass::arch::ClusterBarrier;
using cutlass::arch::ClusterTransactionBarrier;

/// A tile of C of kRows x kColumns, the work of kWarpgroups warpgroups, and the ring of kStages tiles of A and B that
/// it is made from. TMA loads boxes of 64 numbers in 64 or more lines, swizzled as in step 07. A box of A has 64
/// columns of all rows. A box of B has 64 columns of 64 rows, so B stands transposed for wgmma, which can read it so.
template <int rows, int columns, int warpgroups, int stages>
struct HopperTile {
  static constexpr int kRows = rows, kColumns = columns, kDepth = 64, kStages = stages, kWarpgroups = warpgroups;
  static constexpr int kBoxesB = kColumns / 64;
  static constexpr int kBytes = (kRows + kColumns) * kDepth * static_cast<int>(sizeof(bf16));  // of a stage
  using Shape_ = Shape<Int<kRows>, Int<kColumns>, Int<kDepth>>;
  using LayoutA = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<bf16>{},  // (rows, depth, stages)
                                         Shape<Int<kRows>, Int<kDepth>, Int<kStages>>{}));
  using LayoutB = decltype(tile_to_shape(GMMA::Layout_MN_SW128_Atom<bf16>{},  // (columns, depth, stages)
                                         Shape<Int<kColumns>, Int<kDepth>, Int<kStages>>{}, cute::Step<_2, _1, _3>{}));
  // One instruction of a warpgroup multiplies 64 x columns x 16. Both operands lie in shared memory.
  using Mma =
      decltype(make_tiled_mma(GMMA::ss_op_selector<bf16, bf16, float, Shape_, GMMA::Major::K, GMMA::Major::MN>(),
                              Layout<Shape<Int<kWarpgroups>, _1, _1>>{}));
  using Position = sm90::RingPosition<kStages>;

  struct Ring {
    alignas(1024) bf16 A[kStages][kRows * kDepth];
    alignas(1024) bf16 B[kStages][kColumns * kDepth];
    ClusterTransactionBarrier full[kStages];  // its bytes have come
    ClusterBarrier empty[kStages];            // all who read it have done so
  };
};

struct TensorMaps {
  CUtensorMap a, b, c;
};

/// What is to be computed, in tiles.
struct Sizes {
  int row_tiles, column_tiles, blocks;  // blocks: of 64 along k
};

/// Asks for A's box at (row, column). The bytes are counted by `full`.
template <class Tile>
FALCHION_DEVICE void load_a(const TensorMaps& maps, typename Tile::Ring& ring, int stage, int row, int column) {
  SM90_TMA_LOAD_4D::copy(&maps.a, reinterpret_cast<std::uint64_t*>(&ring.full[stage]), sm90::kReadByOthers,
                         ring.A[stage], column, 0, row, 0);
}
/// Box `box` of B's tile at (row, column).
template <class Tile>
FALCHION_DEVICE void load_b(const TensorMaps& maps, typename Tile::Ring& ring, int stage, int row, int column,
                            int box) {
  SM90_TMA_LOAD_4D::copy(&maps.b, reinterpret_cast<std::uint64_t*>(&ring.full[stage]), sm90::kReadByOthers,
                         ring.B[stage] + box * 64 * Tile::kDepth, column + box * 64, 0, row, 0);
}

/// A warpgroup's share of a tile of C, in registers: 64 rows of each 64 kWarpgroups.
template <class Tile>
class TileProduct {
 public:
  FALCHION_DEVICE explicit TileProduct(int warpgroup) : warpgroup_(warpgroup) {}
  FALCHION_DEVICE void clear() { cute::clear(sum_); }

  /// C += A B of a stage. It runs on its own until it is waited for.
  FALCHION_DEVICE void start(typename Tile::Ring& ring, int stage) {
    const auto sA = make_tensor(make_smem_ptr(ring.A[0]), typename Tile::LayoutA{});
    const auto sB = make_tensor(make_smem_ptr(ring.B[0]), typename Tile::LayoutB{});
    const auto mma = typename Tile::Mma{};
    const auto slice = mma.get_slice(warpgroup_ * 128);
    const auto rA = slice.partition_fragment_A(sA);  // (1, rows / 64, depth / 16, stages) descriptors
    const auto rB = slice.partition_fragment_B(sB);  // (1, 1, depth / 16, stages) descriptors
    sm90::start_multiply<false>(mma, rA(_, _, _, stage), rB(_, _, _, stage), sum_);
  }
  /// Waits until at most the last kBehind stages that were started are still running.
  template <int kBehind>
  FALCHION_DEVICE void wait() {
    sm90::wait_multiply<kBehind>(sum_);
  }

  /// Two neighbours in row `row` of a lane's 2 kHeight rows, in group `group` of 8 columns, in bf16.
  FALCHION_DEVICE __nv_bfloat162 pair(int row, int group) const {
    const float* const sum = &sum_(make_coord(_0{}, row % 2, group), row / 2, 0);
    return __floats2bfloat162_rn(sum[0], sum[1]);
  }
  static constexpr int kHeight = Tile::kRows / 64 / Tile::kWarpgroups;  // parts of 64 rows in a warpgroup
  /// Where part `part` of kHeight, of 64 rows, begins in the tile. A warp has 16 rows of it.
  FALCHION_DEVICE int box_row(int part) const { return (part * Tile::kWarpgroups + warpgroup_) * 64; }

  /// Calls f(number, sum) for each of the kSums sums of this thread: neighbours in a row, then the row 8 further down,
  /// then the next 8 columns.
  static constexpr int kSums = kHeight * Tile::kColumns / 2;
  template <class F>
  FALCHION_DEVICE void for_each(const F& f) {
    CUTE_UNROLL
    for (int i = 0; i < kSums; ++i) f(i, sum_(i));
  }

  FALCHION_DEVICE float sum(int number) const { return sum_(number); }
  /// Calls f(i, j, number) for each two neighbours in a row of C that are inside of it: sums `number` and the next one.
  /// The first `columns` columns of the sums lie at (i0, j0).
  template <class F>
  FALCHION_DEVICE void for_each_place(int m, int n, int i0, int j0, int columns, const F& f) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp_row = static_cast<int>(threadIdx.x) / 32 % 4 * 16;
    CUTE_UNROLL
    for (int r = 0; r < 2 * kHeight; ++r) {
      const int i = i0 + box_row(r / 2) + warp_row + r % 2 * 8 + lane / 4;
      CUTE_UNROLL
      for (int group = 0; group < columns / 8; ++group) {
        const int j = j0 + group * 8 + lane % 4 * 2;
        if (i < m && j < n) f(i, j, r / 2 * (Tile::kColumns / 2) + group * 4 + r % 2 * 2);
      }
    }
  }
  /// Stores C's tile at (i0, j0), each lane two numbers at a time.
  FALCHION_DEVICE void store(const Operands<bf16>& x, int i0, int j0) const {
    for_each_place(x.m, x.n, i0, j0, Tile::kColumns, [&](int i, int j, int at) {
      *reinterpret_cast<__nv_bfloat162*>(&x.C[i][j]) = __floats2bfloat162_rn(sum_(at), sum_(at + 1));
    });
  }

 private:
  const int warpgroup_;
  decltype(partition_fragment_C(typename Tile::Mma{}, Shape<Int<Tile::kRows>, Int<Tile::kColumns>>{})) sum_;
};

/// Makes the tensor maps, which tell TMA beforehand where a matrix lies and how a box of it is swizzled, and calls
/// run(operands, maps, sizes).
template <class Tile, class Run>
Status with_maps(const Problem& p, const Tensors& t, Stream stream, const Run& run) {
  if (p.m == 0 || p.n == 0) return {};
  return with_whole_rows<bf16>(p, t, stream, [&](const Operands<bf16>& x) -> Status {
    TensorMaps maps;
    const auto make = [&](CUtensorMap* map, const bf16* data, std::int64_t stride, int rows, int columns,
                          int box_rows) {
      return sm90::make_tensor_map<bf16>(map, View{const_cast<bf16*>(data), {rows * stride, stride, columns, 1}},
                                         sm90::TensorBox{1, rows, 1, columns, 64, 1, box_rows}, x.C.data);
    };
    for (const cudaError_t error : {make(&maps.a, x.A.data, x.A.stride, p.m, p.k, Tile::kRows),
                                    make(&maps.b, x.B.data, x.B.stride, p.k, p.n, Tile::kDepth),
                                    make(&maps.c, x.C.data, x.C.stride, p.m, p.n, 64)})
      if (error != cudaSuccess) return to_status(error);
    return run(x, maps,
               Sizes{divide_up(p.m, Tile::kRows), divide_up(p.n, Tile::kColumns), divide_up(p.k, Tile::kDepth)});
  });
}

}  // namespace falchion::ladder::gemm::on_gpu
