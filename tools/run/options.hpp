// tools/run/options.hpp: what `falchion run` is asked for, by its two passes of attention.
#pragma once

#include <cstdint>
#include <string>

#include "measure/measure.hpp"
#include "problem/operation.hpp"
#include "problem/problem_options.hpp"
#include "problem/tensor_options.hpp"

namespace falchion::tools {

struct RunOptions {
  std::string op = name(Op::attention);
  TensorOptions tensors;
  FeatureOptions features;
  TargetOptions where;
  std::string out, lse, row_max, probabilities;  // outputs of the forward pass
  // Of the backward pass: inputs, and outputs. `lse` is an input there, `out` has all gradients.
  std::string o, grad_o, grad_lse, grad_q, grad_k, grad_v, grad_bias, grad_alibi, grads = "rounded";
  bool any_order = false;
  std::int64_t repeat = 1;
  bool progress = false, no_limit = false, as_json = false;
};

}  // namespace falchion::tools
