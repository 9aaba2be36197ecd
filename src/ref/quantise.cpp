// src/ref/quantise.cpp: the definition of Quantise, block by block.
#include "ref/quantise.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "policy/quantise.hpp"
#include "ref/elements.hpp"

namespace falchion::ref {
namespace {

constexpr std::int64_t kMostColumns = 256;

/// One head of one sequence.
class Head {
 public:
  Head(const Quantise& problem, const QuantiseOperands& operands, std::int64_t b, std::int64_t h)
      : q_(problem), x_(operands), b_(b), h_(h), e4m3_(problem.dtype_y == DType::e4m3) {}

  void write_mean() const {
    for (std::int64_t j = 0; j < q_.d; ++j) {
      double sum = 0;
      for (std::int64_t i = 0; i < q_.s; ++i) sum += load(x_.x, at(x_.x, b_, i, h_, j));
      store(x_.mean, at(x_.mean, b_, 0, h_, j), q_.s == 0 ? 0 : sum / static_cast<double>(q_.s));
    }
  }
  void read_mean() {
    for (std::int64_t j = 0; j < q_.d; ++j) mean_[j] = load(x_.mean, at(x_.mean, b_, 0, h_, j));
  }
  void write_block(std::int64_t block, std::int64_t begin, std::int64_t end) {
    const std::int64_t place = at(x_.scale, b_, block, h_, 0);
    const float scale = q_.scale_given ? load(x_.scale, place)
                                       : quantise_scale(most(begin, end), quantise_bound(e4m3_), q_.powers_of_two);
    if (!q_.scale_given) store(x_.scale, place, scale);
    const float factor = 1 / scale;
    for (std::int64_t i = begin; i < end; ++i) {
      if (q_.scale_given || end - begin > 1) fetch(i);  // else most() has left it there
      for (std::int64_t j = 0; j < q_.d; ++j) row_[j] *= factor;
      if (e4m3_) {
        write<std::uint8_t>(i, [](float x) { return quantised_e4m3(x); });
      } else {
        write<std::int8_t>(i, [](float x) { return quantised_i8(x); });
      }
    }
  }

 private:
  /// The row as it is before it is divided by the scale.
  void fetch(std::int64_t i) {
    switch (x_.x.dtype) {
      case DType::f32: convert<float>(i, [](float x) { return x; }); break;
      case DType::f16: convert<std::uint16_t>(i, [](std::uint16_t x) { return f32_from_f16(x); }); break;
      default: convert<std::uint16_t>(i, [](std::uint16_t x) { return f32_from_bf16(x); });
    }
    for (std::int64_t j = 0; q_.smooth && j < q_.d; ++j) row_[j] -= mean_[j];
    if (q_.rotate) rotate();
  }
  template <class Bits, class F>
  void convert(std::int64_t i, F number) {
    const Bits* from = static_cast<const Bits*>(x_.x.data) + at(x_.x, b_, i, h_, 0);
    const std::int64_t stride = x_.x.stride[3];
    for (std::int64_t j = 0; j < q_.d; ++j) row_[j] = number(from[j * stride]);
  }
  void rotate() {
    const int size = rotation_size(q_.d);
    for (int step = 1; step < size; step *= 2)
      for (std::int64_t first = 0; first < q_.d; first += 2 * step)
        for (std::int64_t j = first; j < first + step; ++j) {
          const float one = row_[j], other = row_[j + step];
          row_[j] = one + other;
          row_[j + step] = one - other;
        }
    for (std::int64_t j = 0; j < q_.d; ++j) row_[j] *= rotation_factor(size);
  }
  /// The largest finite magnitude of rows [begin, end); for i8, which has no NaN, NaN if not all are finite.
  float most(std::int64_t begin, std::int64_t end) {
    float out = 0;
    bool finite = true;
    for (std::int64_t i = begin; i < end; ++i) {
      fetch(i);
      for (std::int64_t j = 0; j < q_.d; ++j) {
        const float size = std::abs(row_[j]);
        const bool counts = size <= std::numeric_limits<float>::max();
        finite = finite && counts;
        out = counts && size > out ? size : out;
      }
    }
    return finite || e4m3_ ? out : std::numeric_limits<float>::quiet_NaN();
  }
  template <class Code, class F>
  void write(std::int64_t i, F code) const {
    Code* to = static_cast<Code*>(x_.y.data) + at(x_.y, b_, i, h_, 0);
    const std::int64_t stride = x_.y.stride[3];
    for (std::int64_t j = 0; j < q_.d; ++j) to[j * stride] = code(row_[j]);
  }

  const Quantise& q_;
  const QuantiseOperands& x_;
  const std::int64_t b_, h_;
  const bool e4m3_;
  float row_[kMostColumns] = {}, mean_[kMostColumns] = {};
};

}  // namespace

void quantise(const Quantise& q, const QuantiseOperands& x) noexcept {
  const std::int64_t rows = q.rows == 0 ? q.s : q.rows;
  for (std::int64_t b = 0; b < q.b; ++b)
    for (std::int64_t h = 0; h < q.h; ++h) {
      Head head(q, x, b, h);
      if (q.smooth && !q.mean_given) head.write_mean();
      if (q.smooth) head.read_mean();
      for (std::int64_t block = 0, begin = 0; begin < q.s; ++block, begin += rows)
        head.write_block(block, begin, std::min(begin + rows, q.s));
    }
}

}  // namespace falchion::ref
