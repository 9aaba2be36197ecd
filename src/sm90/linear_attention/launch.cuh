// src/sm90/linear_attention/launch.cuh: the kernel of linear attention on Hopper: what its CTAs do before the first
// chunk and after the last one, and its launch. Where sequences are cut into segments, each CTA first sums its part of
// the states that later segments start from and then goes over its own chunks, in the same launch.
// docs/design/linear_attention.md, "Few heads on Hopper: one launch that looks back", describes it.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/launch_number.hpp"
#include "gpu/blocks/stream_order.cuh"
#include "sm90/linear_attention/segments.cuh"

namespace falchion::sm90 {

/// For the warpgroup that carries S: sets S to the state before this CTA's first chunk. Segment 0 starts from the
/// initial state, if there is one. Where sequences are cut into segments, the CTA keeps that start in a tile of its own
/// and sums its part (in segment 0 on top of the initial state). From then on the output warps may use the rings. Once
/// the tiles are empty it publishes the sum, and then adds up what the CTAs of earlier segments publish.
template <class Config, class State>
FALCHION_DEVICE void start_state(const LinearCta& cta, State& state, typename Config::Shared& shared) {
  const View& x = cta.sweep.initial;
  const float* const s0 = cta.block.segment == 0 ? state_of(x, cta.block.b, cta.block.h) : nullptr;
  if (s0 != nullptr) state.add(s0, x.stride[2], x.stride[3], cta.sweep.initial_scale);
  if (cta.a.segments == 1) return sums_are_made<Config>();
  LookBack<Config, State> look_back(cta, state);
  if (s0 != nullptr) look_back.keep_start();
  state.template run<true>(cta.to_sum(), shared);
  sums_are_made<Config>();
  look_back.tiles.wait_until_ready();
  if (cta.sums) look_back.publish(cta.block.segment);
  state.set_zero();
  if (s0 != nullptr) look_back.add_start();
  if (cta.block.segment > 0) look_back.add_earlier();
  if (cta.block.segment + 1 == cta.a.segments) look_back.tiles.forget();
}
/// For the first output warpgroup, while the sums are made: empties the tiles that this CTA will publish.
template <class Config>
FALCHION_DEVICE void make_tiles_ready(const LinearCta& cta) {
  if (cta.a.segments > 1) ColumnTiles<Config>(cta).make_ready();
}
/// Stores S after the last chunk of the last segment as the final state, if the caller has asked for it.
template <class State>
FALCHION_DEVICE void finish_state(const LinearCta& cta, State& state) {
  const View& x = cta.sweep.final;
  float* const s1 = state_of(x, cta.block.b, cta.block.h);
  if (cta.block.segment + 1 < cta.a.segments || s1 == nullptr) return;
  state.for_each([&](int m, int e, float s) { s1[e * x.stride[2] + m * x.stride[3]] = s * cta.sweep.final_scale; });
}

/// The kernel. Roles has the work of each warp of a CTA.
template <class Roles>
__global__ void __launch_bounds__(Roles::Config::kThreads, Roles::Config::kCtas)
    linear_attention(const __grid_constant__ LinearAttentionArgs a, const __grid_constant__ LinearSweeps sweeps,
                     const __grid_constant__ AllLinearMaps maps, std::uint64_t number) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<typename Roles::Config::Shared*>(memory);
  const LinearCta cta(a, sweeps, maps, number);
  if (cta.column0 >= cta.sweep.d_v) return;
  if (threadIdx.x == 0) shared.init();
  __syncthreads();
  Roles::run(cta, shared);
}

/// The tensor maps of one sweep. A box has 64 tokens and 128 bytes of each token, or 64 columns of each in wide CTAs,
/// which have all columns of a head.
template <class Config, class Element>
cudaError_t make_linear_maps(const LinearAttentionArgs& a, const LinearSweep& sweep, LinearMaps* maps) {
  const auto make = [&](CUtensorMap* map, const LinearSweep::Rows16& of, int d) {
    const TensorBox box{a.b, a.s, a.h_v / of.shared, d, Config::kColumns > 64 ? 64 : 128 / sizeof(Element), 1, 64};
    if constexpr (Config::kColumns > 64) return make_lines_map<Element>(map, of.x, box);
    return make_tensor_map<Element>(map, of.x, box, nullptr);
  };
  cudaError_t error = make(&maps->q, sweep.q, sweep.d_qk);
  if (error == cudaSuccess) error = make(&maps->k, sweep.k, sweep.d_qk);
  if (error == cudaSuccess) error = make(&maps->v, sweep.v, sweep.d_v);
  if (error == cudaSuccess) error = make(&maps->o, sweep.o, sweep.d_v);
  return error;
}

/// The tensor maps of all sweeps.
template <class Config, class Element>
cudaError_t make_linear_maps(const LinearAttentionArgs& a, const LinearSweeps& sweeps, AllLinearMaps* maps) {
  cudaError_t error = cudaSuccess;
  // Without tokens or heads no CTA uses the maps.
  for (int i = 0; a.s > 0 && a.b * a.h_v > 0 && i < sweeps.count && error == cudaSuccess; ++i)
    error = make_linear_maps<Config, Element>(a, sweeps.sweep[i], &maps->of[i]);
  return error;
}

/// Element is the type of q, k, v and o in memory. early: this kernel may start before the previous one, which belongs
/// to the same call, has ended.
template <class Roles, class Element>
int launch_linear_attention(const LinearAttentionArgs& a, const LinearSweeps& sweeps, void* stream,
                            bool early = false) {
  using Config = typename Roles::Config;
  const std::int64_t columns = grid_columns(a, sweeps);
  // Each CTA sums one part at most, so that none waits for a CTA of higher index. Where CTAs exchange tiles, no earlier
  // kernel may still be running.
  if (SegmentTiles(a).parts > a.segments || (early && a.segments > 1)) return cudaErrorInvalidConfiguration;
  if (columns == 0) return cudaSuccess;
  AllLinearMaps maps{};
  const cudaError_t error = make_linear_maps<Config, Element>(a, sweeps, &maps);
  if (error != cudaSuccess) return error;
  return launch_kernel<linear_attention<Roles>>(static_cast<unsigned>(columns * a.segments), Config::kThreads,
                                                Config::kSharedBytes, stream, early, a, sweeps, maps, launch_number());
}

}  // namespace falchion::sm90
