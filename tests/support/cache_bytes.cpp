// tests/support/cache_bytes.cpp: implements cache_bytes.hpp.
#include "support/cache_bytes.hpp"

#include <cmath>
#include <limits>

namespace falchion::testing {
namespace {

Shape shape_of(const Shape& keys, Scales scales) {
  const std::int64_t pages = scales >= Scales::page ? keys[0] : 1, rows = scales == Scales::key ? keys[1] : 1;
  return {pages, rows, scales >= Scales::head ? keys[2] : 1, 1};
}

bool is_nan_slot(const HostTensor& x, std::int64_t b, std::int64_t j) { return std::isnan(x.get(b, j, 0, 0)); }

/// Some scales are so small that numbers are clamped, some are negative.
float draw_scale(DType dtype, std::uint64_t draw) {
  const float usual = dtype == DType::i8 ? 0x1p-5F : 0x1p-2F;
  const float sign = draw % 7 == 3 ? -1.F : 1.F;
  return sign * usual * (1 + static_cast<float>(draw % 5) / 4) * (draw % 11 == 5 ? 0x1p-4F : 1.F);
}

HostTensor make_scales(const HostTensor& x, DType dtype, Scales scales, std::uint64_t seed) {
  HostTensor out(DType::f32, shape_of(x.shape(), scales));
  out.for_each([&](auto b, auto j, auto h, auto) {
    const bool unused = scales == Scales::key && is_nan_slot(x, b, j);
    const auto draw =
        static_cast<std::uint64_t>(1000 * random_uniform(seed, static_cast<std::uint64_t>(out.offset(b, j, h, 0))));
    out.set(b, j, h, 0, unused ? std::numeric_limits<float>::quiet_NaN() : draw_scale(dtype, draw));
  });
  return out;
}

float scale_at(const HostTensor& scales, std::int64_t b, std::int64_t j, std::int64_t h) {
  if (scales.view().data == nullptr) return 1;
  const Shape& n = scales.shape();
  return scales.get(n[0] == 1 ? 0 : b, n[1] == 1 ? 0 : j, n[2] == 1 ? 0 : h, 0);
}

HostTensor bytes_of(const HostTensor& x, DType dtype, const HostTensor& scales) {
  HostTensor out(dtype, x.shape());
  x.for_each([&](auto b, auto j, auto h, auto d) {
    const bool unused = is_nan_slot(x, b, j);
    const float of_nan = dtype == DType::i8 ? -128.F : std::numeric_limits<float>::quiet_NaN();
    out.set(b, j, h, d, unused ? of_nan : x.get(b, j, h, d) / scale_at(scales, b, j, h));
  });
  return out;
}

HostTensor numbers_of(const HostTensor& x, DType dtype, const HostTensor& scales) {
  HostTensor out(dtype, x.shape());
  x.for_each(
      [&](auto b, auto j, auto h, auto d) { out.set(b, j, h, d, x.get(b, j, h, d) * scale_at(scales, b, j, h)); });
  return out;
}

}  // namespace

const char* name(Scales x) {
  constexpr const char* kNames[] = {"no scales", "a scale", "scales by head", "scales by page", "scales by key"};
  return kNames[static_cast<std::size_t>(x)];
}

Instance in_bytes(const Instance& x, DType dtype, Scales scales) {
  Instance out = x;
  Attention& a = out.problem;
  a.cache = true;
  a.dtype_k = a.dtype_v = dtype;
  a.k_scale = a.v_scale = scales != Scales::no;
  if (a.k_scale) {
    out.k_scale = make_scales(x.k, dtype, scales, 71);
    out.v_scale = make_scales(x.v, dtype, scales, 72);
  }
  out.k = bytes_of(x.k, dtype, out.k_scale);
  out.v = bytes_of(x.v, dtype, out.v_scale);
  out.o = x.o.like();
  if (a.lse) out.lse = x.lse.like();
  return out;
}

Instance out_of_bytes(const Instance& x) {
  Instance out = x;
  Attention& a = out.problem;
  a.dtype_k = a.dtype_v = DType::as_q;
  a.k_scale = a.v_scale = false;
  out.k_scale = out.v_scale = {};
  out.k = numbers_of(x.k, a.dtype, x.k_scale);
  out.v = numbers_of(x.v, a.dtype, x.v_scale);
  out.o = x.o.like();
  if (a.lse) out.lse = x.lse.like();
  return out;
}

}  // namespace falchion::testing
