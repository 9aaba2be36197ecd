// src/api/validate_operands.cpp: are these the tensors of that problem? Plan::run asks it at every run.
#include <cstdint>

#include "api/check.hpp"
#include "api/overlap.hpp"
#include "api/validate.hpp"

namespace falchion {
namespace {

constexpr const char* kAxis[] = {"[0]", "[1]", "[2]", "[3]"};
constexpr std::int64_t kAny = -1;  // an extent that is the caller's to say

/// One operand: what the problem says of it and what was given.
struct Operand {
  const char* name;
  const Tensor* x;
  bool wanted = true, output = false, broadcast = false, contiguous = false;
};

bool aligned(const void* data, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(bytes) == 0;
}

void check_shape(const Operand& operand, const std::array<std::int64_t, 4>& shape, Check* check) {
  for (std::size_t axis = 0; axis < 4; ++axis) {
    const std::int64_t extent = operand.x->shape[axis];
    if (shape[axis] == kAny) {
      check->require(extent >= 0, operand.name, ".shape", kAxis[axis], " = ", extent, ": an extent is 0 or more");
    } else {
      const bool fits = extent == shape[axis] || (operand.broadcast && extent == 1);
      check->require(fits, operand.name, ".shape", kAxis[axis], " = ", extent, ", the problem's is ", shape[axis],
                     operand.broadcast ? " (or 1)" : "");
    }
  }
}

void check_strides(const Operand& operand, Check* check) {
  const Tensor& x = *operand.x;
  const bool fits = check->require(fits_address_space(x), operand.name, ": shape x stride overflows 64 bits");
  if (!fits) return;
  check->require(!operand.contiguous || x.stride[3] == 1 || x.shape[3] <= 1, operand.name, ".stride[3] = ", x.stride[3],
                 ": the last axis must be contiguous (stride 1)");
  if (!operand.output) return;
  bool positive = true;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    positive = check->require(x.shape[axis] <= 1 || x.stride[axis] > 0, operand.name, ".stride", kAxis[axis], " = ",
                              x.stride[axis], ": strides of an output are above 0") &&
               positive;
  }
  if (positive) check->require(!aliases_itself(x), operand.name, ": its strides let two elements share memory");
}

void check_tensor(const Operand& operand, DType dtype, const std::array<std::int64_t, 4>& shape, Check* check) {
  const Tensor& x = *operand.x;
  if (!operand.wanted) {
    check->require(x.data == nullptr, operand.name,
                   " is given, but the problem was planned without it: set Attention::", operand.name);
    return;
  }
  check->require(x.dtype == dtype, operand.name, ".dtype = ", name(x.dtype), ", the problem's is ", name(dtype));
  check_shape(operand, shape, check);
  if (!check->ok() || x.shape[0] == 0 || x.shape[1] == 0 || x.shape[2] == 0 || x.shape[3] == 0) return;
  check->require(x.data != nullptr, operand.name, ".data is null");
  check->require(aligned(x.data, size_of(dtype)), operand.name, ".data is not aligned to its ", size_of(dtype),
                 "-byte elements");
  check_strides(operand, check);
}

template <class T>
void check_array(const char* name, const char* flag, bool wanted, const T* data, std::int64_t length, Check* check) {
  if (wanted) {
    check->require(data != nullptr || length == 0, name, " is null, but the problem was planned with ", flag);
    check->require(aligned(data, alignof(T)), name, " is not aligned to its ", sizeof(T), "-byte elements");
  } else {
    check->require(data == nullptr, name, " is given, but the problem was planned without it: set Attention::", flag);
  }
}

void check_shapes(const Attention& a, const Operands& x, const Operand (&tensors)[9], Check* check) {
  const std::int64_t batch = a.packed ? 1 : a.b, q_rows = a.packed ? x.q.shape[1] : a.s_q,
                     k_rows = a.packed ? x.k.shape[1] : a.s_k;
  const DType bias = x.bias.dtype == DType::f32 ? DType::f32 : a.dtype;
  check_tensor(tensors[0], a.dtype, {batch, a.packed ? kAny : a.s_q, a.h_q, a.d_qk}, check);
  check_tensor(tensors[1], a.dtype, {batch, a.packed ? kAny : a.s_k, a.h_k, a.d_qk}, check);
  check_tensor(tensors[2], a.dtype, {batch, k_rows, a.h_k, a.d_v}, check);
  check_tensor(tensors[3], a.dtype, {batch, q_rows, a.h_q, a.d_v}, check);
  check_tensor(tensors[4], DType::f32, {batch, a.h_q, q_rows, 1}, check);
  check_tensor(tensors[5], DType::f32, {batch, a.h_q, q_rows, 1}, check);
  check_tensor(tensors[6], DType::f32, {a.b, a.h_q, a.s_q, a.s_k}, check);
  check_tensor(tensors[7], bias, {a.b, a.h_q, a.s_q, a.s_k}, check);
  check_tensor(tensors[8], DType::boolean, {a.b, a.h_q, a.s_q, a.s_k}, check);
}

/// Lengths and slopes as views, so that an output over them is found too.
Tensor view_of(const void* data, std::int64_t length) {
  return Tensor::dense(const_cast<void*>(data), DType::f32, {1, 1, 1, data == nullptr ? 0 : length});
}

void check_overlaps(const Attention& a, const Operands& x, const Operand (&tensors)[9], Check* check) {
  const struct {
    const char* name;
    Tensor x;
  } arrays[] = {{"alibi", view_of(x.alibi, a.h_q)},
                {"cu_seqlens_q", view_of(x.cu_seqlens_q, a.b + 1)},
                {"cu_seqlens_k", view_of(x.cu_seqlens_k, a.b + 1)},
                {"used_q", view_of(x.used_q, a.b)},
                {"used_k", view_of(x.used_k, a.b)}};
  for (const Operand& out : tensors) {
    if (!out.output || !out.wanted) continue;
    for (const Operand& other : tensors) {
      if (!other.wanted || &other == &out || (other.output && &other < &out)) continue;  // a pair of outputs once
      check->require(!overlap(*out.x, *other.x), out.name, " overlaps ", other.name);
    }
    for (const auto& array : arrays) check->require(!overlap(*out.x, array.x), out.name, " overlaps ", array.name);
  }
}

}  // namespace

Status validate_operands(const Attention& a, const Operands& x) {
  Check check;
  const Operand tensors[9] = {
      {.name = "q", .x = &x.q, .contiguous = true},
      {.name = "k", .x = &x.k, .contiguous = true},
      {.name = "v", .x = &x.v, .contiguous = true},
      {.name = "o", .x = &x.o, .output = true, .contiguous = true},
      {.name = "lse", .x = &x.lse, .wanted = a.lse, .output = true},
      {.name = "row_max", .x = &x.row_max, .wanted = a.row_max, .output = true},
      {.name = "probabilities", .x = &x.probabilities, .wanted = a.probabilities, .output = true},
      {.name = "bias", .x = &x.bias, .wanted = a.bias, .broadcast = true},
      {.name = "mask", .x = &x.mask, .wanted = a.mask, .broadcast = true},
  };
  check_shapes(a, x, tensors, &check);
  check_array("alibi", "alibi", a.alibi, x.alibi, a.h_q, &check);
  check_array("cu_seqlens_q", "packed", a.packed, x.cu_seqlens_q, a.b + 1, &check);
  check_array("cu_seqlens_k", "packed", a.packed, x.cu_seqlens_k, a.b + 1, &check);
  check_array("used_q", "used_q", a.used_q, x.used_q, a.b, &check);
  check_array("used_k", "used_k", a.used_k, x.used_k, a.b, &check);
  if (check.ok()) check_overlaps(a, x, tensors, &check);
  return check.take();
}

}  // namespace falchion
