// src/sm80/attention_forward/eight/load.cuh: loads the operands of kind eight. What the products take as bytes, and V
// of 16 bits, cp.async writes to its place. Other bytes it writes to a place of the thread's own, from where the thread
// widens them when their turn comes: no other thread is waited for.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"
#include "gpu/blocks/copy.cuh"
#include "sm80/attention_forward/eight/config.hpp"
#include "sm80/attention_forward/load_bytes.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// The tiles in shared memory. n is the index of a tile of keys.
template <class Config>
struct EightTiles {
  using Element = typename Config::Element;
  unsigned char* base;

  FALCHION_DEVICE auto q() const {  // (M, D)
    if constexpr (Config::kIntegers) {
      return at<i8>(0, typename Config::ByteLayoutQ{});
    } else {
      return at<Element>(0, typename Config::LayoutQ{});
    }
  }
  FALCHION_DEVICE auto k(int n) const {  // (N, D)
    if constexpr (Config::kIntegers) {
      return at<i8>(Config::kSizeOfQ + n % 2 * (Config::kSizeOfK / 2), typename Config::ByteLayoutK{});
    } else {
      return at<Element>(Config::kSizeOfQ, typename Config::LayoutK{});
    }
  }
  FALCHION_DEVICE auto v(int n) const { return at<Element>(place_of_v(n), typename Config::LayoutV{}); }  // (N, D)
  FALCHION_DEVICE auto v_transposed(int n) const {                                                        // (D, N)
    return at<Element>(place_of_v(n), typename Config::LayoutVt{});
  }
  FALCHION_DEVICE uint4* raw_v() const { return raw(0); }
  FALCHION_DEVICE uint4* raw_k() const { return raw(Config::kBytesOfV ? Config::kSizeOfRaw : 0); }

 private:
  static FALCHION_DEVICE int place_of_v(int n) {
    return Config::kSizeOfQ + Config::kSizeOfK + (Config::kBytesOfV ? 0 : n % 2 * (Config::kSizeOfV / 2));
  }
  FALCHION_DEVICE uint4* raw(int offset) const {
    return reinterpret_cast<uint4*>(base + Config::kSizeOfQ + Config::kSizeOfK + Config::kSizeOfV + offset);
  }
  template <class Number, class Layout_>
  FALCHION_DEVICE auto at(int offset, Layout_ layout) const {
    return make_tensor(make_smem_ptr(reinterpret_cast<Number*>(base + offset)), layout);
  }
};

template <class Config>
class EightLoader {
 public:
  using Element = typename Config::Element;

  FALCHION_DEVICE EightLoader(const AttentionArgs& a, const AttentionTile& t, const EightTiles<Config>& shared)
      : a(a), t(t), shared(shared) {}

  /// Loads Q. What is to be widened goes through the place of the bytes of V, and is waited for.
  FALCHION_DEVICE void load_q() const {
    const auto sQ = shared.q();
    const auto* q = bytes_of(a.q) + t.q.batch * a.q.stride[0] + t.q.begin * a.q.stride[1];
    const auto from = [&](int row) {
      return q + t.query(t.row0 + row) * a.q.stride[1] + t.head(t.row0 + row) * a.q.stride[2];
    };
    const int rows = t.rows - t.row0, columns = static_cast<int>(a.d_qk);
    if constexpr (Config::kIntegers) {
      load<Config::kRows, Config::kLanesOfBytes>(rows, columns, from,
                                                 [&](int, int row, int column) { return &sQ(row, column); });
    } else {
      CUTE_NO_UNROLL
      for (int row0 = 0; row0 < Config::kRows; row0 += Config::kKeys) {
        load<Config::kKeys, Config::kLanesOfRaw>(
            rows - row0, columns, [&](int row) { return from(row0 + row); },
            [&](int i, int, int) { return own_raw(shared.raw_v(), i); });
        cp_async_fence();
        cp_async_wait<0>();
        widen_raw(shared.raw_v(), sQ, row0);
      }
    }
  }
  /// Starts the load of K of tile n, and of V where it needs no widening.
  FALCHION_DEVICE void start_k(int n) const {
    const auto* k = first_key(a.k, n);
    const auto from = [&](int row) { return k + row * a.k.stride[1]; };
    const int columns = static_cast<int>(a.d_qk);
    if constexpr (Config::kIntegers) {
      const auto sK = shared.k(n);
      load<Config::kKeys, Config::kLanesOfBytes>(keys_from(n), columns, from,
                                                 [&](int, int row, int column) { return &sK(row, column); });
    } else {
      load<Config::kKeys, Config::kLanesOfRaw>(keys_from(n), columns, from,
                                               [&](int i, int, int) { return own_raw(shared.raw_k(), i); });
    }
    if constexpr (!Config::kBytesOfV) {
      const auto sV = shared.v(n);
      const auto* v = first_key(a.v, n, 2);
      load<Config::kKeys, Config::kLanesOfV, 2>(
          keys_from(n), 2 * static_cast<int>(a.d_v), [&](int row) { return v + 2 * row * a.v.stride[1]; },
          [&](int, int row, int column) { return &sV(row, column / 2); });
    }
  }
  /// Starts the load of V of tile n, which is to be widened.
  FALCHION_DEVICE void start_v(int n) const {
    const auto* v = first_key(a.v, n);
    load<Config::kKeys, Config::kLanesOfRaw>(
        keys_from(n), static_cast<int>(a.d_v), [&](int row) { return v + row * a.v.stride[1]; },
        [&](int i, int, int) { return own_raw(shared.raw_v(), i); });
  }
  /// Widens what this thread has loaded.
  FALCHION_DEVICE void widen_k(int n) const { widen_raw(shared.raw_k(), shared.k(n)); }
  FALCHION_DEVICE void widen_v(int n) const { widen_raw(shared.raw_v(), shared.v(n)); }

 private:
  static FALCHION_DEVICE const std::uint8_t* bytes_of(const View& x) {
    return static_cast<const std::uint8_t*>(x.data);
  }
  FALCHION_DEVICE const std::uint8_t* first_key(const View& x, int n, int size = 1) const {
    return bytes_of(x) +
           size * (t.k.batch * x.stride[0] + (t.k.begin + n * Config::kKeys) * x.stride[1] + t.h_kv * x.stride[2]);
  }
  FALCHION_DEVICE int keys_from(int n) const { return t.k.length - n * Config::kKeys; }
  static FALCHION_DEVICE uint4* own_raw(uint4* raw, int i) { return raw + i * Config::kThreads + threadIdx.x; }

  /// Calls f(i, row, column) for each chunk of 16 bytes of this thread. kLanes threads share a row, whose numbers have
  /// kSize bytes. No address is kept from tile to tile: at head dim 256 there are no registers for them.
  template <int kRows, int kLanes, int kSize = 1, bool kUnrolled = true, class F>
  static FALCHION_DEVICE void each_chunk(F f) {
    constexpr int kPass = Config::kThreads / kLanes, kBoxes = kSize * Config::kD / (16 * kLanes);
    const int thread = hidden(static_cast<int>(threadIdx.x));
    const int row = thread / kLanes, column = thread % kLanes * 16;
    static_assert(kRows % kPass == 0);
    const auto call = [&](int i) { f(i, row + i / kBoxes * kPass, column + i % kBoxes * (16 * kLanes)); };
    if constexpr (kUnrolled) {
      CUTE_UNROLL
      for (int i = 0; i < kRows / kPass * kBoxes; ++i) call(i);
    } else {
      CUTE_NO_UNROLL
      for (int i = 0; i < kRows / kPass * kBoxes; ++i) call(i);
    }
  }
  /// Copies the first `left` of 16 bytes, and 0 behind them.
  static FALCHION_DEVICE void copy_bytes(const std::uint8_t* from, void* to, int left) {
    CUTE_NO_UNROLL
    for (int word = 0; word < 4; ++word) {
      std::uint32_t bytes = 0;
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) bytes |= 4 * word + i < left ? std::uint32_t{from[4 * word + i]} << i * 8 : 0U;
      static_cast<std::uint32_t*>(to)[word] = bytes;
    }
  }
  /// Rows and columns that do not exist become 0.
  template <int kRows, int kLanes, int kSize = 1, class From, class To>
  FALCHION_DEVICE void load(int rows, int columns, From from, To to) const {
    if (a.aligned) {
      each_chunk<kRows, kLanes, kSize>([&](int i, int row, int column) {
        copy_async(from(row) + column, to(i, row, column), row < rows && column < columns);
      });
    } else {
      each_chunk<kRows, kLanes, kSize, false>([&](int i, int row, int column) {
        copy_bytes(from(row) + column, to(i, row, column), row < rows ? columns - column : 0);
      });
    }
  }
  template <class Shared>
  static FALCHION_DEVICE void widen(uint4 x, const Shared& sX, int row, int column) {
    uint4 out[2];
    widen_to<Element, std::uint8_t>(x.x, out[0].x, out[0].y);
    widen_to<Element, std::uint8_t>(x.y, out[0].z, out[0].w);
    widen_to<Element, std::uint8_t>(x.z, out[1].x, out[1].y);
    widen_to<Element, std::uint8_t>(x.w, out[1].z, out[1].w);
    *reinterpret_cast<uint4*>(&sX(row, column)) = out[0];
    *reinterpret_cast<uint4*>(&sX(row, column + 8)) = out[1];
  }
  template <class Shared>
  static FALCHION_DEVICE void widen_raw(uint4* raw, const Shared& sX, int row0 = 0) {
    each_chunk<Config::kKeys, Config::kLanesOfRaw>(
        [&](int i, int row, int column) { widen(*own_raw(raw, i), sX, row0 + row, column); });
  }

  const AttentionArgs& a;
  const AttentionTile& t;
  const EightTiles<Config>& shared;
};

}  // namespace falchion::sm80
