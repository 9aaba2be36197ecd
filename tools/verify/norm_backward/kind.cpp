// tools/verify/norm_backward/kind.cpp: the storms' entry for gradients of norms: its limits and its words.
#include <string_view>

#include "plan/norm.hpp"
#include "ref/norm_backward.hpp"
#include "verify/kind.hpp"
#include "verify/problem_limits.hpp"
#include "verify/shrink_steps.hpp"

namespace falchion::tools::storm {
namespace {

// The values that a key of a problem's text may have.
constexpr std::string_view kOperands[] = {"x",      "weight",      "grad_y",   "grad_residual_out",
                                          "grad_x", "grad_weight", "grad_bias"};
constexpr std::string_view kPlants[] = {"nan_x",
                                        "inf_x",
                                        "nan_grad_y",
                                        "inf_grad_y",
                                        "nan_weight",
                                        "inf_weight",
                                        "nan_grad_residual_out",
                                        "inf_grad_residual_out"};

void tidy_norm_backward(Problem* p) {
  Norm& n = p->norm;
  if (n.rows % p->s != 0 || n.rows / p->s % p->h != 0) p->s = p->h = 1;
  n.zero_centered = n.zero_centered && n.weight;
  if (!n.residual_out) n.dtype_residual = DType::as_q;
  if (!n.weight) {
    p->weight = {7};
    p->weight_dtype = DType::f32;
  }
  if (!ref::wants_grad_weight(n)) p->grad_weight_dtype = DType::f32;
  p->bias_dtype = DType::f32;
  if (!n.bias) {
    p->bias = {};
    p->grad_bias_dtype = DType::f32;
  }
  if (dtype_of_y(n) != n.dtype || !ref::wants_grad_x(n)) p->in_place = false;
}

void require_norm_backward(const Problem& p) {
  kNormKind.require_sound(p);
  require_between("frozen", p.norm.frozen, 0, 3);
}

}  // namespace

constinit const StormKind kNormBackwardKind = {
    .draw = draw_norm_backward,
    .make_subject = make_norm_backward_subject,
    .tidy = tidy_norm_backward,
    .require_sound = require_norm_backward,
    .operands = kOperands,
    .scores = kNormScores,
    .plants = kPlants,
    .simplify = simplify_norm_backward,
    .is_not_built_yet = [](const Problem&) { return false; },
    .may_exceed_the_hint = [](const Problem&, const Plan&) { return false; },
};

}  // namespace falchion::tools::storm
