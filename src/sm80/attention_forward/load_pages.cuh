// src/sm80/attention_forward/load_pages.cuh: loads K and V from the pages of a cache. The steps are those of Loader.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/softmax.cuh"
#include "policy/cache.hpp"
#include "sm80/attention_forward/load.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// Loads tiles of keys that lie in pages. Each lane of a warp looks one key of 32 up, where its rows of K and V begin,
/// and tells it to the lanes that copy them, so that a tile costs a lane two divisions and two looks at the table. A
/// key past the sequence, or in a page that is not there, has no address: it is not read, and becomes 0.
template <class Config, class Scores>
class PageLoader : public Loader<Config, Scores> {
  using Base = Loader<Config, Scores>;

 public:
  using Element = typename Config::Element;

  FALCHION_DEVICE PageLoader(const AttentionArgs& a, const AttentionTile& t)
      : Base(a, t), rows(KeyRows::of(a.pages, t.b, t.k.batch, t.k.begin)) {
    k = static_cast<const Element*>(a.k.data) + t.h_kv * a.k.stride[2] + this->column;
    v = static_cast<const Element*>(a.v.data) + t.h_kv * a.v.stride[2] + this->column;
  }
  /// K of a tile is loaded before its V.
  template <class Shared>
  FALCHION_DEVICE void load_k(int n, Shared&& sK, int = Config::kKeys) {
    find(n, [](int, const KeyPlace&) {});
    this->load(sK, RowsWithAddress{}, static_cast<int>(this->a.d_qk), [&](int m, int) { return address(k, of_k, m); });
  }
  template <class Shared>
  FALCHION_DEVICE void load_v(int, Shared&& sV, int = Config::kKeys) const {
    this->load(sV, RowsWithAddress{}, static_cast<int>(this->a.d_v), [&](int m, int) { return address(v, of_v, m); });
  }
  /// S (rows, keys) = -inf at keys of tile n that have no address. At most one later tile has been loaded.
  template <class S, class Coordinates>
  FALCHION_DEVICE void hide_holes(int n, S& s, const Coordinates& at) const {
    CUTE_UNROLL
    for (int i = 0; i < kLooks; ++i) {
      const unsigned there = n == found ? exist[i] : existed[i];
      if (there == kAll) continue;
      CUTE_UNROLL
      for (int c = 0; c < size<1>(s); ++c) {
        const int key = static_cast<int>(get<1>(at(0, c)));
        if (key / 32 != i || (there >> key % 32 & 1U) != 0) continue;
        CUTE_UNROLL
        for (int r = 0; r < size<0>(s); ++r) s(r, c) = -FALCHION_INF;
      }
    }
  }

 protected:
  static constexpr int kLooks = (Config::kKeys + 31) / 32;  // keys that a lane looks up
  static constexpr unsigned kAll = Config::kKeys < 32 ? (1U << Config::kKeys % 32) - 1 : ~0U;
  static constexpr std::int64_t kNowhere = INT64_MIN;  // no offset within a tensor

  /// also(i, place): what else is to be known of a lane's key in look i.
  template <class Also>
  FALCHION_DEVICE void find(int n, Also also) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    found = n;
    CUTE_UNROLL
    for (int i = 0; i < kLooks; ++i) {
      const int key = n * Config::kKeys + i * 32 + lane;
      const bool inside = i * 32 + lane < Config::kKeys && key < this->t.k.length;
      const KeyPlace place = inside ? rows.at(key) : KeyPlace{-1, 0};
      existed[i] = exist[i];
      exist[i] = __ballot_sync(~0u, place.exists());
      of_k[i] = place.exists() ? offset(this->a.k, place) : kNowhere;
      of_v[i] = place.exists() ? offset(this->a.v, place) : kNowhere;
      also(i, place);
    }
  }
  static FALCHION_DEVICE std::int64_t offset(const View& x, const KeyPlace& place) {
    return place.batch * x.stride[0] + place.row * x.stride[1];
  }
  /// This thread's chunk of its m-th row. All lanes of a warp ask for rows of one look.
  template <class Number>
  FALCHION_DEVICE const Number* address(const Number* base, const std::int64_t (&offsets)[kLooks], int m) const {
    static_assert(Base::kPass <= 32 && 32 % Base::kPass == 0);
    const std::int64_t offset = __shfl_sync(~0u, offsets[m * Base::kPass / 32], (m * Base::kPass + this->row) % 32);
    return offset == kNowhere ? nullptr : base + offset;
  }

  KeyRows rows;
  int found = -1;                                     // the tile that was looked up last
  unsigned exist[kLooks] = {}, existed[kLooks] = {};  // its keys that have an address, and those of the tile before
  std::int64_t of_k[kLooks], of_v[kLooks];

 private:
  const Element *k, *v;
};

}  // namespace falchion::sm80
