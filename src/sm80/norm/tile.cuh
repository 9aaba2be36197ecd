// src/sm80/norm/tile.cuh: the numbers of a row, or of a part of it, that the threads of the row hold in registers as
// f32, and their combination with operands whose types are known at run time.
#pragma once

#include <cstdint>

#include "args/gpu_norm_args.hpp"
#include "base/host_device.hpp"
#include "gpu/blocks/numbers.cuh"
#include "tiles/norm/sm80.hpp"

namespace falchion::sm80 {

using namespace gpu;

static_assert(kNormChunk == kNumbers);

/// The place of a thread in its row.
struct NormThread {
  int number, of;  // this thread, and how many the row has
  int d;           // numbers of the row; 0: there is no row here
};

/// kWhole: each chunk is contiguous in memory, and 16 bytes are loaded at a time; else neighbouring threads have
/// neighbouring numbers.
template <int kChunks, bool kWhole>
class NormTile {
 public:
  FALCHION_DEVICE explicit NormTile(const NormThread& thread) : thread_(thread) {}

  /// Numbers of a row that the tiles of all its threads hold together.
  FALCHION_DEVICE int size() const { return kChunks * kNormChunk * thread_.of; }
  FALCHION_DEVICE void move_to(int first) { first_ = first; }

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
  /// v = f(v, x), chunk by chunk: weight and bias are in caches, and loading all of them at once would take too many
  /// registers.
  template <class F>
  FALCHION_DEVICE void combine(Number type, const View& x, std::int64_t row, F f) {
    with_type(type, [&](auto of_x) {
      using T = decltype(of_x);
      std::int64_t begin = row;
      asm volatile("" : "+l"(begin));  // else the addresses for all types are kept at once
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const NumberWords words = load<T>(x, begin, c);
#pragma unroll
        for (int e = 0; e < kNormChunk; ++e) v_[c][e] = f(v_[c][e], number<T>(words, e));
      }
    });
  }
  /// Calls f(v, whether it is a number of the row) for each.
  template <class F>
  FALCHION_DEVICE void each(F f) {
    each_place([&](int c, int e) { f(v_[c][e], is_there(c, e)); });
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
  FALCHION_DEVICE int at(int c, int e) const {
    return kWhole ? first_ + (c * thread_.of + thread_.number) * kNormChunk + e
                  : first_ + (c * kNormChunk + e) * thread_.of + thread_.number;
  }
  /// With whole chunks d is a multiple of a chunk, so all numbers of a chunk are there or none.
  FALCHION_DEVICE bool is_there(int c, int e) const { return at(c, kWhole ? 0 : e) < thread_.d; }

  /// Numbers past the end of the row become 0.
  FALCHION_DEVICE NumberWords load_whole(const View& x, std::int64_t row, int c, bool wide) const {
    const int size = wide ? 4 : 2;
    const char* from = static_cast<const char*>(x.data) + (row + at(c, 0)) * size;
    return is_there(c, 0) ? load_words(from, wide) : NumberWords{};
  }
  template <class T>
  FALCHION_DEVICE NumberWords load(const View& x, std::int64_t row, int c) const {
    if constexpr (kWhole) {
      return load_whole(x, row, c, sizeof(T) == 4);
    } else {
      const T* from = static_cast<const T*>(x.data) + row;
      float some[kNormChunk];
#pragma unroll
      for (int e = 0; e < kNormChunk; ++e)
        some[e] = is_there(c, e) ? static_cast<float>(from[at(c, e) * x.stride[3]]) : 0;
      return words_of<T>(some);
    }
  }
  template <class T>
  FALCHION_DEVICE Words load(const View& x, std::int64_t row) const {
    Words out;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) out.chunk[c] = load<T>(x, row, c);
    return out;
  }
  FALCHION_DEVICE Words load_as(Number type, const View& x, std::int64_t row) const {
    Words out;
    if constexpr (kWhole) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) out.chunk[c] = load_whole(x, row, c, type == Number::f32);
    } else {
      with_type(type, [&](auto of_x) { out = load<decltype(of_x)>(x, row); });
    }
    return out;
  }
  template <class T>
  FALCHION_DEVICE void store(const View& x, std::int64_t row) const {
    T* to = static_cast<T*>(x.data) + row;
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

  const NormThread thread_;
  int first_ = 0;
  float v_[kChunks][kNormChunk];
};

}  // namespace falchion::sm80
