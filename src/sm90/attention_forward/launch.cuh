// src/sm90/attention_forward/launch.cuh: the host side of Hopper's forward kernel: its tensor maps, its grid, and the
// entry of a variant in the table of kernels. docs/design/sm90_forward.md describes the kernel.
#pragma once

#include "gpu/attention_forward/after.hpp"
#include "gpu/attention_forward/entry.hpp"
#include "gpu/attention_forward/tile.cuh"
#include "gpu/blocks/launch_number.hpp"
#include "gpu/blocks/stream_order.cuh"
#include "sm90/attention_forward/kernel.cuh"

namespace falchion::sm90 {

using namespace gpu;

/// k: the box of k.
template <class Config>
cudaError_t make_map_of_v(const AttentionArgs& a, const TensorBox& k, CUtensorMap* map) {
  if constexpr (Config::kTurnedV) {  // (sequence, head, column of V, key)
    const std::int64_t columns = turned_columns(a.packed ? a.total_k : a.s_k, a.packed ? a.b : 0);
    return make_tensor_map<std::uint8_t>(map, a.v, {k.batch, a.h_k, a.d_v, columns, kTurnedBlock, Config::kDv, 1},
                                         a.o.data);
  } else {
    TensorBox v = k;
    v.d = a.d_v;
    v.box_columns = Config::kBoxV;
    return make_tensor_map<typename Config::Element>(map, a.v, v, a.o.data);
  }
}

/// The tensor maps of q, k and v. Packed sequences lie in one batch entry, and each page in one of its own. A box of q
/// has the `group` heads that share a tile of rows. An empty tensor may have no address; its map gets that of o. `a`
/// has the tensors that the kernel loads: for kind halves the parts, not the operands of the problem.
template <class Config>
cudaError_t make_tensor_maps(const AttentionArgs& a, TensorMaps* maps) {
  using ElementQk = typename Config::ElementQk;
  const bool packed_k = has_packed_keys(a);
  const TensorBox q{a.packed ? 1 : a.b,     a.packed ? a.total_q : a.s_q, a.h_q, a.d_qk, Config::kBox, a.group,
                    Config::kRows / a.group};
  TensorBox k{packed_k ? 1 : a.b, packed_k ? a.total_k : a.s_k, a.h_k, a.d_qk, Config::kBox, 1, Config::kKeys};
  if constexpr (Config::kPages) {
    k.batch = a.pages.count;
    k.rows = a.pages.size;
    k.box_rows = keys_of_piece(a.pages.size, Config::kKeys);
  }
  cudaError_t error = make_tensor_map<ElementQk>(&maps->q, a.q, q, a.o.data);
  if (error == cudaSuccess) error = make_tensor_map<ElementQk>(&maps->k, a.k, k, a.o.data);
  if (error == cudaSuccess) error = make_map_of_v<Config>(a, k, &maps->v);
  return error;
}

/// loaded: q, k and v for make_tensor_maps.
template <class Config, class Consumer>
int launch_attention_forward(const AttentionArgs& a, const AttentionArgs& loaded, void* stream) {
  const std::int64_t tiles = a.tiles * (a.h_q / a.group) * (a.packed ? 1 : a.b) * a.splits;
  if (tiles == 0) return cudaSuccess;
  // The plan knows packed rows only as a hint, so the real number of tiles may be too large.
  if (tiles > INT32_MAX) return cudaErrorInvalidConfiguration;
  // A TMA box holds whole groups of heads; the plan only chooses such groups.
  if (Config::kRows % a.group != 0) return cudaErrorNotSupported;
  TensorMaps maps;
  cudaError_t error = make_tensor_maps<Config>(loaded, &maps);
  if (error != cudaSuccess) return error;
  const Schedule schedule =
      Schedule::make(static_cast<int>(tiles), static_cast<int>(a.tiles), {a.section, a.last_section});
  const auto blocks = static_cast<unsigned>(a.walkers > 0 ? std::min(a.walkers, schedule.items) : schedule.items);
  return launch_kernel<attention_forward<Config, Consumer>>(blocks, Config::kThreads, Config::kSharedBytes, stream,
                                                            a.early, a, Divisors(a), maps, schedule, launch_number());
}

/// The variant's entry in the table of kernels. Where the keys are split, a second kernel combines the parts.
template <class Config, class Scores>
constexpr gpu::AttentionKernel attention_forward_entry() {
  return attention_kernel_of<Config>([](const AttentionArgs& a, void* stream) {
    const int error = launch_attention_forward<Config, Consumer<Config, Scores>>(a, a, stream);
    return error == 0 && a.splits > 1 ? launch_attention_combine<typename Config::Element>(a, stream) : error;
  });
}

}  // namespace falchion::sm90
