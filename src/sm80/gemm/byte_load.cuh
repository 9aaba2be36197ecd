// src/sm80/gemm/byte_load.cuh: loads blocks of k of an 8-bit operand to shared memory, for any strides. The layout
// there is lines of 4-byte words with a word for each row, like that of f32 (fma_load.cuh). A word is an e4m3 number as
// f32, which holds it and each product of two exactly, or four i8 numbers that are consecutive in k.
#pragma once

#include <type_traits>

#include "base/host_device.hpp"
#include "policy/dtype.hpp"
#include "sm80/gemm/fma_load.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// Loads one word at a time. Neighbouring threads load neighbouring rows if these are closer together than k.
template <class Config, int kRows>
requires(sizeof(typename Config::Element) == 1) class FmaLoader<Config, kRows, Major::neither> {
 public:
  explicit FALCHION_DEVICE FmaLoader(const GemmOperand<Config>& x)
      : x_(x), by_rows_(magnitude(x.stride) < magnitude(x.of_k1)), whole_(kInWord == 4 && lies_in_words()) {}

  FALCHION_DEVICE void start(std::uint32_t to, std::uint32_t k0) const {
#pragma unroll 2
    for (int i = static_cast<int>(threadIdx.x); i < kRows * Config::kLines; i += Config::kThreads) {
      const int row = by_rows_ ? i % kRows : i / 8 % kRows, line = by_rows_ ? i / kRows : i / (8 * kRows) * 8 + i % 8;
      const std::uint32_t place = to + (line * (kRows + 4) + row) * 4, k = k0 + line * kInWord;
      const int count = x_.has(row) ? x_.inside(k, kInWord) : 0;
      const std::uint8_t* from = bytes() + (count > 0 ? x_.offset(row) + x_.offset_of_k(k) : 0);
      if (whole_)
        copy_word_async(from, place, count);
      else
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(place), "r"(gather(from, k, count)) : "memory");
    }
  }

 private:
  static constexpr int kInWord = Config::kDepth / Config::kLines;
  static_assert(kInWord == (std::is_same_v<typename Config::Element, i8> ? 4 : 1));
  static_assert(Config::kLines % 8 == 0);

  static FALCHION_DEVICE std::int64_t magnitude(std::int64_t x) { return x < 0 ? -x : x; }
  FALCHION_DEVICE const std::uint8_t* bytes() const { return reinterpret_cast<const std::uint8_t*>(x_.data); }
  /// Whether four numbers of k are contiguous in memory, on a boundary of 4 bytes.
  FALCHION_DEVICE bool lies_in_words() const {
    const bool one_axis = x_.k1 >= x_.k_end;
    const auto address = reinterpret_cast<std::uintptr_t>(x_.data);
    return x_.of_k1 == 1 && address % 4 == 0 && x_.stride % 4 == 0 && x_.up % 4 == 0 &&
           (one_axis || (x_.k1 % 4 == 0 && x_.of_k2 % 4 == 0));
  }

  /// The word of `count` numbers from k on, padded with 0.
  FALCHION_DEVICE std::uint32_t gather(const std::uint8_t* from, std::uint32_t k, int count) const {
    if constexpr (kInWord == 1) {
      return count > 0 ? __float_as_uint(f32_from_e4m3(*from)) : 0;
    } else {
      std::uint32_t word = 0, in_k1 = x_.k1 < x_.k_end ? k % x_.k1 : 0;
#pragma unroll
      for (int e = 0; e < kInWord; ++e) {
        word |= (e < count ? std::uint32_t{*from} : 0u) << 8 * e;
        from += x_.of_k1;
        if (++in_k1 == x_.k1) {  // the next k2
          from += x_.of_k2 - std::int64_t{x_.k1} * x_.of_k1;
          in_k1 = 0;
        }
      }
      return word;
    }
  }

  const GemmOperand<Config> x_;
  const bool by_rows_, whole_;
};

}  // namespace falchion::sm80
