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
///
/// The backward pass takes v as x: where a residual was added, it is the residual_out of the forward pass. With
/// z = (v - mean) rstd and g = grad_y weight, grad_x = (g - mean of g - z (mean of g z)) rstd + grad_residual_out,
/// where rms leaves out the first mean. It is the gradient of v, and so that of x and that of the residual. grad_weight
/// is the sum of grad_y z and grad_bias that of grad_y over the rows that share a number. mean and rstd are computed
/// again.
struct Norm {
  DType dtype = DType::bf16;           // the type of x and grad_x: f32, f16 or bf16
  DType dtype_y = DType::as_q;         // of y and grad_y; as_q: as x; or f32, f16 or bf16
  DType dtype_residual = DType::as_q;  // of residual, residual_out and grad_residual_out; likewise
  NormKind kind = NormKind::layer;
  std::int64_t rows = 0, d = 0;  // rows: the product of the first three extents of x
  float eps = 1e-5F;             // finite and >= 0
  bool zero_centered = false;    // the factor is 1 + weight

  // Which optional operands the run will have. The backward pass has grad_weight where there is a weight, grad_bias
  // where there is a bias, and grad_residual_out where there is a residual_out; residual, mean and rstd are for forward
  // alone.
  bool weight = false, bias = false;
  bool residual = false, residual_out = false;  // an input that is added to x; an output that gets the sum
  bool mean = false, rstd = false;              // outputs; rms has no mean
  std::uint8_t frozen = 0;                      // what is not wanted: 1 grad_x, 2 grad_weight, 3 both
  bool operator==(const Norm&) const = default;
};

/// The tensors of one run of Norm. Those after the blank line are only for Pass::backward, which reads x and weight
/// too. An input may have any strides, also 0 and negative ones. A GPU is fastest where d is a multiple of 8, the
/// numbers of a row are contiguous, and each row begins at a multiple of 16 bytes.
struct NormOperands {
  Tensor x{};               // input   (b, s, h, d)
  Tensor residual{};        // input   (b, s, h, d)
  Tensor weight{}, bias{};  // inputs  (b, s, h, d), f32, f16 or bf16; rows share numbers along axes of extent 1
  Tensor y{};               // output  (b, s, h, d); it may be the very view x, or residual
  Tensor residual_out{};    // output  (b, s, h, d); it may be the very view residual, or x
  Tensor mean{}, rstd{};    // outputs (b, s, h, 1) f32

  Tensor grad_y{};             // input   (b, s, h, d)
  Tensor grad_residual_out{};  // input   (b, s, h, d)
  Tensor grad_x{};             // output  (b, s, h, d); it may be the very view x, grad_y or grad_residual_out
  Tensor grad_weight{};        // output  with the shape of weight, f32, f16 or bf16
  Tensor grad_bias{};          // output  (b, s, h, d), as grad_weight, summed along axes of extent 1
};

}  // namespace falchion
