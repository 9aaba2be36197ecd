/// falchion/norm.hpp: layer norm and RMSNorm: the problem and the tensors of a run.
#pragma once

#include <cstdint>

#include "falchion/tensor.hpp"

namespace falchion {

/// layer subtracts the mean of a row and divides by its standard deviation (Ba et al. 2016, arXiv:1607.06450), rms
/// divides by the root mean square alone (Zhang and Sennrich 2019, arXiv:1910.07467).
enum class NormKind : std::uint8_t { layer, rms };

/// Norms of rows of d numbers. v = x + residual is f32 and is not rounded before it is normalised. layer:
/// Y = (v - mean) rstd weight + bias with rstd = 1 / sqrt(variance + eps). rms subtracts no mean:
/// Y = v rstd weight + bias with rstd = 1 / sqrt(mean of v^2 + eps).
struct Norm {
  DType dtype = DType::bf16;           // the type of x: f32, f16 or bf16
  DType dtype_y = DType::as_q;         // of y; as_q: as x; or f32, f16 or bf16
  DType dtype_residual = DType::as_q;  // of residual and residual_out; as_q: as x; or f32, f16 or bf16
  NormKind kind = NormKind::layer;
  std::int64_t rows = 0, d = 0;  // rows: the product of the first three extents of x
  float eps = 1e-5F;             // finite and >= 0
  bool zero_centered = false;    // the factor is 1 + weight

  // Which optional operands the run will have.
  bool weight = false, bias = false;
  bool residual = false, residual_out = false;  // an input that is added to x; an output that gets the sum
  bool mean = false, rstd = false;              // outputs that a backward pass needs; rms has no mean
  bool operator==(const Norm&) const = default;
};

/// The tensors of one run of Norm. An input may have any strides, also 0 and negative ones. A GPU is fastest where d is
/// a multiple of 8, the numbers of a row are contiguous, and each row begins at a multiple of 16 bytes.
struct NormOperands {
  Tensor x{};               // input   (b, s, h, d)
  Tensor residual{};        // input   (b, s, h, d)
  Tensor weight{}, bias{};  // inputs  (b, s, h, d), f32, f16 or bf16; rows share numbers along axes of extent 1
  Tensor y{};               // output  (b, s, h, d); it may be the very view x, or residual
  Tensor residual_out{};    // output  (b, s, h, d); it may be the very view residual, or x
  Tensor mean{}, rstd{};    // outputs (b, s, h, 1) f32
};

}  // namespace falchion
