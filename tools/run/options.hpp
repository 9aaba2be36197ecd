// tools/run/options.hpp: the options of `falchion run`, for both passes of attention, a GEMM and a norm.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "measure/measure.hpp"
#include "problem/norm_problem.hpp"
#include "problem/operation.hpp"
#include "problem/problem_options.hpp"
#include "problem/tensor_options.hpp"

namespace falchion::tools {

/// Of --op gemm: the files of its inputs, and its factors.
struct GemmRunOptions {
  std::string a, b, c, bias_n, bias_m, activation = "none";
  float alpha = 1, beta = 1;
  bool d_f32 = false;

  static constexpr std::initializer_list<const char*> kNames = {
      "--a", "--b", "--c", "--bias-n", "--bias-m", "--activation", "--alpha", "--beta", "--d-f32"};
};

/// Of --op norm: the files of its tensors, except for the bias, which is in TensorOptions, and what it computes.
struct NormRunOptions {
  std::string x, weight, residual_out, mean, rstd, kind = kUsualNormKind;
  float eps = 1e-5F;
  bool zero_centered = false, y_f32 = false;

  static constexpr std::initializer_list<const char*> kNames = {
      "--x", "--weight", "--kind", "--eps", "--zero-centered", "--y-f32", "--residual-out", "--mean", "--rstd"};
};

struct RunOptions {
  std::string op = name(Op::attention);
  TensorOptions tensors;
  FeatureOptions features;
  TargetOptions where;
  std::string out, lse, row_max, probabilities;  // outputs of the forward pass
  // Of the backward pass: inputs, and outputs. `lse` is an input there, `out` has all gradients.
  std::string o, grad_o, grad_lse, grad_q, grad_k, grad_v, grad_bias, grad_alibi, grad_sinks;
  std::string grads = "rounded";
  Attention flags{};  // those of the backward pass alone
  GemmRunOptions gemm;
  NormRunOptions norm;
  std::string residual;  // of a GEMM or a norm
  std::string dump;      // a file of FALCHION_TRACE_DUMP, which says all of that itself
  std::int64_t repeat = 1;
  bool progress = false, no_limit = false, as_json = false;
};

}  // namespace falchion::tools
