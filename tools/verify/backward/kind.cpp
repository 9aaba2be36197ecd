// tools/verify/backward/kind.cpp: the storms' entry for softmax attention's backward pass.
#include <string_view>

#include "api/validate.hpp"
#include "problem/levels.hpp"
#include "tool.hpp"
#include "verify/attention/kind.hpp"
#include "verify/shrink_steps.hpp"

namespace falchion::tools::storm {
namespace {

constexpr std::string_view kScores[] = {"normal", "zero", "rising", "equal"};
constexpr std::string_view kPlants[] = {"nan_q",   "nan_k",   "nan_v",      "inf_q",      "inf_k",
                                        "inf_v",   "neg_q",   "neg_k",      "neg_v",      "nan_o",
                                        "nan_lse", "inf_lse", "nan_grad_o", "inf_grad_o", "nan_grad_lse"};
constexpr std::string_view kStates[] = {"own", "merged", "any", "gone"};

void tidy_backward(Problem* p) {
  tidy_attention(p);
  Attention& a = p->attention;
#define FALCHION_FORWARD_FIELD(kind, key, member, option, text) a.member = false;
#include "base/fields.def"
  a.grad_bias = a.grad_bias && a.bias;
  if (!a.grad_bias) p->grad_bias = {};
  a.grad_alibi = a.grad_alibi && a.alibi;
  if (!a.grad_alibi) p->grad_alibi_by_batch = false;
  a.grad_sinks = a.grad_sinks && a.sinks;
  if (!a.grad_sinks) p->grad_sinks_by_batch = false;
}

void require_backward(const Problem& p) {
  require_attention(p);
  const Attention& a = p.attention;
  Check check;
  check_backward(a, &check);
  if (!check.ok()) throw UsageError{"--problem: " + check.take().why};
  require_between("grad_bias_ones", p.grad_bias.one, 0, kAllAxes);
  require_word("state", p.data.state, kStates);
  if (a.grad_bias) require_elements("grad_bias", {a.b, a.h_q, a.s_q, a.s_k});
}

/// A workspace has space for b * s_q and b * s_k packed rows. A GPU's lengths are on the device, so all rows count
/// there, also those outside of all sequences.
bool may_exceed_the_hint(const Problem& p, const Plan& plan) {
  const Attention& a = p.attention;
  if (!a.packed || plan_backend(plan) == "ref") return false;
  const std::int64_t spare = on_gpu(plan) ? p.spare : 0;
  return sum(p.lengths_q) + spare > a.b * a.s_q || sum(p.lengths_k) + spare > a.b * a.s_k;
}

}  // namespace

constinit const StormKind kAttentionBackwardKind = {
    .draw = draw_attention_backward,
    .make_subject = make_attention_backward_subject,
    .tidy = tidy_backward,
    .require_sound = require_backward,
    .operands = kOperandsOf<Pass::backward>,
    .scores = kScores,
    .plants = kPlants,
    .simplify = simplify_attention_backward,
    .is_not_built_yet = attention_is_not_built_yet,
    .may_exceed_the_hint = may_exceed_the_hint,
};

}  // namespace falchion::tools::storm
