// src/sm80/attention_backward/mma.cuh: the products of the backward pass in 16 bits, on mma.sync m16n8k16. Each warp
// has 16 of the rows that a CTA owns. So P and dS, which are results of two products and the first operands of the next
// two, stay in its registers.
#pragma once

#include <cute/atom/copy_atom.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/tensor.hpp>

#include "base/host_device.hpp"
#include "gpu/blocks/mma.cuh"
#include "gpu/blocks/mma_fragments.cuh"
#include "tiles/attention_backward/sm80.hpp"

namespace falchion::sm80 {

using namespace gpu;

using bf16 = cutlass::bfloat16_t;
using f16 = cutlass::half_t;

template <class Element_, int kD_>
struct BackwardMma {
  using Element = Element_;
  static constexpr BackwardTiles kTiles = attention_backward_tiles(BackwardKind::bits16, kD_);
  static constexpr int kD = kD_, kOwn = kTiles.own, kVisited = kTiles.visited, kColumns = kTiles.columns;
  static constexpr int kThreads = kTiles.threads, kStages = kTiles.stages, kCtas = kTiles.ctas;
  static constexpr int kSharedBytes = backward_shared_bytes(kTiles);
  static constexpr int kChunk = 8;  // elements that are copied at a time
  static constexpr int kSizeOwn = kOwn * kD, kSizeVisited = kVisited * kD, kSizeP = 0;  // elements in shared memory
  static_assert(kOwn == kThreads / 2 && kVisited % 16 == 0 && kColumns % 64 == 0);

  // A tile consists of boxes of 8 rows x 64 elements, where the swizzle moves the 16-byte chunk c of row r to c ^ (r %
  // 8). So the 8 rows that one phase of ldmatrix reads lie in 8 different groups of banks.
  using Box = decltype(cute::composition(
      cute::Swizzle<3, 3, 3>{}, cute::Layout<cute::Shape<cute::_8, cute::_64>, cute::Stride<cute::_64, cute::_1>>{}));
  template <int kRows, int kWidth>
  using Tile = decltype(cute::tile_to_shape(Box{}, cute::Shape<cute::Int<kRows>, cute::Int<kWidth>>{}));
  using LayoutOwn = Tile<kOwn, kD>;               // (own, D)
  using LayoutVisited = Tile<kVisited, kD>;       // (visited, D)
  using LayoutPart = decltype(cute::composition(  // (columns, visited): the columns of one part, transposed
      Tile<kVisited, kColumns>{},
      cute::make_layout(cute::Shape<cute::Int<kColumns>, cute::Int<kVisited>>{}, cute::GenRowMajor{})));

  using MmaAtom = std::conditional_t<std::is_same_v<Element, bf16>, cute::SM80_16x8x16_F32BF16BF16F32_TN,
                                     cute::SM80_16x8x16_F32F16F16F32_TN>;
  static constexpr int kWarps = kThreads / 32;
  using TiledMma =
      cute::TiledMMA<cute::MMA_Atom<MmaAtom>, cute::Layout<cute::Shape<cute::Int<kWarps>, cute::_1, cute::_1>>,
                     cute::Tile<cute::Int<16 * kWarps>, cute::_16, cute::_16>>;
  using CopyAtom = cute::Copy_Atom<cute::SM75_U32x4_LDSM_N, Element>;
  using CopyAtomTransposed = cute::Copy_Atom<cute::SM75_U16x8_LDSM_T, Element>;

  /// The offset of the chunk of 8 elements from (row, column) on in a tile of kRows rows.
  template <int kRows>
  static FALCHION_DEVICE int at(int row, int column) {
    return swizzled<kRows>(row, column);
  }

  /// This thread's part of a matrix (own, width) in f32, indexed by (r, c).
  template <int kWidth>
  struct Matrix {
    using Fragment =
        decltype(cute::partition_fragment_C(TiledMma{}, cute::Shape<cute::Int<kOwn>, cute::Int<kWidth>>{}));
    static constexpr int kRows = 2, kColumns = kWidth / 4;
    Fragment fragment;

    FALCHION_DEVICE float& operator()(int r, int c) { return rows_columns(fragment)(r, c); }
    static FALCHION_DEVICE int row(int r) {
      return static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * r;
    }
    static FALCHION_DEVICE int column(int c) { return c / 2 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + c % 2; }
    FALCHION_DEVICE void clear() { cute::clear(fragment); }
  };
  using Scores = Matrix<kVisited>;
  using Output = Matrix<kColumns>;

  /// S = A B^T over the head dims.
  static FALCHION_DEVICE void multiply(Scores& s, const Element* own, const Element* visited) {
    const TiledMma mma;
    const auto sA = make_tensor(make_smem_ptr(own), LayoutOwn{});
    const auto sB = make_tensor(make_smem_ptr(visited), LayoutVisited{});
    const auto thread = mma.get_thread_slice(threadIdx.x);
    const auto copy_a = make_tiled_copy_A(CopyAtom{}, mma).get_thread_slice(threadIdx.x);
    const auto copy_b = make_tiled_copy_B(CopyAtom{}, mma).get_thread_slice(threadIdx.x);
    auto rA = thread.partition_fragment_A(sA);
    auto rB = thread.partition_fragment_B(sB);
    auto to_a = copy_a.retile_D(rA);
    auto to_b = copy_b.retile_D(rB);
    const auto from_a = copy_a.partition_S(sA);
    const auto from_b = copy_b.partition_S(sB);
    s.clear();
    sm80::multiply(
        mma, s.fragment, rA, rB, [&](auto k) { copy(CopyAtom{}, from_a(_, _, k), to_a(_, _, k)); },
        [&](auto k) { copy(CopyAtom{}, from_b(_, _, k), to_b(_, _, k)); });
  }

  /// out += P B, where B has the columns of `part` of a visited tile. P is rounded to 16 bits.
  static FALCHION_DEVICE void add_product(Output& out, Scores& p, const Element* visited, int part, Element*) {
    const TiledMma mma;
    const auto sB =
        make_tensor(make_smem_ptr(visited + part * (kVisited * kColumns)), LayoutPart{});  // (columns, visited)
    auto rP = make_tensor<Element>(as_operand_a(p.fragment.layout()));
    convert(make_tensor(p.fragment.data(), as_operand_a(p.fragment.layout())), rP);
    const auto copy_b = make_tiled_copy_B(CopyAtomTransposed{}, mma).get_thread_slice(threadIdx.x);
    auto rB = mma.get_thread_slice(threadIdx.x).partition_fragment_B(sB);
    auto to_b = copy_b.retile_D(rB);
    const auto from_b = copy_b.partition_S(sB);
    sm80::multiply(
        mma, out.fragment, rP, rB, [](auto) {},
        [&](auto k) { copy(CopyAtomTransposed{}, from_b(_, _, k), to_b(_, _, k)); });
  }
};

}  // namespace falchion::sm80
