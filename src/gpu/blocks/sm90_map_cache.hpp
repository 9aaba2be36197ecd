// src/gpu/blocks/sm90_map_cache.hpp: a cache of the last tensor maps of a thread. A map consists of plain numbers (an
// address, extents, strides, a box), so the same numbers give the same map, and a layer that runs again with the same
// operands need not call the driver again.
#pragma once

#include <cuda.h>
#include <driver_types.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "gpu/blocks/sm90_map_request.hpp"

namespace falchion::sm90 {

/// 128 maps, 33 KB: a forward launch needs three, so those of 40 layers fit. The oldest map is evicted first. A look-up
/// compares a list of keys, one word for each map, and the numbers themselves only where the key is the same.
class MapCache {
 public:
  static constexpr std::size_t kPlaces = 128;

  const CUtensorMap* find(const MapRequest& request) const {
    const std::uint64_t key = key_of(request);
    for (std::size_t i = 0; i < kPlaces; ++i) {
      if (keys_[i] == key && entries_[i].request == request) return &entries_[i].map;
    }
    return nullptr;
  }
  void keep(const MapRequest& request, const CUtensorMap& map) {
    entries_[next_] = {request, map};
    keys_[next_] = key_of(request);
    next_ = (next_ + 1) % kPlaces;
  }

 private:
  static std::uint64_t key_of(const MapRequest& request) {
    std::uint64_t sum = reinterpret_cast<std::uintptr_t>(request.data);
    for (const cuuint64_t extent : request.shape) sum = 31 * sum + extent;
    return sum;
  }

  struct Entry {
    MapRequest request;  // rank 0: empty, and equal to no request
    CUtensorMap map;
  };
  std::array<std::uint64_t, kPlaces> keys_{};
  std::array<Entry, kPlaces> entries_{};
  std::size_t next_ = 0;
};

using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);

/// Writes the map for `request`, from the cache or newly made and then cached. find_encoder finds the driver's
/// function, which only a new map needs.
template <class FindEncoder>
cudaError_t write_tensor_map(const MapRequest& request, const FindEncoder& find_encoder, MapCache* cache,
                             CUtensorMap* map) {
  if (const CUtensorMap* known = cache->find(request); known != nullptr) {
    *map = *known;
    return cudaSuccess;
  }
  EncodeTensorMap encode = nullptr;
  if (const cudaError_t error = find_encoder(&encode); error != cudaSuccess) return error;
  const bool whole_line = static_cast<int>(request.box[0]) * element_bytes(request.type) == 128;
  const cuuint32_t step[] = {1, 1, 1, 1, 1};
  const CUresult result =
      encode(map, request.type, static_cast<cuuint32_t>(request.rank), request.data, request.shape.data(),
             request.stride.data(), request.box.data(), step, CU_TENSOR_MAP_INTERLEAVE_NONE,
             whole_line ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return cudaErrorInvalidValue;
  cache->keep(request, *map);
  return cudaSuccess;
}

}  // namespace falchion::sm90
