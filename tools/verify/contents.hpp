// tools/verify/contents.hpp: the numbers of an operand, dense and in f32, each already rounded to the operand's type.
// The definition reads them from here, the kernels from the image, in the layout of the Storage.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "image.hpp"

namespace falchion::tools::storm {

class Contents {
 public:
  using Shape = std::array<std::int64_t, 4>;
  Contents() = default;
  /// All numbers are 0. Along an axis whose bit is in `still` they stay equal, because its memory has stride 0.
  Contents(DType dtype, const Shape& shape, unsigned still);

  /// Each is factor times a number of mean 0 and deviation 1. That is a sum of four uniform integers, so it is the same
  /// on every machine.
  void fill_normal(std::uint64_t stream, float factor);
  /// f(i, j, k, l, x) returns the replacement of x. Indices along still axes are 0.
  template <class F>
  void change(const F& f) {
    for (std::int64_t i = 0; i < extent_[0]; ++i)
      for (std::int64_t j = 0; j < extent_[1]; ++j)
        for (std::int64_t k = 0; k < extent_[2]; ++k)
          for (std::int64_t l = 0; l < extent_[3]; ++l) {
            float& x = at(i, j, k, l);
            x = rounded(f(i, j, k, l, x));
          }
  }
  void set(std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l, float x) { at(i, j, k, l) = rounded(x); }
  float get(std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l) const {
    return x_[static_cast<std::size_t>(index(i, j, k, l))];
  }
  /// Sets one element, selected by a random number, to x.
  void plant(std::uint64_t random, float x);

  /// Writes the numbers into the block, at `place`.
  void store(std::byte* base, const Image::Place& place) const;
  /// The view for the definition. It is f32, or boolean for masks, which only
  /// `store` can tell. Still axes have stride 0.
  Tensor view() const;
  bool empty() const { return x_.empty(); }

 private:
  std::int64_t index(std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l) const {
    return i * stride_[0] + j * stride_[1] + k * stride_[2] + l * stride_[3];
  }
  float& at(std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l) {
    return x_[static_cast<std::size_t>(index(i, j, k, l))];
  }
  float rounded(float x) const;

  DType dtype_ = DType::f32;
  Shape shape_{}, extent_{}, stride_{};  // extent: 1 along still axes, stride: 0
  std::vector<float> x_;
};

/// The number that a value of the key plant puts into an operand: NaN for "nan_q", infinity for "inf_q" and minus
/// infinity for "neg_q".
float planted_number(const std::string& plant);

}  // namespace falchion::tools::storm
