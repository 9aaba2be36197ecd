// src/ladder/gemm/whole_rows.cuh: rows of 16-byte pieces. From step 05 on kernels move 16 bytes at a time, so every row
// has to begin at a multiple of 16 bytes. Where the sizes do not make it so, the matrices are copied to such rows
// before the kernel, and C is copied back after it.
#pragma once

#include "ladder/gemm/operands.cuh"

namespace falchion::ladder::gemm::on_gpu {

/// The numbers in a piece of 16 bytes.
template <class T>
inline constexpr int kPiece = 16 / static_cast<int>(sizeof(T));

template <class T>
constexpr std::int64_t whole(int columns) {
  return std::int64_t{divide_up(columns, kPiece<T>)} * kPiece<T>;
}
template <class T>
constexpr bool is_whole(int columns) {
  return columns % kPiece<T> == 0;
}

/// The room for those matrices whose rows are not whole.
template <class T>
std::size_t whole_rows_bytes(const Problem& p) {
  const std::int64_t a = is_whole<T>(p.k) ? 0 : p.m * whole<T>(p.k);
  const std::int64_t bc = is_whole<T>(p.n) ? 0 : (std::int64_t{p.k} + p.m) * whole<T>(p.n);
  return static_cast<std::size_t>(a + bc) * sizeof(T);
}

/// A block of threads copies a row and writes 0 from column `columns` on.
template <class T>
__global__ void copy_rows(Head<const T> from, int columns, Head<T> to, int to_columns) {
  for (int column = threadIdx.x; column < to_columns; column += blockDim.x)
    to[blockIdx.x][column] = column < columns ? from[blockIdx.x][column] : T(0.f);
}

/// Calls run(operands) with matrices whose rows are whole. Behind the last column of A its rows are 0, so that a kernel
/// may multiply whole pieces; behind the last column of C there is room to write.
template <class T, class Run>
Status with_whole_rows(const Problem& p, const Tensors& t, Stream stream, const Run& run) {
  Operands<T> x = operands_of<T>(p, t);
  auto* room = static_cast<T*>(t.workspace);
  const auto copy = [&](Head<const T> from, int columns, Head<T> to, std::int64_t to_columns, int rows) {
    return launch(copy_rows<T>, dim3(static_cast<unsigned>(rows)), dim3(256), 0, stream, from, columns, to,
                  static_cast<int>(to_columns));
  };
  const auto widen = [&](Head<const T>* matrix, int columns, int rows) -> Status {
    if (is_whole<T>(columns)) return {};
    const Head<T> wide{room, whole<T>(columns)};
    room += rows * wide.stride;
    const Status status = copy(*matrix, columns, wide, wide.stride, rows);
    *matrix = {wide.data, wide.stride};
    return status;
  };
  if (Status status = widen(&x.A, p.k, p.m); !status) return status;
  if (Status status = widen(&x.B, p.n, p.k); !status) return status;
  if (is_whole<T>(p.n)) return run(x);
  const Head<T> narrow = x.C;
  x.C = {room, whole<T>(p.n)};
  if (Status status = run(x); !status) return status;
  return copy({x.C.data, x.C.stride}, p.n, narrow, p.n, p.m);
}

}  // namespace falchion::ladder::gemm::on_gpu
