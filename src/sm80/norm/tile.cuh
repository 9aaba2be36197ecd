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
  /// Numbers as they are in memory.
  struct Words {
    NumberWords chunk[kChunks];
  };

  /// number: of the thread in its row.
  FALCHION_DEVICE NormTile(const NormArgs& a, int number) : a_(a), number_(number) {}

  /// Numbers of a row that the tiles of all its threads hold together.
  FALCHION_DEVICE int size() const { return kChunks * kNormChunk * a_.cut.threads; }
  FALCHION_DEVICE int d() const { return static_cast<int>(a_.d); }
  /// The tile's numbers are those from `first` on. A thread without a row has none.
  FALCHION_DEVICE void move_to(int first, bool there) {
    begin_ = there ? first + number_ * (kWhole ? kNormChunk : 1) : d();
  }
  /// How many numbers of a row are this thread's, and how many of the tile that begins at `first`.
  FALCHION_DEVICE int count() const {
    constexpr int kStep = kWhole ? kNormChunk : 1;
    const int log = 31 - __clz(a_.cut.threads);  // a power of two
    return ((d() / kStep - number_ + a_.cut.threads - 1) >> log) * kStep;
  }
  FALCHION_DEVICE float count(int first) const {
    const int before = first / size() * kChunks * kNormChunk;
    return static_cast<float>(min(count() - before, kChunks * kNormChunk));
  }

  /// x, of the row that begins at `row`.
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
  /// The numbers of a row, of 16 bits each, are asked for. They come to this thread's places in `stage`, and from there
  /// with take.
  FALCHION_DEVICE void ask(const View& x, std::int64_t row, uint4* stage) const {
    const char* from = static_cast<const char*>(x.data) + (row + begin_) * 2;
    asm volatile("" : "+l"(from));
#pragma unroll
    for (int c = 0; c < kChunks; ++c) copy(from + at(c, 0) * 2, stage + c * blockDim.x + threadIdx.x, is_there(c, 0));
  }
  FALCHION_DEVICE Words take(const uint4* stage) const {
    asm volatile("cp.async.wait_all;" ::: "memory");
    Words out;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      *reinterpret_cast<uint4*>(out.chunk[c].word) = stage[c * blockDim.x + threadIdx.x];
      *reinterpret_cast<uint4*>(out.chunk[c].word + 4) = uint4{};
    }
    return out;
  }
  /// v = x
  template <class T>
  FALCHION_DEVICE void set(const Words& x) {
    each_place([&](int c, int e) {
      v_[c][e] = number<T>(x.chunk[c], e);
      asm volatile("" : "+f"(v_[c][e]));  // else the words are kept beside the numbers, which takes too many registers
    });
  }
  /// v = v + x
  FALCHION_DEVICE void add(Number type, const Words& x) {
    with_type(type,
              [&](auto of_x) { each_place([&](int c, int e) { v_[c][e] += number<decltype(of_x)>(x.chunk[c], e); }); });
  }
  /// The moments of the numbers, n of which are in the tile. kInPlace: v becomes the deviations.
  template <bool kInPlace>
  FALCHION_DEVICE Moments moments(const NumberCount& n) {
    return moments_of<kChunks, kNormChunk, kWhole>(
        n, [&](int c, int e) { return v_[c][e]; }, [&](int c, int e) { return is_there(c, e); },
        [&](int c, int e, float by) {
          if constexpr (kInPlace) v_[c][e] = by;
        });
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
  /// v = v x, and v = v x + y.
  template <class T>
  FALCHION_DEVICE void multiply(const Words& x) {
    each_place([&](int c, int e) { v_[c][e] *= number<T>(x.chunk[c], e); });
  }
  template <class T>
  FALCHION_DEVICE void multiply_add(const Words& x, const Words& y) {
    each_place([&](int c, int e) { v_[c][e] = fmaf(v_[c][e], number<T>(x.chunk[c], e), number<T>(y.chunk[c], e)); });
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
  static FALCHION_DEVICE void copy(const char* from, uint4* to, bool there) {
    const auto at = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(there ? 16 : 0) : "memory");
  }
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
  const int number_;
  int begin_ = 0;  // the thread's first number in the tile, from the first of the row on
  float v_[kChunks][kNormChunk];
};

}  // namespace falchion::sm80
