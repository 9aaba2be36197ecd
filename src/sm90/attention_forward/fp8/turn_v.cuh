// src/sm90/attention_forward/fp8/turn_v.cuh: the kernel before kind fp8: it writes V turned, since wgmma wants both
// operands of 8 bits with neighbouring keys side by side, and TMA cannot turn bytes.
// tiles/attention_forward/turned_v.hpp says where what lies.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/tile.cuh"
#include "gpu/blocks/stream_order.cuh"
#include "tiles/attention_forward/turned_v.hpp"

namespace falchion::sm90 {

using namespace gpu;

/// The bytes of four words as a matrix, turned.
FALCHION_DEVICE void turn_bytes(std::uint32_t (&x)[4]) {
  const std::uint32_t low01 = __byte_perm(x[0], x[1], 0x5140), high01 = __byte_perm(x[0], x[1], 0x7362);
  const std::uint32_t low23 = __byte_perm(x[2], x[3], 0x5140), high23 = __byte_perm(x[2], x[3], 0x7362);
  x[0] = __byte_perm(low01, low23, 0x5410);
  x[1] = __byte_perm(low01, low23, 0x7632);
  x[2] = __byte_perm(high01, high23, 0x5410);
  x[3] = __byte_perm(high01, high23, 0x7632);
}

/// One block of 128 keys of one head: the grid is (sequence, head, block), with one sequence where they are packed.
/// Keys past the end become 0. a.v is V as the caller has it, with 16-byte aligned rows and a d_v that is a multiple
/// of 16.
template <int kD>
__global__ void __launch_bounds__(256)
    turn_v(const __grid_constant__ AttentionArgs a, unsigned char* to, std::int64_t columns) {
  constexpr int kBlock = kTurnedBlock, kLine = kBlock / 4 + 1;  // words; one more against bank conflicts
  __shared__ std::uint32_t turned[kD * kLine];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const auto d = static_cast<int>(a.d_v), heads = static_cast<int>(a.h_k), blocks = static_cast<int>(columns / kBlock);
  const int head = static_cast<int>(blockIdx.x) / blocks, place = static_cast<int>(blockIdx.x) % blocks;  // of all
  int b = head / heads, block = place;
  if (a.packed) {  // the sequence with this block
    int end = static_cast<int>(a.b);
    for (b = 0; end - b > 1;) {
      const int middle = (b + end) / 2;
      (turned_block_of(a.cu_k[middle], middle) <= block ? b : end) = middle;
    }
    block -= static_cast<int>(turned_block_of(a.cu_k[b], b));
  }
  const Rows rows = rows_of_k(a, b);
  const int length = rows.length - block * kBlock;
  if (block < 0 || length <= 0) return;
  const auto* const v = static_cast<const unsigned char*>(a.v.data) + rows.batch * a.v.stride[0] +
                        (rows.begin + block * kBlock) * a.v.stride[1] + head % heads * a.v.stride[2];
  // Each thread turns squares of 4 keys and 4 columns. Lanes have neighbouring columns of the same keys.
  for (int i = static_cast<int>(threadIdx.x); i < kBlock / 4 * (kD / 4); i += 256) {
    const int column = i % (kD / 4) * 4, quad = i / (kD / 4);
    if (column >= d) continue;
    std::uint32_t x[4];
    CUTE_UNROLL
    for (int k = 0; k < 4; ++k) {
      const int key = key_of_turned(4 * quad + k);
      x[k] = key < length ? *reinterpret_cast<const std::uint32_t*>(v + key * a.v.stride[1] + column) : 0;
    }
    turn_bytes(x);
    CUTE_UNROLL
    for (int k = 0; k < 4; ++k) turned[(column + k) * kLine + quad] = x[k];
  }
  __syncthreads();
  unsigned char* const line = to + static_cast<std::int64_t>(head) * d * columns + place * kBlock;
  for (int i = static_cast<int>(threadIdx.x); i < d * (kBlock / 16); i += 256) {
    const int row = i / (kBlock / 16), chunk = i % (kBlock / 16);
    const std::uint32_t* const from = turned + row * kLine + chunk * 4;
    *reinterpret_cast<uint4*>(line + row * columns + chunk * 16) = {from[0], from[1], from[2], from[3]};
  }
}

/// Enqueues it. The result is the view of V^T (sequence, head, column of V, key).
template <int kD>
int launch_turn_v(const AttentionArgs& a, View* turned, void* stream) {
  const std::int64_t columns = turned_columns(a.packed ? a.total_k : a.s_k, a.packed ? a.b : 0);
  auto* const to = static_cast<unsigned char*>(a.copies);
  *turned = {to, {a.h_k * a.d_v * columns, a.d_v * columns, columns, 1}};
  const std::int64_t blocks = columns / kTurnedBlock * a.h_k * (a.packed ? 1 : a.b);
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  if (blocks == 0) return cudaSuccess;
  return launch_kernel<turn_v<kD>>(static_cast<unsigned>(blocks), 256, 0, stream, a.early, a, to, columns);
}

}  // namespace falchion::sm90
