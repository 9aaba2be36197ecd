// tools/verify/linear/kind.cpp: the storms' entry for linear attention, in both passes: its limits, its names, and the
// allowed refusals.
#include <algorithm>
#include <string_view>
#include <utility>

#include "problem/levels.hpp"
#include "verify/kind.hpp"
#include "verify/problem_limits.hpp"
#include "verify/shrink_steps.hpp"

namespace falchion::tools::storm {
namespace {

// The values that a key of a problem's text may have.
constexpr std::string_view kOperands[] = {"q",
                                          "k",
                                          "v",
                                          "o",
                                          "decay",
                                          "initial_state",
                                          "initial_z",
                                          "final_state",
                                          "final_z",
                                          "grad_o",
                                          "grad_q",
                                          "grad_k",
                                          "grad_v",
                                          "grad_decay",
                                          "grad_final_state",
                                          "grad_final_z",
                                          "grad_initial_state",
                                          "grad_initial_z"};
constexpr std::string_view kScores[] = {"normal", "positive"};
constexpr std::string_view kPlants[] = {"nan_q", "nan_k", "nan_v", "inf_q", "inf_k", "inf_v"};
constexpr std::string_view kDecayData[] = {"weak", "mixed", "strong", "forget"};

void tidy_linear(Problem* p) {
  const LinearAttention& a = p->linear;
  resize(&p->lengths_q, a.packed, a.b);
  p->lengths_k.clear();
#define FALCHION_LENGTHS(key, ...) p->key.clear();
#include "base/fields.def"
  if (!a.initial_state || !a.final_state || p->pass() == Pass::backward) p->in_place = false;
}

void require_linear(const Problem& p) {
  const LinearAttention& a = p.linear;
  const std::pair<const char*, std::int64_t> sizes[] = {{"b", a.b},     {"s", a.s},       {"h_qk", a.h_qk},
                                                        {"h_v", a.h_v}, {"d_qk", a.d_qk}, {"d_v", a.d_v}};
  for (const auto& [key, size] : sizes) require_between(key, size, 0, kInt32);
  require_list("lengths", p.lengths_q, a.packed, a.b, 0);
  require_total("lengths", p.lengths_q, p.spare);
  const std::int64_t batch = a.packed ? 1 : a.b, heads = std::max(a.h_qk, a.h_v), d = std::max(a.d_qk, a.d_v);
  const std::int64_t rows = a.packed ? sum(p.lengths_q) + p.spare : a.s;
  require_elements("q, k, v or o", {batch, rows, heads, d});
  require_elements("a state", {a.b, a.h_v, a.d_qk, a.d_v});
  require_word("decay_data", p.data.decay, kDecayData);
}

bool may_exceed_the_hint(const Problem& p, const Plan& plan) {
  const LinearAttention& a = p.linear;
  if (!a.packed) return false;
  // A GPU's lengths are on the device, so all rows count there, also those outside of all sequences.
  if (on_gpu(plan)) return plan.workspace_bytes() > 0 && sum(p.lengths_q) + p.spare > a.b * a.s;
  return sum(p.lengths_q) > a.b * a.s;
}

}  // namespace

constinit const StormKind kLinearKind = {
    .draw = draw_linear_attention,
    .make_subject = make_linear_subject,
    .tidy = tidy_linear,
    .require_sound = require_linear,
    .operands = kOperands,
    .scores = kScores,
    .plants = kPlants,
    .simplify = simplify_linear,
    .is_not_built_yet = [](const Problem&) { return false; },
    .may_exceed_the_hint = may_exceed_the_hint,
};

}  // namespace falchion::tools::storm
