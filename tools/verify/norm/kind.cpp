// tools/verify/norm/kind.cpp: the storms' entry for norms: its limits and its words.
#include <string_view>
#include <utility>

#include "plan/norm.hpp"
#include "verify/kind.hpp"
#include "verify/problem_limits.hpp"
#include "verify/shrink_steps.hpp"

namespace falchion::tools::storm {
namespace {

// The values that a key of a problem's text may have.
constexpr std::string_view kOperands[] = {"x", "residual", "weight", "bias", "y", "residual_out", "mean", "rstd"};
constexpr std::string_view kPlants[] = {"nan_x",      "inf_x",      "nan_residual", "inf_residual",
                                        "nan_weight", "inf_weight", "nan_bias",     "inf_bias"};

void tidy_norm(Problem* p) {
  Norm& n = p->norm;
  if (n.rows % p->s != 0 || n.rows / p->s % p->h != 0) p->s = p->h = 1;
  n.zero_centered = n.zero_centered && n.weight;
  n.residual_out = n.residual_out && n.residual;
  n.mean = n.mean && n.kind == NormKind::layer;
  if (!n.residual) n.dtype_residual = DType::as_q;
  if (!n.weight) {
    p->weight = {7};
    p->weight_dtype = DType::f32;
  }
  if (!n.bias) {
    p->bias = {};
    p->bias_dtype = DType::f32;
  }
  if (dtype_of_y(n) != n.dtype && !n.residual_out) p->in_place = false;
}

void require_norm(const Problem& p) {
  const Norm& n = p.norm;
  const std::pair<const char*, std::int64_t> sizes[] = {{"rows", n.rows}, {"d", n.d}};
  for (const auto& [key, size] : sizes) require_between(key, size, 0, kInt32);
  require_between("s", p.s, 1, kInt32);
  require_between("h", p.h, 1, kInt32);
  require_between("the rest that s and h leave of rows", n.rows % p.s, 0, 0);
  require_between("the rest that s and h leave of rows", n.rows / p.s % p.h, 0, 0);
  require_between("weight_ones", p.weight.one, 0, 7);
  require_between("bias_ones", p.bias.one, 0, 7);
  require_elements("x", {n.rows, n.d});
}

}  // namespace

constinit const StormKind kNormKind = {
    .draw = draw_norm,
    .make_subject = make_norm_subject,
    .tidy = tidy_norm,
    .require_sound = require_norm,
    .operands = kOperands,
    .scores = kNormScores,
    .plants = kPlants,
    .simplify = simplify_norm,
    .is_not_built_yet = [](const Problem&) { return false; },
    .may_exceed_the_hint = [](const Problem&, const Plan&) { return false; },
};

}  // namespace falchion::tools::storm
