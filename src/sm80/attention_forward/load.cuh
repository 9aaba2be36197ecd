// src/sm80/attention_forward/load.cuh: the tiles of a CTA in shared memory, and their loads.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/tile.cuh"
#include "gpu/blocks/copy.cuh"
#include "sm80/attention_forward/config.hpp"

namespace falchion::sm80 {

using namespace gpu;

/// The tiles in shared memory. n is the index of a tile of keys; successive tiles use the stages in turn.
template <class Config>
struct SharedTiles {
  using Element = typename Config::Element;
  Element* base;

  FALCHION_DEVICE auto q() const { return at(0, typename Config::LayoutQ{}); }                // (M, D)
  FALCHION_DEVICE auto k(int n) const { return at(stage(n), typename Config::LayoutK{}); }    // (N, D)
  FALCHION_DEVICE auto v(int n) const { return at(stage_v(n), typename Config::LayoutV{}); }  // (N, D)
  FALCHION_DEVICE auto v_transposed(int n) const {                                            // (D, N)
    return at(stage_v(n), typename Config::LayoutVt{});
  }
  FALCHION_DEVICE void* end() const { return base + Config::kSizeQ + 2 * Config::kStages * Config::kSizeK; }

 private:
  static FALCHION_DEVICE int stage(int n) { return Config::kSizeQ + n % Config::kStages * Config::kSizeK; }
  static FALCHION_DEVICE int stage_v(int n) { return stage(n) + Config::kStages * Config::kSizeK; }
  template <class Layout_>
  FALCHION_DEVICE auto at(int offset, Layout_ layout) const {
    return make_tensor(make_smem_ptr(base + offset), layout);
  }
};

/// The loads of one CTA: Q is loaded once, K and V one tile at a time. Keys past the end of the sequence become 0. Each
/// thread keeps the address of its own 16-byte chunk. It copies every kPass-th row, with one 64-bit addition for each.
template <class Config, class Scores>
class Loader {
 public:
  using Element = typename Config::Element;

  FALCHION_DEVICE Loader(const AttentionArgs& a, const AttentionTile& t) : a(a), t(t) {
    row = static_cast<int>(threadIdx.x) / Config::kThreadsARow;
    column = static_cast<int>(threadIdx.x) % Config::kThreadsARow * 8;
    k = own_chunk(a.k);
    v = own_chunk(a.v);
  }
  template <class Shared>
  FALCHION_DEVICE void load_q(Shared&& sQ) const {
    const View& x = a.q;
    const Element* q = static_cast<const Element*>(x.data) + t.q.batch * x.stride[0] + t.q.begin * x.stride[1] + column;
    const int rows = t.rows - t.row0, columns = static_cast<int>(a.d_qk);
    if (a.group == 1) {
      q += t.h * x.stride[2] + (t.row0 + row) * x.stride[1];
      load(sQ, rows, columns, [&](int m, int) { return q + m * (kPass * x.stride[1]); });
    } else {
      load(sQ, rows, columns,
           [&](int, int row) { return q + t.query(t.row0 + row) * x.stride[1] + t.head(t.row0 + row) * x.stride[2]; });
    }
  }
  /// keys: the number of keys of tile n; only the last tile may have fewer than N.
  template <class Shared>
  FALCHION_DEVICE void load_k(int n, Shared&& sK, int keys = Config::kKeys) const {
    const Element* tile = k + n * (Config::kKeys * a.k.stride[1]);
    load(sK, keys, static_cast<int>(a.d_qk), [&](int m, int) { return tile + m * (kPass * a.k.stride[1]); });
  }
  template <class Shared>
  FALCHION_DEVICE void load_v(int n, Shared&& sV, int keys = Config::kKeys) const {
    const Element* tile = v + n * (Config::kKeys * a.v.stride[1]);
    load(sV, keys, static_cast<int>(a.d_v), [&](int m, int) { return tile + m * (kPass * a.v.stride[1]); });
  }
  FALCHION_DEVICE int keys_from(int n) const { return t.k.length - n * Config::kKeys; }

 protected:
  static constexpr int kPass = Config::kThreads / Config::kThreadsARow;  // rows that all threads copy at a time

  FALCHION_DEVICE const Element* own_chunk(const View& x) const {
    return static_cast<const Element*>(x.data) + t.k.batch * x.stride[0] + (t.k.begin + row) * x.stride[1] +
           t.h_kv * x.stride[2] + column;
  }
  template <class Shared, class ExistingRows, class At>
  FALCHION_DEVICE void load(Shared&& sX, ExistingRows rows, int columns, At at) const {
    typename Config::GlobalCopy copy;
    if (Scores::kAligned || a.aligned) {
      load_rows<true>(copy, sX, rows, columns, at);
    } else {
      load_rows<false>(copy, sX, rows, columns, at);
    }
  }

  const AttentionArgs& a;
  const AttentionTile& t;
  int row, column;
  const Element *k, *v;
};

}  // namespace falchion::sm80
