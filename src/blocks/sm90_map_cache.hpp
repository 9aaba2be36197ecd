// src/blocks/sm90_map_cache.hpp: the tensor maps that a thread has made last. A map says nothing but numbers (an
// address, extents, strides, a box), so the same numbers make the same map, and a layer that runs again with the same
// operands need not ask the driver again.
#pragma once

#include <cuda.h>
#include <driver_types.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "blocks/sm90_map_request.hpp"

namespace falchion::sm90 {

/// Some hundred maps, 32 KB: a forward launch needs three, so those of 30 layers fit. Each map has one place, which its
/// numbers say, and a new map takes the place of the one that was there: a look-up compares with one map alone.
class MapCache {
 public:
  static constexpr std::size_t kPlaces = 128;  // a power of two

  const CUtensorMap* find(const MapRequest& request) const {
    const Entry& entry = entries_[place_of(request)];
    return entry.request == request ? &entry.map : nullptr;
  }
  void keep(const MapRequest& request, const CUtensorMap& map) { entries_[place_of(request)] = {request, map}; }

  /// Multiplying by 2^64 / the golden ratio spreads addresses that lie at equal distances over all places.
  static std::size_t place_of(const MapRequest& request) {
    constexpr int kBits = std::bit_width(kPlaces) - 1;
    std::uint64_t sum = reinterpret_cast<std::uintptr_t>(request.data) / 16;
    for (const cuuint64_t extent : request.shape) sum = 31 * sum + extent;
    return static_cast<std::size_t>(sum * 0x9E3779B97F4A7C15u >> (64 - kBits));
  }

 private:
  struct Entry {
    MapRequest request;  // rank 0: empty, and equal to no request
    CUtensorMap map;
  };
  std::array<Entry, kPlaces> entries_{};
};

using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);

/// Writes the map that `request` asks for: one that is kept, or a new one, which is then kept. find_encoder finds the
/// driver's function, which only a new map needs.
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
