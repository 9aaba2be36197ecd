// src/gpu/attention_forward/append.cu: the kernel before attention that writes new keys into a KV cache and the rotated
// q into the workspace. Attention then reads both as any others, so that it serves every kind.
#include "base/host_device.hpp"
#include "gpu/attention_forward/before.hpp"

#include <cutlass/bfloat16.h>
#include <cutlass/half.h>

#include <cute/config.hpp>

#include "gpu/attention_forward/key_scale.cuh"
#include "gpu/attention_forward/query_row.cuh"
#include "gpu/blocks/stream_order.cuh"
#include "policy/cache_bytes.hpp"

namespace falchion::gpu {

inline constexpr int kAppendWarps = 4;

template <class Element>
FALCHION_DEVICE Element* row_of(const View& x, std::int64_t batch, std::int64_t row, int h) {
  return static_cast<Element*>(x.data) + batch * x.stride[0] + row * x.stride[1] + h * x.stride[2];
}

/// A warp copies the columns [first, d) of a row, 16 bytes a lane where both rows lie so.
template <class Element>
FALCHION_DEVICE void copy_columns(const Element* from, Element* to, int first, int d) {
  constexpr int kEach = 16 / sizeof(Element);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto places = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to);
  if (places % 16 == 0 && first % kEach == 0 && d % kEach == 0) {
    for (int c = first + lane * kEach; c < d; c += 32 * kEach)
      *reinterpret_cast<uint4*>(to + c) = *reinterpret_cast<const uint4*>(from + c);
    return;
  }
  for (int c = first + lane; c < d; c += 32) to[c] = from[c];
}

/// The same for a row of which the first columns turn.
template <class Element>
FALCHION_DEVICE void turn_row(const RotaryTable& rotation, std::int64_t position, const Element* from, Element* to,
                              int d) {
  const int dim = static_cast<int>(rotation.dim);
  for (int i = static_cast<int>(threadIdx.x) % 32; i < dim / 2; i += 32) {
    const std::int64_t one = rotation.first_column(i), other = rotation.second_column(i);
    const RotaryTable::Turn turn = rotation.at(position, i);
    const auto x = static_cast<float>(from[one]), y = static_cast<float>(from[other]);
    to[one] = static_cast<Element>(turn.first(x, y));
    to[other] = static_cast<Element>(turn.second(x, y));
  }
  copy_columns(from, to, dim, d);
}

/// Writes columns of a row into an 8-bit cache, whose numbers are Byte: std::int8_t, or std::uint8_t for e4m3. dim: of
/// the rotation; 0: no column turns. A lane has a column, so that a warp writes whole sectors.
template <class Byte, class Element>
FALCHION_DEVICE void write_bytes(const RotaryTable& rotation, std::int64_t dim, std::int64_t position,
                                 const Element* from, Byte* to, int d, float scale) {
  const auto keep = [&](std::int64_t column, float x) {
    if constexpr (std::is_same_v<Byte, std::int8_t>) {
      to[column] = cached_i8(x, scale);
    } else {
      to[column] = cached_e4m3(x, scale);
    }
  };
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = lane; i < dim / 2; i += 32) {
    const std::int64_t one = rotation.first_column(i), other = rotation.second_column(i);
    const RotaryTable::Turn turn = rotation.at(position, i);
    const auto x = static_cast<float>(from[one]), y = static_cast<float>(from[other]);
    keep(one, turn.first(x, y));
    keep(other, turn.second(x, y));
  }
  for (int c = static_cast<int>(dim) + lane; c < d; c += 32) keep(c, static_cast<float>(from[c]));
}

/// Heads of k_new, of v_new and of q, of one query row.
struct AppendedHeads {
  int k = 0, q = 0;
  FALCHION_HD explicit AppendedHeads(const AttentionArgs& a)
      : k(a.append ? static_cast<int>(a.h_k) : 0), q(a.rotation.dim > 0 ? static_cast<int>(a.h_q) : 0) {}
  FALCHION_HD int groups() const { return (2 * k + q + kAppendWarps - 1) / kAppendWarps; }
};

/// A warp has one head of k_new, v_new or q of one query row. Number is that of the cache: Element, or bytes as in
/// write_bytes.
template <class Element, class Number>
FALCHION_DEVICE void append_row(const AttentionArgs& a) {
  const AppendedHeads heads(a);
  const int row = static_cast<int>(blockIdx.x) / heads.groups();
  int h = (static_cast<int>(blockIdx.x) - row * heads.groups()) * kAppendWarps + static_cast<int>(threadIdx.x) / 32;
  if (h >= 2 * heads.k + heads.q) return;
  const QueryRow at(a, row);
  if (!at.exists) return;
  const NewKeys fresh = new_keys_of(a, at.b, at.q.length);
  const int d_qk = static_cast<int>(a.d_qk), d_v = static_cast<int>(a.d_v);
  const std::int64_t q_row = at.q.begin + at.i, position = fresh.position(at.i);
  if (h >= 2 * heads.k) {
    h -= 2 * heads.k;
    turn_row(a.rotation, position, row_of<const Element>(a.q, at.q.batch, q_row, h),
             row_of<Element>(rotated_q(a, a.rotated), at.q.batch, q_row, h), d_qk);
    return;
  }
  const KeyPlace place = fresh.at(at.i);
  if (!place.exists()) return;
  if constexpr (!std::is_same_v<Number, Element>) {
    const bool of_k = h < heads.k;
    const int h_k = of_k ? h : h - heads.k;
    write_bytes(a.rotation, of_k ? a.rotation.dim : 0, position,
                row_of<const Element>(of_k ? a.k_new : a.v_new, at.q.batch, q_row, h_k),
                row_of<Number>(of_k ? a.k : a.v, place.batch, place.row, h_k), of_k ? d_qk : d_v,
                scale_of_key(of_k ? a.k_scale : a.v_scale, place, h_k));
  } else if (h < heads.k) {
    turn_row(a.rotation, position, row_of<const Element>(a.k_new, at.q.batch, q_row, h),
             row_of<Element>(a.k, place.batch, place.row, h), d_qk);
  } else {
    h -= heads.k;
    copy_columns(row_of<const Element>(a.v_new, at.q.batch, q_row, h), row_of<Element>(a.v, place.batch, place.row, h),
                 0, d_v);
  }
}

template <class Element>
__global__ void __launch_bounds__(32 * kAppendWarps) attention_append(const __grid_constant__ AttentionArgs a) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  append_row<Element, Element>(a);
}
template <class Element, class Byte>
__global__ void __launch_bounds__(32 * kAppendWarps) attention_append_bytes(const __grid_constant__ AttentionArgs a) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  append_row<Element, Byte>(a);
}

template <auto kKernel>
int launch_append(const AttentionArgs& a, std::int64_t blocks, void* stream) {
  return launch_kernel<kKernel>(static_cast<unsigned>(blocks), 32 * kAppendWarps, 0, stream, a.early, a);
}

template <class Element>
int launch_attention_append(const AttentionArgs& a, void* stream) {
  const std::int64_t blocks = (a.packed ? a.total_q : a.b * a.s_q) * AppendedHeads(a).groups();
  if (blocks == 0) return cudaSuccess;
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  if constexpr (sizeof(Element) == 2) {
    if (a.type_k == Number::i8) return launch_append<attention_append_bytes<Element, std::int8_t>>(a, blocks, stream);
    if (a.type_k == Number::e4m3)
      return launch_append<attention_append_bytes<Element, std::uint8_t>>(a, blocks, stream);
  }
  return launch_append<attention_append<Element>>(a, blocks, stream);
}
template int launch_attention_append<cutlass::bfloat16_t>(const AttentionArgs&, void*);
template int launch_attention_append<cutlass::half_t>(const AttentionArgs&, void*);
template int launch_attention_append<float>(const AttentionArgs&, void*);

}  // namespace falchion::gpu
