// src/gpu/blocks/sm90_map_request.hpp: the arguments of a tensor map of the bulk copy engine (TMA), as plain numbers,
// which the driver gets and by which a cached map is found again. This file runs on the host alone.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "args/view.hpp"

namespace falchion::sm90 {

/// The numbers of one map. Unused entries are 0.
struct MapRequest {
  void* data = nullptr;
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_UINT8;
  int rank = 0;
  std::array<cuuint64_t, 5> shape{};   // elements, the innermost axis first
  std::array<cuuint64_t, 4> stride{};  // bytes, of all axes but the innermost
  std::array<cuuint32_t, 5> box{};     // elements

  bool operator==(const MapRequest&) const = default;
};

constexpr int element_bytes(CUtensorMapDataType type) {
  if (type == CU_TENSOR_MAP_DATA_TYPE_UINT8) return 1;
  return type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2;
}

/// A tensor (batch, rows, heads, d) that is loaded in boxes of box_columns x box_heads x box_rows. The swizzle is that
/// for the bytes in a row of a box, 64 or 128.
struct TensorBox {
  std::int64_t batch, rows, heads, d;
  int box_columns, box_heads, box_rows;
};

/// Extents and strides in bytes for a map. A map cannot have an extent of 0, so an empty tensor, which is never read,
/// gets 1. Strides must be multiples of 16 bytes; a dimension with one entry, whose stride is arbitrary, gets 16.
inline cuuint64_t map_extent(std::int64_t n) { return static_cast<cuuint64_t>(std::max<std::int64_t>(n, 1)); }
inline cuuint64_t map_stride(std::int64_t n, std::int64_t stride, int bytes) {
  return static_cast<cuuint64_t>(n > 1 ? stride * bytes : 16);
}
inline cuuint32_t box_extent(int n) { return static_cast<cuuint32_t>(n); }

/// The map of `x`. Its coordinates are (column, head, row, batch). An empty tensor may have no address; its map gets
/// the address never_null, which must not be null.
inline MapRequest tensor_request(CUtensorMapDataType type, const View& x, const TensorBox& box, void* never_null) {
  const int bytes = element_bytes(type);
  MapRequest out{.data = x.data != nullptr ? x.data : never_null, .type = type, .rank = 4};
  out.shape = {map_extent(box.d), map_extent(box.heads), map_extent(box.rows), map_extent(box.batch)};
  out.stride = {map_stride(box.heads, x.stride[2], bytes), map_stride(box.rows, x.stride[1], bytes),
                map_stride(box.batch, x.stride[0], bytes)};
  out.box = {box_extent(box.box_columns), box_extent(box.box_heads), box_extent(box.box_rows), 1};
  return out;
}

/// The same for boxes whose rows have several lines of 128 bytes. In shared memory the first lines of all rows come
/// first, then the second lines. d must be a multiple of a line. The coordinates are (0, row, line, head, batch).
inline MapRequest lines_request(CUtensorMapDataType type, const View& x, const TensorBox& box) {
  const int bytes = element_bytes(type);
  const int line = 128 / bytes;
  MapRequest out{.data = x.data, .type = type, .rank = 5};
  out.shape = {map_extent(line), map_extent(box.rows), map_extent(box.d / line), map_extent(box.heads),
               map_extent(box.batch)};
  out.stride = {map_stride(box.rows, x.stride[1], bytes), 128, map_stride(box.heads, x.stride[2], bytes),
                map_stride(box.batch, x.stride[0], bytes)};
  out.box = {box_extent(line), box_extent(box.box_rows), box_extent(box.box_columns / line), box_extent(box.box_heads),
             1};
  return out;
}

}  // namespace falchion::sm90
