// tools/verify/attention/kind.cpp: the storms' entry for softmax attention's forward pass, and the limits of both
// passes.
#include "verify/attention/kind.hpp"

#include <algorithm>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/size.hpp"
#include "problem/levels.hpp"
#include "problem/page_table.hpp"
#include "verify/kind.hpp"
#include "verify/problem_limits.hpp"
#include "verify/shrink_steps.hpp"

namespace falchion::tools::storm {
namespace {

// The values that a key of a problem's text may have.
constexpr std::string_view kScores[] = {"normal", "zero", "rising", "equal", "codes"};
constexpr std::string_view kPlants[] = {"nan_q", "nan_k", "nan_v", "inf_q", "inf_k",
                                        "inf_v", "neg_q", "neg_k", "neg_v"};
constexpr std::string_view kBiasData[] = {"normal", "masks", "rows", "mild", "large"};
constexpr std::string_view kMaskData[] = {"quarter", "rows", "all", "none"};

bool may_exceed_the_hint(const Problem& p, const Plan& plan) {
  const Attention& a = p.attention;
  if (a.packed && a.rotary_dim > 0 && sum(p.lengths_q) + p.spare > a.b * a.s_q) return true;  // q has turned there
  return !on_gpu(plan) && a.packed && sum(p.lengths_k) > a.b * a.s_k;
}

/// Whether docs/contract.md refuses the field beside a cache: what has a number for each score, outputs but for lse.
bool is_refused_with_cache(const Field& field) {
  const OperandField* of = operand_named(field.key);
  const bool of_scores = of != nullptr && of->shape == OperandField::scores;
  return of_scores || (field.kind == FieldKind::output && field.key != "lse") || field.key == "dropout";
}

/// The same of q of 8 bits.
bool is_refused_with_bytes(const Field& field) {
  const bool left_padding = field.kind == FieldKind::lengths && !field.key.starts_with("used");
  return is_refused_with_cache(field) || field.key == "cache" || field.key == "alibi" || left_padding;
}

/// q of 8 bits has types and scales of its own.
void tidy_bytes_of_q(Problem* p) {
  Attention& a = p->attention;
  if (!is_8bit(a.dtype)) {
    a.dtype_o = DType::as_q;
    a.q_scale = false;
    a.k_scale_rows = 0;
    if (p->data.shape == "codes") p->data.shape = Data{}.shape;
  }
  if (!a.q_scale) p->q_scale = {};
  if (!is_8bit(a.dtype)) return;
  each_field(a, [&](const Field& field, const auto&) {
    if (is_refused_with_bytes(field)) reset(&a, field);
  });
  a.dtype_k = DType::as_q;
  const bool of_16_bits = a.dtype_v == DType::bf16 || a.dtype_v == DType::f16;
  if (a.dtype == DType::e4m3) a.dtype_v = DType::as_q;
  if (a.dtype == DType::i8 && !of_16_bits) a.dtype_v = DType::e4m3;
  if (!is_8bit(dtype_of_v(a))) {
    a.dtype_o = DType::as_q;
    a.v_scale = false;
  }
  if (!a.k_scale) a.k_scale_rows = 0;
  a.k_scale_rows = a.k_scale_rows / 128 * 128;
  if (a.k_scale && a.k_scale_rows == 0 && (p->storage_of("k_scale").zero & 2U) == 0) p->k_scale.one |= 2U;
  if (a.v_scale) p->v_scale.one |= 2U;
  for (const auto& [scale, there] : {std::pair{"q_scale", a.q_scale}, {"k_scale", a.k_scale}, {"v_scale", a.v_scale}})
    if (!there) p->storage.erase(scale);
}

void tidy_cache(Problem* p) {
  Attention& a = p->attention;
  if (!a.cache) {
    a.page_size = a.rotary_dim = 0;
    a.append = false;
    a.dtype_k = DType::as_q;
  }
  if (!is_8bit(a.dtype)) {
    a.dtype_v = a.dtype_k;
    if (!is_8bit(a.dtype_k)) a.k_scale = a.v_scale = false;
  }
  if (!a.k_scale) p->k_scale = {};
  if (!a.v_scale) p->v_scale = {};
  a.rotary_dim = std::min(a.rotary_dim, a.d_qk) / 2 * 2;
  if (a.rotary_dim == 0) a.rotary_pairs = false;
  if (a.rotary_dim == 0) p->positions = 1;
  if (a.append) {  // two sequences must not write to one slot
    std::erase_if(p->pages, [](const std::string& word) { return word == "shared" || word == "wrong_starts"; });
    p->page_count = -1;
    p->page_starts.clear();
    for (const char* written : {"k", "v"})
      if (const auto found = p->storage.find(written); found != p->storage.end())
        found->second.zero = found->second.flip = 0;
  }
  if (a.packed) a.split_keys = 0;
  if (a.page_size == 0) {
    const Problem none;
    p->pages.clear();
    p->page_count = none.page_count;
    p->page_columns = none.page_columns;
  }
  if (a.page_size == 0 || static_cast<std::int64_t>(p->page_starts.size()) != a.b + 1) p->page_starts.clear();
  each_field(a, [&](const Field& field, const auto&) {
    if (a.cache && is_refused_with_cache(field)) reset(&a, field);
  });
}

/// The table has no stride of 0, since its rows differ.
void require_cache(const Problem& p) {
  const Attention& a = p.attention;
  require_between("page_size", a.page_size, 0, a.cache ? kInt32 : 0);
  require_between("split_keys", a.split_keys, 0, kInt32);
  require_between("rotary_dim", a.rotary_dim, 0, a.d_qk);
  require_between("positions", p.positions, 1, kInt32);
  require_between("q_scale_ones", p.q_scale.one, 0, 7);
  require_between("k_scale_ones", p.k_scale.one, 0, 7);
  require_between("k_scale_rows", a.k_scale_rows, 0, kInt32);
  require_between("v_scale_ones", p.v_scale.one, 0, 7);
  require_elements("rotary", {p.positions, std::max<std::int64_t>(a.rotary_dim, 1)});
  for (const std::string& word : p.pages) require_word("pages", word, kPageWords);
  require_between("layout_page_table: zero", p.storage_of("page_table").zero, 0, 0);
  const std::int64_t most = a.page_size > 0 ? kInt32 : -1;
  require_between("page_count", p.page_count, -1, most);
  require_between("page_columns", p.page_columns, -1, most);
  require_list("page_starts", p.page_starts, !p.page_starts.empty(), a.b + 1, std::numeric_limits<std::int32_t>::min());
  if (a.page_size == 0) return;
  const std::int64_t of_a_sequence = a.s_k / a.page_size + 2;
  std::int64_t columns = std::max(p.page_columns, of_a_sequence);
  for (const std::int64_t n : p.page_starts) columns = std::max(columns, n);
  require_elements("page_table", {a.b, columns});
  require_elements("k or v",
                   {std::max(p.page_count, a.b * of_a_sequence), a.page_size, a.h_k, std::max(a.d_qk, a.d_v)});
}

}  // namespace

void tidy_attention(Problem* p) {
  Attention& a = p->attention;
  tidy_bytes_of_q(p);
  tidy_cache(p);
  resize(&p->lengths_q, a.packed, a.b);
  resize(&p->lengths_k, a.packed && !a.cache, a.b);
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
  if (!a.sinks) p->sinks_by_batch = false;
}

void require_attention(const Problem& p) {
  const Attention& a = p.attention;
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"b", a.b}, {"s_q", a.s_q}, {"s_k", a.s_k}, {"h_q", a.h_q}, {"h_k", a.h_k}, {"d_qk", a.d_qk}, {"d_v", a.d_v}};
  for (const auto& [key, size] : sizes) require_between(key, size, 0, kInt32);
  require_list("lengths_q", p.lengths_q, a.packed, a.b, 0);
  require_list("lengths_k", p.lengths_k, a.packed && !a.cache, a.b, 0);
  // Any value is allowed, because kernels clamp the lengths in use.
  constexpr std::int64_t any = std::numeric_limits<std::int32_t>::min();
#define FALCHION_LENGTHS(key, ...) require_list(#key, p.key, a.key, a.b, any);
#include "base/fields.def"
  require_total("lengths_q", p.lengths_q, p.spare);
  require_total("lengths_k", p.lengths_k, p.spare);
  const std::int64_t batch = a.packed ? 1 : a.b, d = std::max(a.d_qk, a.d_v);
  const std::int64_t q_rows = a.packed ? sum(p.lengths_q) + p.spare : a.s_q;
  const bool packed_k = a.packed && !a.cache;
  require_elements("q or o", {batch, q_rows, a.h_q, d});
  if (a.page_size == 0)
    require_elements("k or v", {packed_k ? 1 : a.b, packed_k ? sum(p.lengths_k) + p.spare : a.s_k, a.h_k, d});
  require_cache(p);
  if (a.bias || a.mask || a.probabilities) require_elements("bias, mask or probabilities", {a.b, a.h_q, a.s_q, a.s_k});
  require_between("bias_ones", p.bias.one, 0, kAllAxes);
  require_between("mask_ones", p.mask.one, 0, kAllAxes);
  require_word("bias_data", p.data.bias, kBiasData);
  require_word("mask_data", p.data.mask, kMaskData);
}

bool attention_is_not_built_yet(const Problem& p) {
  const Attention& a = p.attention;
  bool refused = false;
  each_field(a, [&](const Field& field, const auto& x) {
    const bool may_be = (a.cache && is_refused_with_cache(field)) || (is_8bit(a.dtype) && is_refused_with_bytes(field));
    refused = refused || (may_be && x != std::remove_cvref_t<decltype(x)>{});
  });
  if (refused) return true;
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
