// src/sm80/norm/tile.cuh: the numbers of a row, or of a part of it, that the threads of the row hold in registers as
// f32, and their combination with operands whose types are known at run time.
#pragma once

#include <cstdint>

#include "args/gpu_norm_args.hpp"
#include "base/host_device.hpp"
#include "gpu/blocks/moments.cuh"
#include "gpu/blocks/numbers.cuh"
#include "tiles/norm/sm80.hpp"

namespace falchion::sm80 {

using namespace gpu;

static_assert(kNormChunk == kNumbers);

/// kWhole: each chunk is contiguous in memory, and 16 bytes are loaded at a time; else neighbouring threads have
/// neighbouring numbers.
template <int kChunks, bool kWhole>
class NormTile {
 public:
  /// number: of the thread in its row.
  FALCHION_DEVICE NormTile(const NormArgs& a, bool there, int number) : a_(a) {
    begin_ = there ? number * (kWhole ? kNormChunk : 1) : d();
  }

  /// Numbers of a row that the tiles of all its threads hold together.
  FALCHION_DEVICE int size() const { return kChunks * kNormChunk * a_.cut.threads; }
  FALCHION_DEVICE int d() const { return static_cast<int>(a_.d); }
  FALCHION_DEVICE void move_by(int numbers) { begin_ += numbers; }

  /// v = x, for the row that begins at `row`.
  template <class T>
  FALCHION_DEVICE void set(const View& x, std::int64_t row) {
    const Words words = load<T>(x, row);
    each_place([&](int c, int e) {
      v_[c][e] = number<T>(words.chunk[c], e);
      asm volatile("" : "+f"(v_[c][e]));  // else the words are kept beside the numbers, which takes too many registers
    });
  }
  /// v = x + y. All loads of both are issued before the first use.
  template <class T>
  FALCHION_DEVICE void set_sum(const View& x, std::int64_t row, Number type, const View& y, std::int64_t row_of_y) {
    const Words words = load<T>(x, row), words_of_y = load_as(type, y, row_of_y);
    with_type(type, [&](auto of_y) {
      each_place([&](int c, int e) {
        v_[c][e] = number<T>(words.chunk[c], e) + number<decltype(of_y)>(words_of_y.chunk[c], e);
      });
    });
  }
  /// The moments of what f makes of the numbers.
  template <class F>
  FALCHION_DEVICE Moments moments(F f) const {
    return moments_of<kChunks, kNormChunk, kWhole>([&](int c, int e) { return f(v_[c][e]); },
                                                   [&](int c, int e) { return is_there(c, e); });
  }
  /// v = f(v, x), chunk by chunk: weight and bias are in caches, and loading all of them at once would take too many
  /// registers.
  template <class F>
  FALCHION_DEVICE void combine(Number type, const View& x, std::int64_t row, F f) {
    with_type(type, [&](auto of_x) {
      using T = decltype(of_x);
      const T* from = first<T>(x, row);
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const NumberWords words = load<T>(x, from, c);
#pragma unroll
        for (int e = 0; e < kNormChunk; ++e) v_[c][e] = f(v_[c][e], number<T>(words, e));
      }
    });
  }
  /// v = v x + y, chunk by chunk, where both are of the type T.
  template <class T>
  FALCHION_DEVICE void multiply_add(const View& x, std::int64_t row, const View& y, std::int64_t row_of_y) {
    const T* from = first<T>(x, row);
    const T* from_y = first<T>(y, row_of_y);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const NumberWords words = load<T>(x, from, c), words_of_y = load<T>(y, from_y, c);
#pragma unroll
      for (int e = 0; e < kNormChunk; ++e) v_[c][e] = fmaf(v_[c][e], number<T>(words, e), number<T>(words_of_y, e));
    }
  }
  /// Calls f(v) for each; what is past the end of the row is 0.
  template <class F>
  FALCHION_DEVICE void each(F f) {
    each_place([&](int c, int e) { f(v_[c][e]); });
  }
  FALCHION_DEVICE void store(Number type, const View& x, std::int64_t row) const {
    with_type(type, [&](auto to) { store<decltype(to)>(x, row); });
  }

 private:
  struct Words {
    NumberWords chunk[kChunks];
  };

  template <class F>
  static FALCHION_DEVICE void each_place(F f) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int e = 0; e < kNormChunk; ++e) f(c, e);
    }
  }
  /// How far number e of chunk c is from the tile's first number of this thread.
  FALCHION_DEVICE int at(int c, int e) const {
    return kWhole ? c * kNormChunk * a_.cut.threads + e : (c * kNormChunk + e) * a_.cut.threads;
  }
  /// With whole chunks d is a multiple of a chunk, so all numbers of a chunk are there or none.
  FALCHION_DEVICE bool is_there(int c, int e) const { return begin_ < d() - at(c, kWhole ? 0 : e); }

  /// Numbers past the end of the row become 0.
  FALCHION_DEVICE NumberWords load_whole(const char* row, int c, bool wide) const {
    return is_there(c, 0) ? load_words(row + at(c, 0) * (wide ? 4 : 2), wide) : NumberWords{};
  }
  /// The thread's first number in the tile, in the row that begins at `row`.
  template <class T>
  FALCHION_DEVICE T* first(const View& x, std::int64_t row) const {
    std::int64_t place = row + begin_ * (kWhole ? 1 : x.stride[3]);
    asm volatile("" : "+l"(place));  // else the addresses for all types and operands are kept at once
    return static_cast<T*>(x.data) + place;
  }
  template <class T>
  FALCHION_DEVICE NumberWords load(const View& x, const T* row, int c) const {
    if constexpr (kWhole) {
      return load_whole(reinterpret_cast<const char*>(row), c, sizeof(T) == 4);
    } else {
      float some[kNormChunk];
#pragma unroll
      for (int e = 0; e < kNormChunk; ++e)
        some[e] = is_there(c, e) ? static_cast<float>(row[at(c, e) * x.stride[3]]) : 0;
      return words_of<T>(some);
    }
  }
  template <class T>
  FALCHION_DEVICE Words load(const View& x, std::int64_t row) const {
    const T* from = first<T>(x, row);
    Words out;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) out.chunk[c] = load<T>(x, from, c);
    return out;
  }
  FALCHION_DEVICE Words load_as(Number type, const View& x, std::int64_t row) const {
    Words out;
    if constexpr (kWhole) {
      const bool wide = type == Number::f32;
      const char* from = static_cast<const char*>(x.data) + (row + begin_) * (wide ? 4 : 2);
#pragma unroll
      for (int c = 0; c < kChunks; ++c) out.chunk[c] = load_whole(from, c, wide);
    } else {
      with_type(type, [&](auto of_x) { out = load<decltype(of_x)>(x, row); });
    }
    return out;
  }
  template <class T>
  FALCHION_DEVICE void store(const View& x, std::int64_t row) const {
    T* to = first<T>(x, row);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if constexpr (kWhole) {
        if (is_there(c, 0)) store_words(words_of<T>(v_[c]), to + at(c, 0), sizeof(T) == 4);
      } else {
#pragma unroll
        for (int e = 0; e < kNormChunk; ++e) {
          if (is_there(c, e)) to[at(c, e) * x.stride[3]] = T(v_[c][e]);
        }
      }
    }
  }

  const NormArgs& a_;
  int begin_;  // the thread's first number in the tile, from the first of the row on; d where it has no row
  float v_[kChunks][kNormChunk];
};

}  // namespace falchion::sm80
