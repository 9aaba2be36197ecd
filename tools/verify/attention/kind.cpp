// tools/verify/attention/kind.cpp: the storms' entry for softmax attention's forward pass, and the limits of both
// passes.
#include "verify/attention/kind.hpp"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "problem/levels.hpp"
#include "verify/kind.hpp"
#include "verify/problem_limits.hpp"
#include "verify/shrink_steps.hpp"

namespace falchion::tools::storm {
namespace {

// The values that a key of a problem's text may have.
constexpr std::string_view kScores[] = {"normal", "zero", "rising", "equal"};
constexpr std::string_view kPlants[] = {"nan_q", "nan_k", "nan_v", "inf_q", "inf_k",
                                        "inf_v", "neg_q", "neg_k", "neg_v"};
constexpr std::string_view kBiasData[] = {"normal", "masks", "rows", "mild", "large"};
constexpr std::string_view kMaskData[] = {"quarter", "rows", "all", "none"};

bool may_exceed_the_hint(const Problem& p, const Plan& plan) {
  const Attention& a = p.attention;
  return !on_gpu(plan) && a.packed && sum(p.lengths_k) > a.b * a.s_k;
}

}  // namespace

void tidy_attention(Problem* p) {
  Attention& a = p->attention;
  resize(&p->lengths_q, a.packed, a.b);
  resize(&p->lengths_k, a.packed, a.b);
#define FALCHION_LENGTHS(key, ...) resize(&p->key, a.key, a.b);
#include "base/fields.def"
  if (a.packed) a.bias = a.mask = a.probabilities = false;
  if (!a.bias) {
    p->bias_dtype = DType::f32;
    p->bias = {};
    p->data.bias = Data{}.bias;
  }
  if (!a.mask) {
    p->mask = {};
    p->data.mask = Data{}.mask;
  }
  if (a.band.left == Band::unbounded && a.band.right == Band::unbounded && !a.alibi) a.band.align = Align::unset;
  if (a.band.align != Align::at) a.band.offset = 0;
  if (a.dropout == 0) {
    p->seed = p->offset = 0;
    p->rng_in_memory = false;
    p->origin = {};
  }
  if (p->origin.h != 0 || p->origin.h_q != 0) p->origin.h_q = std::max(p->origin.h_q, p->origin.h + a.h_q);
  if (!a.alibi) p->slopes_by_batch = false;
}

void require_attention(const Problem& p) {
  const Attention& a = p.attention;
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"b", a.b}, {"s_q", a.s_q}, {"s_k", a.s_k}, {"h_q", a.h_q}, {"h_k", a.h_k}, {"d_qk", a.d_qk}, {"d_v", a.d_v}};
  for (const auto& [key, size] : sizes) require_between(key, size, 0, kInt32);
    // Storms make no caches yet.
#define FALCHION_CACHE_FIELD(kind, key, member, ...) require_between(#key, static_cast<std::int64_t>(a.member), 0, 0);
#include "base/fields.def"
  require_list("lengths_q", p.lengths_q, a.packed, a.b, 0);
  require_list("lengths_k", p.lengths_k, a.packed, a.b, 0);
  // Any value is allowed, because kernels clamp the lengths in use.
  constexpr std::int64_t any = std::numeric_limits<std::int32_t>::min();
#define FALCHION_LENGTHS(key, ...) require_list(#key, p.key, a.key, a.b, any);
#include "base/fields.def"
  require_total("lengths_q", p.lengths_q, p.spare);
  require_total("lengths_k", p.lengths_k, p.spare);
  const std::int64_t batch = a.packed ? 1 : a.b, d = std::max(a.d_qk, a.d_v);
  const std::int64_t q_rows = a.packed ? sum(p.lengths_q) + p.spare : a.s_q;
  const std::int64_t k_rows = a.packed ? sum(p.lengths_k) + p.spare : a.s_k;
  require_elements("q or o", {batch, q_rows, a.h_q, d});
  require_elements("k or v", {batch, k_rows, a.h_k, d});
  if (a.bias || a.mask || a.probabilities) require_elements("bias, mask or probabilities", {a.b, a.h_q, a.s_q, a.s_k});
  require_between("bias_ones", p.bias.one, 0, kAllAxes);
  require_between("mask_ones", p.mask.one, 0, kAllAxes);
  require_word("bias_data", p.data.bias, kBiasData);
  require_word("mask_data", p.data.mask, kMaskData);
}

bool attention_is_not_built_yet(const Problem& p) {
  const Attention& a = p.attention;
  return a.packed && (a.bias || a.mask || a.probabilities);
}

constinit const StormKind kAttentionKind = {
    .draw = draw_attention,
    .make_subject = make_attention_subject,
    .tidy = tidy_attention,
    .require_sound = require_attention,
    .operands = kOperandsOf<Pass::forward>,
    .scores = kScores,
    .plants = kPlants,
    .simplify = simplify_attention,
    .is_not_built_yet = attention_is_not_built_yet,
    .may_exceed_the_hint = may_exceed_the_hint,
};

}  // namespace falchion::tools::storm
