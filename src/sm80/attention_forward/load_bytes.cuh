// src/sm80/attention_forward/load_bytes.cuh: loads K and V of an 8-bit cache, in rows or in pages, and applies the
// scales of their keys. A tile in shared memory has numbers of q's type, which holds every e4m3 and i8 number.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/host_device.hpp"
#include "gpu/attention_forward/key_scale.cuh"
#include "gpu/blocks/mma.cuh"
#include "gpu/blocks/widen.cuh"
#include "sm80/attention_forward/load_pages.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// An element of the cache: Byte is std::int8_t, or std::uint8_t for e4m3.
template <class Byte>
struct Cached {
  Byte code;
};

/// The numbers of a word of the cache in two words.
template <class Element, class Byte>
FALCHION_DEVICE void widen_to(std::uint32_t x, std::uint32_t& low, std::uint32_t& high) {
  widen_neighbours<Byte>(x, low, high);
  if constexpr (std::is_same_v<Element, bf16>) {
    low = round_pair<bf16>(number_of<f16>(low, 0), number_of<f16>(low, 1));
    high = round_pair<bf16>(number_of<f16>(high, 0), number_of<f16>(high, 1));
  }
}

/// Copies a chunk of 8 numbers, as gpu/blocks/copy.cuh does. Of bytes 0 is the number 0.
template <class Byte, class Element>
FALCHION_DEVICE void copy_elements(const Cached<Byte>* from, Element* to, int left) {
  uint2 bytes{};
  if (left >= 8 && reinterpret_cast<std::uintptr_t>(from) % 8 == 0) {
    bytes = *reinterpret_cast<const uint2*>(from);
  } else {
    CUTE_UNROLL
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t code = i < left ? static_cast<std::uint8_t>(from[i].code) : 0U;
      (i < 4 ? bytes.x : bytes.y) |= code << i % 4 * 8;
    }
  }
  uint4 out;
  widen_to<Element, Byte>(bytes.x, out.x, out.y);
  widen_to<Element, Byte>(bytes.y, out.z, out.w);
  *reinterpret_cast<uint4*>(to) = out;
}

/// The scales of the keys of one stage.
template <class Config>
struct KeyScales {
  float k[Config::kKeys], v[Config::kKeys];
};

/// Loads tiles of keys as PageLoader does, which finds rows of a tensor, too. K's scale multiplies the score and V's
/// multiplies P, both in f32, so that only P v is rounded to 16 bits.
template <class Config, class Scores>
class ByteLoader : public PageLoader<Config, Scores> {
  using Base = PageLoader<Config, Scores>;

 public:
  using Base::Base;

  /// The scales lie behind the tiles, for each stage.
  FALCHION_DEVICE void keep_scales_at(void* shared) { scales = static_cast<KeyScales<Config>*>(shared); }
  template <class Shared>
  FALCHION_DEVICE void load_k(int n, Shared&& sK, int = Config::kKeys) {
    this->find(n, [&](int i, const KeyPlace& place) { load_scales(n, i, place); });
    load(sK, this->a.k, this->of_k, static_cast<int>(this->a.d_qk));
  }
  template <class Shared>
  FALCHION_DEVICE void load_v(int, Shared&& sV, int = Config::kKeys) const {
    load(sV, this->a.v, this->of_v, static_cast<int>(this->a.d_v));
  }

  /// S (rows, keys) of tile n, with K's numbers as they are, times K's scales.
  template <class S, class Coordinates>
  FALCHION_DEVICE void scale_scores(int n, S& s, const Coordinates& at) const {
    CUTE_UNROLL
    for (int c = 0; c < size<1>(s); ++c) {
      const float scale = of(n).k[key(at, c)];
      CUTE_UNROLL
      for (int r = 0; r < size<0>(s); ++r) s(r, c) *= scale;
    }
  }
  /// OnlineSoftmax::outgrown where P is multiplied by V's scale v. m is relative to the largest P |v|, which is then at
  /// most 2^kSlack whatever the scales are, and P itself may be as large as 2^kSlack / |v|.
  template <class Softmax, class S, class Coordinates>
  FALCHION_DEVICE bool outgrown(const Softmax& softmax, int n, const S& s, const Coordinates& at, float unit,
                                float (&top)[Softmax::kSize]) const {
    CUTE_UNROLL
    for (float& x : top) x = -FALCHION_INF;
    CUTE_UNROLL
    for (int c = 0; c < size<1>(s); ++c) {
      const float lift = log2(fminf(fmaxf(fabsf(of(n).v[key(at, c)]), kLeast), kMost)) / unit;
      CUTE_UNROLL
      for (int r = 0; r < Softmax::kSize; ++r) top[r] = fmaxf(top[r], s(r, c) + lift);
    }
    bool any = false;
    CUTE_UNROLL
    for (int r = 0; r < Softmax::kSize; ++r) any |= top[r] > softmax.m[r] + Softmax::kSlack / unit;
    return __any_sync(~0u, any);
  }
  /// P of step k (16 keys) times V's scales. l includes P without them. The scale of a key that no row sees may be NaN.
  template <class S, class Coordinates>
  FALCHION_DEVICE void scale_weights(int n, int k, S& s, const Coordinates& at) const {
    CUTE_UNROLL
    for (int c = 4 * k; c < 4 * k + 4; ++c) {
      const float scale = of(n).v[key(at, c)];
      CUTE_UNROLL
      for (int r = 0; r < size<0>(s); ++r) s(r, c) = s(r, c) == 0 ? 0.f : s(r, c) * scale;
    }
  }

 private:
  static constexpr float kLeast = 0x1p-90f, kMost = 0x1p90f;  // they keep the sum of P finite

  /// The number in its tile of the key of a column.
  template <class Coordinates>
  static FALCHION_DEVICE int key(const Coordinates& at, int c) {
    return static_cast<int>(get<1>(at(0, c)));
  }
  FALCHION_DEVICE KeyScales<Config>& of(int n) const { return scales[n % Config::kStages]; }

  /// Warp i has those of look i. A key without a place has none.
  FALCHION_DEVICE void load_scales(int n, int i, const KeyPlace& place) const {
    const int at = static_cast<int>(threadIdx.x);
    if (at / 32 != i || at >= Config::kKeys) return;
    of(n).k[at] = place.exists() ? scale_of_key(this->a.k_scale, place, this->t.h_kv) : 1.f;
    of(n).v[at] = place.exists() ? scale_of_key(this->a.v_scale, place, this->t.h_kv) : 1.f;
  }
  template <class Shared, class Offsets>
  FALCHION_DEVICE void load(Shared&& sX, const View& x, const Offsets& offsets, int columns) const {
    if (this->a.type_k == Number::i8) {
      load_as<std::int8_t>(sX, x, offsets, columns);
    } else {
      load_as<std::uint8_t>(sX, x, offsets, columns);
    }
  }
  template <class Byte, class Shared, class Offsets>
  FALCHION_DEVICE void load_as(Shared&& sX, const View& x, const Offsets& offsets, int columns) const {
    const auto* base = static_cast<const Cached<Byte>*>(x.data) + this->t.h_kv * x.stride[2] + this->column;
    load_rows<false>(typename Config::GlobalCopy{}, sX, RowsWithAddress{}, columns,
                     [&](int m, int) { return this->address(base, offsets, m); });
  }

  KeyScales<Config>* scales = nullptr;
};

}  // namespace falchion::sm80
