/// falchion/tensor.hpp: what every other header speaks of: the types of elements, Status, Tensor.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace falchion {

/// The type of an element. as_q is for problems and means "the type of q"; a tensor always has a type of its own.
/// e4m3 and i8 are for Gemm, for Attention and for caches, i32 is for Gemm alone. e5m2 already has its number, but no
/// kernel takes it yet.
enum class DType : std::uint8_t { as_q, f32, f16, bf16, boolean, e4m3, e5m2, i8, i32 };

enum class Code : std::uint8_t { ok, invalid, unsupported, workspace, device };
/// What every call returns. It is false on failure; `why` then names the argument, its value and the limit.
struct [[nodiscard]] Status {
  Code code = Code::ok;
  std::string why{};
  explicit operator bool() const { return code == Code::ok; }
};

/// A view of the caller's memory; it owns nothing. The axes of q, k, v and o are (b, s, h, d), those of bias, mask and
/// probabilities are (b, h_q, s_q, s_k), and those of lse and row_max are (b, h_q, s_q, 1). Strides may be in any
/// order. Only inputs may have strides of 0 (broadcast) or below 0.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::array<std::int64_t, 4> shape{}, stride{};

  /// A dense tensor whose last axis is contiguous, in the order of its axes.
  static Tensor dense(void* data, DType dtype, std::array<std::int64_t, 4> shape) {
    return {data, dtype, shape, {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}};
  }
  /// A view with the same axes (b, s, h, d), over memory that lies as (b, h, s, d), which is PyTorch's order.
  static Tensor heads_first(void* data, DType dtype, std::array<std::int64_t, 4> shape) {
    return {data, dtype, shape, {shape[1] * shape[2] * shape[3], shape[3], shape[1] * shape[3], 1}};
  }
};

}  // namespace falchion
