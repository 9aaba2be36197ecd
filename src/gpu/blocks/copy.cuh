// src/gpu/blocks/copy.cuh: copies tiles from global to shared memory, 16 bytes per thread.
#pragma once

#include <cute/tensor.hpp>

#include "base/host_device.hpp"
#include "gpu/blocks/async.cuh"

namespace falchion::gpu {

using namespace cute;

/// Copies one 16-byte chunk with ordinary loads, for rows that are not 16-byte aligned. Elements from `left` on are not
/// read and become 0.
template <class Element>
FALCHION_DEVICE void copy_elements(const Element* from, Element* to, int left) {
  alignas(16) Element chunk[8];
  CUTE_UNROLL
  for (int i = 0; i < 8; ++i) chunk[i] = i < left ? from[i] : Element(0);
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(chunk);
}

/// Starts a copy of 16 bytes to shared memory. If not `inside`, it reads nothing and writes 0.
FALCHION_DEVICE void copy_async(const void* from, void* to, bool inside) {
  copy_chunk_async(from, cast_smem_ptr_to_uint(to), inside ? 16 : 0);
}

/// Which rows of a tile exist: the first ones, or those with an address.
FALCHION_DEVICE bool is_row(int rows, int row, const void*) { return row < rows; }
struct RowsWithAddress {};
FALCHION_DEVICE bool is_row(RowsWithAddress, int, const void* address) { return address != nullptr; }

/// Copies the rows of a tile to sX (rows, D), which is swizzled. Where a row does not exist or column >= columns it
/// reads nothing and writes 0. at(m, row) is the address of this thread's chunk of its m-th row; its further chunks of
/// that row lie one box apart. With kAligned the copies are cp.async, which the caller commits and waits for, and
/// columns must be a multiple of 8.
template <bool kAligned, class GlobalCopy, class Shared, class ExistingRows, class At>
FALCHION_DEVICE void load_rows(GlobalCopy copy, Shared&& sX, ExistingRows rows, int columns, At at) {
  const auto thread = copy.get_slice(threadIdx.x);
  auto tXsX = thread.partition_D(sX);                                                                // (8, M, K)
  const auto tXcX = thread.partition_S(make_identity_tensor(make_shape(size<0>(sX), size<1>(sX))));  // (row, column)
  const int column0 = static_cast<int>(get<1>(tXcX(0, 0, 0)));
  CUTE_UNROLL
  for (int m = 0; m < size<1>(tXsX); ++m) {
    const int row = static_cast<int>(get<0>(tXcX(0, m, 0)));
    const auto* from = at(m, row);
    const bool is_there = is_row(rows, row, from);
    CUTE_UNROLL
    for (int k = 0; k < size<2>(tXsX); ++k) {
      const int column = static_cast<int>(get<1>(tXcX(0, m, k)));
      if constexpr (kAligned) {
        copy_async(from + (column - column0), &tXsX(0, m, k), is_there && column < columns);
      } else {
        copy_elements(from + (column - column0), &tXsX(0, m, k), is_there ? columns - column : 0);
      }
    }
  }
}

}  // namespace falchion::gpu
