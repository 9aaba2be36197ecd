// tools/verify/problem_limits.cpp: see problem_limits.hpp.
#include "problem_limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>
#include <vector>

#include "tool.hpp"

namespace falchion::tools::storm {
namespace {

constexpr std::int64_t kInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostPad = std::int64_t{1} << 20;  // far above all that a storm draws
constexpr double kMostElements = 0x1p40;                  // of an operand: its strides then stay within 64 bits
constexpr std::int64_t kAllAxes = 15;

using Words = std::vector<std::string_view>;
using Lengths = std::vector<std::int64_t>;

void require_between(const std::string& key, std::int64_t x, std::int64_t least, std::int64_t most) {
  if (x < least || x > most)
    throw UsageError{fmt::format("--problem: {}: {} is not between {} and {}", key, x, least, most)};
}

void require_word(const char* key, const std::string& word, const Words& words) {
  if (std::find(words.begin(), words.end(), word) == words.end())
    throw UsageError{fmt::format("--problem: {}: \"{}\" is not one of {}", key, word, fmt::join(words, ", "))};
}

/// `wanted` says that the problem has this list, with one number for each sequence.
void require_list(const char* key, const Lengths& list, bool wanted, std::int64_t b, std::int64_t least) {
  const std::int64_t count = wanted ? b : 0;
  if (static_cast<std::int64_t>(list.size()) != count)
    throw UsageError{fmt::format("--problem: {}: {} numbers, the problem needs {}", key, list.size(), count)};
  for (const std::int64_t n : list) require_between(key, n, least, kInt32);
}

/// Packed rows are counted in 32 bits, together with those that belong to no sequence.
void require_total(const char* key, const Lengths& lengths, std::int64_t spare) {
  const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), spare);
  require_between(fmt::format("the sum of {} and spare", key), total, 0, kInt32);
}

void require_elements(const char* what, std::initializer_list<std::int64_t> extents) {
  double elements = 1;
  for (const std::int64_t n : extents) elements *= static_cast<double>(std::max<std::int64_t>(n, 1));
  if (elements > kMostElements)
    throw UsageError{
        fmt::format("--problem: {}: {:g} elements are over the limit of {:g}", what, elements, kMostElements)};
}

void require_attention(const Problem& p) {
  const Attention& a = p.attention;
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"b", a.b}, {"s_q", a.s_q}, {"s_k", a.s_k}, {"h_q", a.h_q}, {"h_k", a.h_k}, {"d_qk", a.d_qk}, {"d_v", a.d_v}};
  for (const auto& [key, size] : sizes) require_between(key, size, 0, kInt32);
  require_list("lengths_q", p.lengths_q, a.packed, a.b, 0);
  require_list("lengths_k", p.lengths_k, a.packed, a.b, 0);
  constexpr std::int64_t any = std::numeric_limits<std::int32_t>::min();  // kernels clamp the lengths in use
  require_list("used_q", p.used_q, a.used_q, a.b, any);
  require_list("used_k", p.used_k, a.used_k, a.b, any);
  require_list("first_k", p.first_k, a.first_k, a.b, any);
  require_total("lengths_q", p.lengths_q, p.spare);
  require_total("lengths_k", p.lengths_k, p.spare);
  const std::int64_t batch = a.packed ? 1 : a.b, d = std::max(a.d_qk, a.d_v);
  const std::int64_t q_rows = a.packed ? std::accumulate(p.lengths_q.begin(), p.lengths_q.end(), p.spare) : a.s_q;
  const std::int64_t k_rows = a.packed ? std::accumulate(p.lengths_k.begin(), p.lengths_k.end(), p.spare) : a.s_k;
  require_elements("q or o", {batch, q_rows, a.h_q, d});
  require_elements("k or v", {batch, k_rows, a.h_k, d});
  if (a.bias || a.mask || a.probabilities) require_elements("bias, mask or probabilities", {a.b, a.h_q, a.s_q, a.s_k});
  require_between("bias_ones", p.bias.one, 0, kAllAxes);
  require_between("mask_ones", p.mask.one, 0, kAllAxes);
  require_word("bias_data", p.data.bias, {"normal", "masks", "rows", "mild", "large"});
  require_word("mask_data", p.data.mask, {"quarter", "rows", "all", "none"});
}

void require_linear(const Problem& p) {
  const LinearAttention& a = p.linear;
  const std::pair<const char*, std::int64_t> sizes[] = {{"b", a.b},     {"s", a.s},       {"h_qk", a.h_qk},
                                                        {"h_v", a.h_v}, {"d_qk", a.d_qk}, {"d_v", a.d_v}};
  for (const auto& [key, size] : sizes) require_between(key, size, 0, kInt32);
  require_list("lengths", p.lengths_q, a.packed, a.b, 0);
  require_total("lengths", p.lengths_q, p.spare);
  const std::int64_t batch = a.packed ? 1 : a.b, heads = std::max(a.h_qk, a.h_v), d = std::max(a.d_qk, a.d_v);
  const std::int64_t rows = a.packed ? std::accumulate(p.lengths_q.begin(), p.lengths_q.end(), p.spare) : a.s;
  require_elements("q, k, v or o", {batch, rows, heads, d});
  require_elements("a state", {a.b, a.h_v, a.d_qk, a.d_v});
  require_word("decay_data", p.data.decay, {"weak", "mixed", "strong", "forget"});
}

void require_storage(const std::string& operand, const Storage& x) {
  const auto key = [&](const char* part) { return fmt::format("layout_{}: {}", operand, part); };
  require_between(key("pad"), x.pad, 0, kMostPad);
  require_between(key("gap"), x.gap, 0, kMostPad);
  require_between(key("start"), x.start, 0, kMostPad);
  require_between(key("flip"), x.flip, 0, kAllAxes);
  require_between(key("zero"), x.zero, 0, kAllAxes);
}

}  // namespace

void require_sound(const Problem& p) {
  static const Words of_attention = {"q", "k", "v", "o", "lse", "row_max", "probabilities", "bias", "mask", "alibi"};
  static const Words of_linear = {"q",
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
  const bool attention = p.op == Op::attention;
  require_between("threads", p.threads, 0, kInt32);
  require_between("segments", p.segments, 0, kInt32);
  const std::int64_t b = attention ? p.attention.b : p.linear.b;
  require_between("spare", p.spare, 0, b == 0 ? 0 : kInt32);  // packed rows with b = 0 are refused
  if (attention) {
    require_attention(p);
  } else {
    require_linear(p);
  }
  require_word("scores", p.data.shape,
               attention ? Words{"normal", "zero", "rising", "equal"} : Words{"normal", "positive"});
  Words plants = {"nan_q", "nan_k", "nan_v", "inf_q", "inf_k", "inf_v"};
  if (attention) plants.insert(plants.end(), {"neg_q", "neg_k", "neg_v"});
  for (const std::string& kind : p.data.plant) require_word("plant", kind, plants);
  for (const auto& [operand, storage] : p.storage) {
    require_word("layout_", operand, attention ? of_attention : of_linear);
    require_storage(operand, storage);
  }
}

}  // namespace falchion::tools::storm
