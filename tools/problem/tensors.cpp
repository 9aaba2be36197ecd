// tools/problem/tensors.cpp
#include "problem/tensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/size.hpp"
#include "plan/text.hpp"
#include "policy/dtype.hpp"

namespace falchion::tools {
namespace {

std::int64_t offset(const Tensor& t, std::int64_t i0, std::int64_t i1, std::int64_t i2, std::int64_t i3) {
  return i0 * t.stride[0] + i1 * t.stride[1] + i2 * t.stride[2] + i3 * t.stride[3];
}

double load_at(const void* data, DType dtype, std::int64_t at) {
  switch (dtype) {
    case DType::f32: return static_cast<const float*>(data)[at];
    case DType::f16: return f32_from_f16(static_cast<const std::uint16_t*>(data)[at]);
    case DType::bf16: return f32_from_bf16(static_cast<const std::uint16_t*>(data)[at]);
    case DType::e4m3: return f32_from_e4m3(static_cast<const std::uint8_t*>(data)[at]);
    case DType::i8: return static_cast<const std::int8_t*>(data)[at];
    case DType::i32: return static_cast<const std::int32_t*>(data)[at];
    default: return static_cast<const std::uint8_t*>(data)[at];
  }
}

void store_at(void* data, DType dtype, std::int64_t at, double x) {
  const auto f = static_cast<float>(x);
  switch (dtype) {
    case DType::f32: static_cast<float*>(data)[at] = f; break;
    case DType::f16: static_cast<std::uint16_t*>(data)[at] = f16_from_f32(f); break;
    case DType::bf16: static_cast<std::uint16_t*>(data)[at] = bf16_from_f32(f); break;
    case DType::e4m3: static_cast<std::uint8_t*>(data)[at] = e4m3_from_f32(f); break;
    case DType::i8: static_cast<std::int8_t*>(data)[at] = i8_from_f32(f); break;
    case DType::i32: static_cast<std::int32_t*>(data)[at] = static_cast<std::int32_t>(x); break;
    default: static_cast<std::uint8_t*>(data)[at] = x != 0; break;
  }
}

/// splitmix64: each number takes a few multiplications, is good enough for test data and is the same everywhere.
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

std::int64_t element_count(const Shape& shape) { return shape[0] * shape[1] * shape[2] * shape[3]; }

HostTensor make_tensor(DType dtype, const Shape& shape, Layout layout) {
  HostTensor t;
  t.memory = Buffer(static_cast<std::size_t>(element_count(shape) * size_of(dtype)));
  t.view = layout == Layout::bshd ? Tensor::dense(t.memory.data(), dtype, shape)
                                  : Tensor::heads_first(t.memory.data(), dtype, shape);
  return t;
}

HostTensor make_poisoned(DType dtype, const Shape& shape, Layout layout) {
  HostTensor t = make_tensor(dtype, shape, layout);
  std::memset(t.memory.data(), 0xFF, t.memory.size());
  return t;
}

HostTensor make_random(DType dtype, const Shape& shape, std::uint64_t seed, Layout layout) {
  HostTensor t = make_tensor(dtype, shape, layout);
  constexpr std::int64_t most =
      4194302;  // larger tensors repeat themselves; it is no power of two, so that no two rows are equal
  const std::int64_t all = element_count(shape), n = std::min(all, most);
  std::uint64_t state = seed * 0xD1B54A32D192ED03u + 1;
  for (std::int64_t i = 0; i < n; i += 2) {  // Box and Muller: two uniform numbers give two normal ones
    const double u = (static_cast<double>(next_random(state) >> 11) + 0.5) * 0x1p-53;
    const double angle = static_cast<double>(next_random(state) >> 11) * 0x1p-53 * 2 * std::numbers::pi;
    const double radius = (dtype == DType::i8 ? 40 : 1) * std::sqrt(-2 * std::log(u));  // i8: many of its values
    store_at(t.memory.data(), dtype, i, radius * std::cos(angle));
    if (i + 1 < n) store_at(t.memory.data(), dtype, i + 1, radius * std::sin(angle));
  }
  const std::int64_t bytes = size_of(dtype);
  for (std::int64_t at = n; at < all; at += n)
    std::memcpy(t.memory.data() + at * bytes, t.memory.data(), static_cast<std::size_t>(std::min(n, all - at) * bytes));
  return t;
}

HostTensor convert(const Tensor& from, DType to) {
  HostTensor t = make_tensor(to, from.shape);
  for_each_index(from.shape, [&](auto a, auto b, auto c, auto d) {
    store_element(t.view, a, b, c, d, load_element(from, a, b, c, d));
  });
  return t;
}

double load_element(const Tensor& t, std::int64_t i0, std::int64_t i1, std::int64_t i2, std::int64_t i3) {
  return load_at(t.data, t.dtype, offset(t, i0, i1, i2, i3));
}

void store_element(const Tensor& t, std::int64_t i0, std::int64_t i1, std::int64_t i2, std::int64_t i3, double x) {
  store_at(t.data, t.dtype, offset(t, i0, i1, i2, i3), x);
}

void for_each_index(const Shape& shape,
                    const std::function<void(std::int64_t, std::int64_t, std::int64_t, std::int64_t)>& visit) {
  for (std::int64_t a = 0; a < shape[0]; ++a)
    for (std::int64_t b = 0; b < shape[1]; ++b)
      for (std::int64_t c = 0; c < shape[2]; ++c)
        for (std::int64_t d = 0; d < shape[3]; ++d) visit(a, b, c, d);
}

}  // namespace falchion::tools
