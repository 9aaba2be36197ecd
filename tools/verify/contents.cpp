// tools/verify/contents.cpp: see contents.hpp.
#include "contents.hpp"

#include <algorithm>
#include <limits>

#include "draw.hpp"
#include "plan/text.hpp"
#include "policy/dtype.hpp"

namespace falchion::tools::storm {
namespace {

template <class T, class Convert>
void store_as(const Tensor& to, const Contents& from, const Convert& convert) {
  T* data = static_cast<T*>(to.data);
  const auto& n = to.shape;
  const auto step = [&](std::size_t axis) { return n[axis] <= 1 ? 0 : to.stride[axis]; };
  for (std::int64_t i = 0; i < n[0]; ++i)
    for (std::int64_t j = 0; j < n[1]; ++j)
      for (std::int64_t k = 0; k < n[2]; ++k) {
        T* row = data + i * step(0) + j * step(1) + k * step(2);
        for (std::int64_t l = 0; l < n[3]; ++l) row[l * step(3)] = convert(from.get(i, j, k, l));
      }
}

}  // namespace

Contents::Contents(DType dtype, const Shape& shape, unsigned still) : dtype_(dtype), shape_(shape) {
  std::int64_t count = 1;
  for (std::size_t axis = 4; axis-- > 0;) {
    const bool stands = (still >> axis & 1U) != 0;
    extent_[axis] = stands ? std::min<std::int64_t>(shape[axis], 1) : shape[axis];
    stride_[axis] = extent_[axis] == shape[axis] && !stands ? count : 0;
    count *= extent_[axis];
  }
  x_.assign(static_cast<std::size_t>(count), 0);
}

float Contents::rounded(float x) const {
  if (dtype_ == DType::f16) return f32_from_f16(f16_from_f32(x));
  if (dtype_ == DType::bf16) return f32_from_bf16(bf16_from_f32(x));
  if (dtype_ == DType::e4m3) return f32_from_e4m3(e4m3_from_f32(x));
  if (dtype_ == DType::i8) return i8_from_f32(x);
  return x;
}

void Contents::fill_normal(std::uint64_t stream, float factor) {
  constexpr float unit = 2.6428e-5F;  // over the deviation of a sum of four numbers from 0 to 65535, sqrt(4 / 12) 65536
  for (std::size_t i = 0; i < x_.size(); ++i) {
    const std::uint64_t z = random_bits(stream, i);
    const auto sum = static_cast<std::int64_t>((z & 0xFFFF) + (z >> 16 & 0xFFFF) + (z >> 32 & 0xFFFF) + (z >> 48));
    x_[i] = rounded(factor * unit * static_cast<float>(sum - 131070));
  }
}

void Contents::plant(std::uint64_t random, float x) {
  if (!x_.empty()) x_[random % x_.size()] = rounded(x);
}

void Contents::store(std::byte* base, const Image::Place& place) const {
  const Tensor to = place.on(base);
  switch (dtype_) {
    case DType::f16: return store_as<std::uint16_t>(to, *this, [](float x) { return f16_from_f32(x); });
    case DType::bf16: return store_as<std::uint16_t>(to, *this, [](float x) { return bf16_from_f32(x); });
    case DType::e4m3: return store_as<std::uint8_t>(to, *this, [](float x) { return e4m3_from_f32(x); });
    case DType::i8: return store_as<std::int8_t>(to, *this, [](float x) { return i8_from_f32(x); });
    case DType::boolean: return store_as<std::uint8_t>(to, *this, [](float x) { return static_cast<std::uint8_t>(x); });
    default: return store_as<float>(to, *this, [](float x) { return x; });
  }
}

Tensor Contents::view() const { return {const_cast<float*>(x_.data()), DType::f32, shape_, stride_}; }

float planted_number(const std::string& plant) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  if (plant.starts_with("nan")) return std::numeric_limits<float>::quiet_NaN();
  return plant.starts_with("inf") ? infinity : -infinity;
}

}  // namespace falchion::tools::storm
