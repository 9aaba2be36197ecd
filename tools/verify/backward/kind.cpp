// tools/verify/backward/kind.cpp: the storms' entry for softmax attention's backward pass.
#include <string_view>

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
  a.lse = a.row_max = a.probabilities = false;
  if (a.grads == Grads::accumulate) a.zero_unused = false;
  a.grad_bias = a.grad_bias && a.bias;
  if (!a.grad_bias) p->grad_bias = {};
  a.grad_alibi = a.grad_alibi && a.alibi;
  if (!a.grad_alibi) p->grad_alibi_by_batch = false;
}

void require_backward(const Problem& p) {
  require_attention(p);
  const Attention& a = p.attention;
  const auto refuse = [](const char* why) { throw UsageError{std::string("--problem: ") + why}; };
  if (a.zero_unused && a.grads == Grads::accumulate) refuse("zero_unused: with grads=accumulate nothing is set to 0");
  if (a.grad_bias && !a.bias) refuse("grad_bias: there is no bias");
  if (a.grad_alibi && !a.alibi) refuse("grad_alibi: there are no slopes; alibi=1 gives some");
  require_between("frozen", a.frozen, 0, 3);
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
