// src/api/merge.cpp: two partial results over disjoint keys -> one. The formula is FlashDecoding's:
// lse = log(e^lse_a + e^lse_b), o = e^(lse_a - lse) o_a + e^(lse_b - lse) o_b.
#include <cmath>
#include <cstdint>
#include <limits>

#include "api/check.hpp"
#include "api/operand_list.hpp"
#include "api/run.hpp"
#include "falchion/falchion.hpp"
#include "plan/text.hpp"
#include "policy/dtype.hpp"
#include "runtime/place.hpp"

namespace falchion {
namespace {

double load(const Tensor& x, std::int64_t offset) {
  if (x.dtype == DType::f32) return static_cast<const float*>(x.data)[offset];
  const std::uint16_t half = static_cast<const std::uint16_t*>(x.data)[offset];
  return x.dtype == DType::f16 ? f32_from_f16(half) : f32_from_bf16(half);
}
void store(const Tensor& x, std::int64_t offset, double value) {
  const float single = static_cast<float>(value);
  if (x.dtype == DType::f32) static_cast<float*>(x.data)[offset] = single;
  if (x.dtype == DType::f16) static_cast<std::uint16_t*>(x.data)[offset] = f16_from_f32(single);
  if (x.dtype == DType::bf16) static_cast<std::uint16_t*>(x.data)[offset] = bf16_from_f32(single);
}
std::int64_t at(const Tensor& x, std::int64_t i, std::int64_t j, std::int64_t k) {
  return i * x.stride[0] + j * x.stride[1] + k * x.stride[2];
}

/// Two states over disjoint keys, and the one that they make.
struct Merge {
  const Tensor &o_a, &lse_a, &o_b, &lse_b;
  const Tensor &o, &lse;
};

/// The shapes follow from o: it is (b, s, h, d), an lse (b, h, s, 1). Each row is read before it is written, so an
/// output may be an input.
OperandList operands_of(const Merge& m) {
  const Shape any{kAnyExtent, kAnyExtent, kAnyExtent, kAnyExtent};
  const Shape states = m.o.shape;
  const Shape rows{states[0], states[2], states[1], 1};
  OperandList list("merge", "with this o it is");
  const auto state = [&](const char* name, const Tensor& x, const Shape& shape) {
    return Operand{.name = name, .x = &x, .dtype = x.dtype, .shape = shape};  // each has a type of its own
  };
  Operand o = state("o", m.o, any);
  o.output = true;
  o.in_place = {&m.o_a, &m.o_b};
  list.add(o);
  list.add({.name = "lse", .x = &m.lse, .shape = rows, .output = true, .in_place = {&m.lse_a, &m.lse_b}});
  list.add(state("o_a", m.o_a, states));
  list.add({.name = "lse_a", .x = &m.lse_a, .shape = rows});
  list.add(state("o_b", m.o_b, states));
  list.add({.name = "lse_b", .x = &m.lse_b, .shape = rows});
  return list;
}

void check_types(const OperandList& list, Check* check) {
  for (const Operand& operand : list.tensors()) {
    const DType dtype = operand.dtype;
    check->require(dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16, operand.name, ".dtype = ", dtype,
                   ": it must be f32, f16 or bf16");
  }
}

/// merge computes on the host.
Status check_places(const OperandList& list) {
  for (const Operand& operand : list.tensors()) {
    const cuda::Place place = cuda::place_of(data_of(*operand.x));
    if (cuda::host_can_use(place)) continue;
    if (place == cuda::Place::unknown) return unknown_place(operand.name, "merge");
    return {Code::invalid, text(operand.name, " lies on a GPU: merge takes tensors in host memory")};
  }
  return {};
}

void check_lse(const char* name, const Tensor& lse, Check* check) {
  for (std::int64_t b = 0; b < lse.shape[0]; ++b) {
    for (std::int64_t h = 0; h < lse.shape[1]; ++h) {
      for (std::int64_t i = 0; i < lse.shape[2]; ++i) {
        const double x = load(lse, at(lse, b, h, i));
        check->require(x < std::numeric_limits<double>::infinity(), name, "[", b, ", ", h, ", ", i, "] = ", x,
                       ": neither NaN nor +inf is the lse of a state");
      }
    }
  }
}

Status validate(const Merge& m) {
  const OperandList list = operands_of(m);
  Check check;
  check_types(list, &check);
  check_operands(list, &check);
  check.require(m.o.shape[3] >= 1, "o.shape[3] = ", m.o.shape[3], ": a head dim must be 1 or more");
  check_overlaps(list, &check);
  if (!check.ok()) return check.take();
  if (Status status = check_places(list); !status) return status;
  check_lse("lse_a", m.lse_a, &check);
  check_lse("lse_b", m.lse_b, &check);
  return check.take();
}

void merge_row(const Merge& m, std::int64_t b, std::int64_t h, std::int64_t i) {
  const double lse_a = load(m.lse_a, at(m.lse_a, b, h, i));
  const double lse_b = load(m.lse_b, at(m.lse_b, b, h, i));
  // The state with the larger lse has weight 1 exactly, on either side: merging is commutative to the bit.
  const bool swap = lse_b > lse_a;
  const Tensor& x = swap ? m.o_b : m.o_a;
  const Tensor& y = swap ? m.o_a : m.o_b;
  const double high = swap ? lse_b : lse_a;
  const double low = swap ? lse_a : lse_b;
  const bool empty = high == -std::numeric_limits<double>::infinity();
  const double weight = empty ? 0 : std::exp(low - high);
  const double sum = 1 + weight;
  const std::int64_t from_x = at(x, b, i, h);
  const std::int64_t from_y = at(y, b, i, h);
  const std::int64_t to = at(m.o, b, i, h);
  for (std::int64_t d = 0; d < m.o.shape[3]; ++d) {
    double value = empty ? 0 : load(x, from_x + d * x.stride[3]);
    // An empty state has weight 0, even if it holds NaN.
    if (weight > 0) value += weight * load(y, from_y + d * y.stride[3]);
    store(m.o, to + d * m.o.stride[3], value / sum);
  }
  store(m.lse, at(m.lse, b, h, i), empty ? high : high + std::log(sum));
}

}  // namespace

Status merge(const Tensor& o_a, const Tensor& lse_a, const Tensor& o_b, const Tensor& lse_b, const Tensor& o,
             const Tensor& lse) noexcept try {
  const Merge m{o_a, lse_a, o_b, lse_b, o, lse};
  if (Status status = validate(m); !status) return status;
  for (std::int64_t b = 0; b < o.shape[0]; ++b) {
    for (std::int64_t h = 0; h < o.shape[2]; ++h) {
      for (std::int64_t i = 0; i < o.shape[1]; ++i) merge_row(m, b, h, i);
    }
  }
  return {};
} catch (...) { return caught(); }

}  // namespace falchion
