// src/gpu/blocks/cluster_launch.cuh: launches of kernels whose cluster size is chosen at launch, with as many clusters
// as the device holds at a time; each cluster loops over the work.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "gpu/blocks/stream_order.cuh"

namespace falchion {

/// cluster: CTAs, at most 8. most: clusters that have work.
struct ClusterGrid {
  int cluster = 1;
  std::int64_t most = 0;
};

/// How many clusters of a kernel the current device holds at a time. The CTAs of a cluster share a GPC, so this may be
/// less than the SMs divided by the CTAs. The runtime is queried once for each device and cluster size.
template <auto kKernel>
cudaError_t clusters_at_once(const LaunchShape& shape, cudaStream_t stream, int* clusters) {
  static std::atomic<int> known[64][8];
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const bool kept = device < 64 && shape.cluster <= 8;
  *clusters = kept ? known[device][shape.cluster - 1].load(std::memory_order_relaxed) : 0;
  if (*clusters > 0) return cudaSuccess;
  std::uint64_t device_bit = 0;
  if (const cudaError_t error = PreparedKernel<kKernel>::prepare(shape.shared_bytes, stream, &device_bit);
      error != cudaSuccess)
    return error;
  const Launch launch(shape, stream, false);
  if (const cudaError_t error = cudaOccupancyMaxActiveClusters(clusters, kKernel, &launch.config());
      error != cudaSuccess)
    return error;
  *clusters = std::max(*clusters, 1);
  if (kept) known[device][shape.cluster - 1].store(*clusters, std::memory_order_relaxed);
  return cudaSuccess;
}

template <auto kKernel, class... Arguments>
cudaError_t launch_clusters(const ClusterGrid& grid, int threads, int shared_bytes, void* stream, bool early,
                            const Arguments&... arguments) {
  LaunchShape shape{.blocks = static_cast<unsigned>(grid.cluster),
                    .threads = threads,
                    .shared_bytes = shared_bytes,
                    .cluster = grid.cluster};
  int at_once = 0;
  if (const cudaError_t error = clusters_at_once<kKernel>(shape, static_cast<cudaStream_t>(stream), &at_once);
      error != cudaSuccess)
    return error;
  shape.blocks *= static_cast<unsigned>(std::min<std::int64_t>(grid.most, at_once));
  return launch_shape<kKernel>(shape, stream, early, arguments...);
}

}  // namespace falchion
