// src/ref/append.cpp: see append.hpp.
#include "ref/append.hpp"

#include <cstdint>

#include "policy/cache_bytes.hpp"
#include "ref/query.hpp"

namespace falchion::ref {
namespace {

/// A number as a cache keeps it: 8 bits divided by the scale, others as they are.
void keep(const Tensor& to, std::int64_t offset, double x, float scale) {
  const float single = static_cast<float>(x);
  switch (to.dtype) {
    case DType::e4m3: static_cast<std::uint8_t*>(to.data)[offset] = cached_e4m3(single, scale); return;
    case DType::i8: static_cast<std::int8_t*>(to.data)[offset] = cached_i8(single, scale); return;
    default: store(to, offset, x);
  }
}

float scale_at(const Tensor& scales, const KeyPlace& place, std::int64_t h) {
  return scales.data == nullptr ? 1.F : load(scales, at(scales, place.batch, place.row, h, 0));
}

/// Copies a row.
void copy_row(const Tensor& from, std::int64_t from_row, const Tensor& to, std::int64_t to_row, float scale) {
  for (std::int64_t d = 0; d < from.shape[3]; ++d)
    keep(to, to_row + at(to, 3, d), load(from, from_row + at(from, 3, d)), scale);
}

void append_row(const Operands& x, const RotaryTable& rotation, const Rows& q, const NewKeys& fresh, std::int64_t i) {
  const KeyPlace place = fresh.at(i);
  if (!place.exists()) return;
  for (std::int64_t h = 0; h < x.k.shape[2]; ++h) {
    const std::int64_t from = at(x.k_new, q.batch, q.begin + i, h, 0), to = at(x.k, place.batch, place.row, h, 0);
    const float scale = scale_at(x.k_scale, place, h);
    copy_row(x.k_new, from, x.k, to, scale);
    for (std::int64_t pair = 0; pair < rotation.dim / 2; ++pair) {
      const std::int64_t one = rotation.first_column(pair), other = rotation.second_column(pair);
      const RotaryTable::Turn turn = rotation.at(fresh.position(i), pair);
      const double a = load(x.k_new, from + at(x.k_new, 3, one)), b = load(x.k_new, from + at(x.k_new, 3, other));
      keep(x.k, to + at(x.k, 3, one), turn.first(a, b), scale);
      keep(x.k, to + at(x.k, 3, other), turn.second(a, b), scale);
    }
    copy_row(x.v_new, at(x.v_new, q.batch, q.begin + i, h, 0), x.v, at(x.v, place.batch, place.row, h, 0),
             scale_at(x.v_scale, place, h));
  }
}

}  // namespace

void append(const Attention& problem, const Operands& x) noexcept {
  if (!problem.append) return;
  const RotaryTable rotation = rotation_of(problem, x);
  for (std::int64_t b = 0; b < problem.b; ++b) {
    const Rows q = queries_of(x, b);
    const NewKeys fresh = new_keys_of(problem, x, b, q.length);
    for (std::int64_t i = 0; i < q.length; ++i) append_row(x, rotation, q, fresh, i);
  }
}

}  // namespace falchion::ref
