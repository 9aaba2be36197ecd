// src/sm90/gemm/operand.hpp: the layouts of the operands of Hopper's GEMM kernels in the stages of shared memory. A
// stage has one block of k of both. A TMA box is 128 bytes wide. An operand that is contiguous along k has one box of
// all rows of a tile; one that is contiguous along its rows has boxes of 64 rows with a line for each k. The 16-byte
// chunk c of line l lies at c ^ (l % 8), and wgmma reads both without bank conflicts.
#pragma once

#include <type_traits>

#include <cute/atom/mma_atom.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/tensor.hpp>

#include "args/gpu_gemm_args.hpp"

namespace falchion::sm90 {

using gpu::Major;

template <Major kMajor>
inline constexpr auto kGmmaMajor = kMajor == Major::k ? cute::GMMA::Major::K : cute::GMMA::Major::MN;

/// (rows, depth of a block of k, stages)
template <class Element, Major kMajor, int kRows, int kDepth, int kStages>
using OperandLayout =
    decltype(cute::tile_to_shape(std::conditional_t<kMajor == Major::k, cute::GMMA::Layout_K_SW128_Atom<Element>,
                                                    cute::GMMA::Layout_MN_SW128_Atom<Element>>{},
                                 cute::Shape<cute::Int<kRows>, cute::Int<kDepth>, cute::Int<kStages>>{},
                                 std::conditional_t<kMajor == Major::k, cute::Step<cute::_1, cute::_2, cute::_3>,
                                                    cute::Step<cute::_2, cute::_1, cute::_3>>{}));

}  // namespace falchion::sm90
