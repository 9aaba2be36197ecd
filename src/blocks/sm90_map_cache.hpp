// src/blocks/sm90_map_cache.hpp: the tensor maps that a thread has made last. A map says nothing but numbers (an
// address, extents, strides, a box), so the same numbers make the same map, and a layer that runs again with the same
// operands need not ask the driver again.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace falchion::sm90 {

/// What a map is made from. Unused entries are 0.
struct MapRequest {
  const void* data = nullptr;
  int type = 0, rank = 0;
  std::array<std::uint64_t, 5> shape{};   // elements, the innermost axis first
  std::array<std::uint64_t, 4> stride{};  // bytes, of all axes but the innermost
  std::array<std::uint32_t, 5> box{};     // elements

  bool operator==(const MapRequest&) const = default;
};

/// Eight maps, of which the oldest goes first: a forward launch makes three, a backward one of linear attention more.
class MapCache {
 public:
  const CUtensorMap* find(const MapRequest& request) const {
    for (const Entry& entry : entries_) {
      if (entry.request == request) return &entry.map;
    }
    return nullptr;
  }
  void keep(const MapRequest& request, const CUtensorMap& map) {
    entries_[next_] = {request, map};
    next_ = (next_ + 1) % entries_.size();
  }

 private:
  struct Entry {
    MapRequest request;  // rank 0: empty, and equal to no request
    CUtensorMap map;
  };
  std::array<Entry, 8> entries_{};
  std::size_t next_ = 0;
};

}  // namespace falchion::sm90
