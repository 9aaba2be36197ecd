// tools/problem/work.cpp
#include "problem/work.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "base/fields.hpp"
#include "base/size.hpp"
#include "plan/explain.hpp"
#include "plan/text.hpp"
#include "plan/work.hpp"

namespace falchion::tools {
namespace {

/// Scores inside the band of one sequence.
double scores(const Attention& a, std::int64_t s_q, std::int64_t s_k) {
  const double all = static_cast<double>(s_q) * static_cast<double>(s_k);
  if (a.band.left < 0 && a.band.right < 0) return all;
  if (a.band.left < 0 && a.band.right == 0 && s_q == s_k) return all / 2;
  Attention one = a;
  one.s_q = s_q;
  one.s_k = s_k;
  return visible_pairs(one);
}

std::int64_t length(const std::int32_t* cu, const std::int32_t* used, std::int64_t b, std::int64_t hint) {
  if (cu != nullptr) hint = cu[b + 1] - cu[b];
  return used != nullptr ? std::clamp<std::int64_t>(used[b], 0, hint) : hint;
}

std::string bound(std::int64_t side) { return side < 0 ? "inf" : std::to_string(side); }

/// "d64" or, where the two differ, "d64/128".
std::string pair(const char* letter, std::int64_t x, const char* between, std::int64_t y) {
  return x == y ? fmt::format("{}{}", letter, x) : fmt::format("{}{}{}{}", letter, x, between, y);
}

/// The same of all sequences and query heads.
double all_scores(const Attention& a, const Operands* x) {
  double sum = 0;
  if (x == nullptr) {
    sum = scores(a, a.s_q, a.s_k) * static_cast<double>(a.b);
  } else {
    for (std::int64_t b = 0; b < a.b; ++b)
      sum += scores(a, length(x->cu_seqlens_q, x->used_q, b, a.s_q), length(x->cu_seqlens_k, x->used_k, b, a.s_k));
  }
  return sum * static_cast<double>(a.h_q);
}

/// The rows of q and of k, over all sequences and heads.
struct RowCounts {
  double q = 0, k = 0;
  RowCounts(const Attention& a, const Operands* x) {
    for (std::int64_t b = 0; b < a.b; ++b) {
      q += static_cast<double>(x ? length(x->cu_seqlens_q, x->used_q, b, a.s_q) : a.s_q);
      k += static_cast<double>(x ? length(x->cu_seqlens_k, x->used_k, b, a.s_k) : a.s_k);
    }
    q *= static_cast<double>(a.h_q);
    k *= static_cast<double>(a.h_k);
  }
};

}  // namespace

double flop_count(const Attention& a, const Operands* x) {
  return 2.0 * static_cast<double>(a.d_qk + a.d_v) * all_scores(a, x);
}

double byte_count(const Attention& a, const Operands* x) {
  const RowCounts rows(a, x);
  const double new_rows = a.h_q > 0 ? rows.q / static_cast<double>(a.h_q) : 0;
  const auto bytes = [](std::int64_t d, DType dtype) { return static_cast<double>(d * size_of(dtype)); };
  const double of_q = bytes(a.d_qk, a.dtype) + bytes(a.d_v, dtype_of_o(a));
  const double of_k = bytes(a.d_qk, dtype_of_k(a)) + bytes(a.d_v, dtype_of_v(a));
  return rows.q * of_q + rows.k * of_k + new_keys_bytes(a, new_rows);
}

double flop_count(const BackwardProblem& a, const Operands* x) {
  const bool no_q = (a.frozen & 1) != 0, no_kv = (a.frozen & 2) != 0;
  const std::int64_t products = a.d_qk + a.d_v + (no_q ? 0 : a.d_qk) + (no_kv ? 0 : a.d_qk + a.d_v);
  return 2.0 * static_cast<double>(products) * all_scores(a, x);
}

double byte_count(const BackwardProblem& a, const Operands* x) {
  const RowCounts rows(a, x);
  const double qk = static_cast<double>(a.d_qk), v = static_cast<double>(a.d_v);
  const double element = static_cast<double>(size_of(a.dtype));
  const double gradient = a.grads == Grads::rounded ? element : a.grads == Grads::f32 ? 4 : 8;  // 8: read and written
  double bytes = element * (rows.q * (qk + 2 * v) + rows.k * (qk + v)) + 4 * rows.q;
  if ((a.frozen & 1) == 0) bytes += gradient * rows.q * qk;
  if ((a.frozen & 2) == 0) bytes += gradient * rows.k * (qk + v);
  return bytes;
}

bool is_decode(const Attention& a) { return a.h_k > 0 && a.s_q * (a.h_q / a.h_k) < 16 && a.s_k >= 16 * a.s_q; }

std::string size_name(const Attention& a) {
  return fmt::format("b{} {} {} {}", a.b, pair("h", a.h_q, "/", a.h_k), pair("s", a.s_q, "x", a.s_k),
                     pair("d", a.d_qk, "/", a.d_v));
}

std::string feature_name(const Attention& a) {
  std::string out;
  const auto add = [&](const std::string& word) { out += (out.empty() ? "" : " ") + word; };
  std::string where;
  if (a.s_q != a.s_k && a.band.align == Align::top_left) where = "tl";
  if (a.band.align == Align::at) where = fmt::format("at {}", a.band.offset);
  if (a.band.left < 0 && a.band.right == 0) add(fmt::format("causal{}{}", where.empty() ? "" : "-", where));
  if (a.band.left >= 0 || a.band.right > 0)
    add(fmt::format("window {},{}{}{}", bound(a.band.left), bound(a.band.right), where.empty() ? "" : " ", where));
  each_field(a, [&](const Field& field, const auto& x) {
    const bool of_cache = field.forward && !field.backward && field.kind != FieldKind::output;
    if (!of_cache && (!field.forward || !field.backward)) return;
    if (a.cache && field.kind == FieldKind::lengths) return;
    if constexpr (std::is_same_v<decltype(x), const float&>) {
      if (x != 0) add(fmt::format("{} {:g}", field.word(), x));
    }
    if constexpr (std::is_same_v<decltype(x), const std::int64_t&>) {
      if (!field.backward && x != 0) add(fmt::format("{} {}", field.word(), x));
    }
    if constexpr (std::is_same_v<decltype(x), const bool&>) {
      if (x) add(field.word());
    }
    if constexpr (std::is_same_v<decltype(x), const DType&>) {
      if (of_cache && x != DType::as_q) add(fmt::format("{} {}", field.word(), name(x)));
    }
  });
  return out.empty() ? "full" : out;
}

std::string problem_name(const Attention& a) { return size_name(a) + " " + feature_name(a); }

Json to_json(const Attention& a) { return problem_facts(a).with("features", feature_name(a)); }

std::string feature_name(const BackwardProblem& a) {
  const std::string scores = feature_name(static_cast<const Attention&>(a));
  std::string out = scores == "full" ? "backward" : scores + " backward";
  each_field(static_cast<const Attention&>(a), [&](const Field& field, const auto& x) {
    if (field.forward) return;
    const auto add = [&](const std::string& value = "") { out += fmt::format(" {}{}", field.word(), value); };
    if constexpr (std::is_same_v<decltype(x), const bool&>) {
      if (x) add();
    }
    if constexpr (std::is_same_v<decltype(x), const Grads&>) {
      if (x != Grads::rounded) add(x == Grads::f32 ? "-f32" : "-accumulate");
    }
    if constexpr (std::is_same_v<decltype(x), const std::uint8_t&>) {
      if (x != 0) add(x == 1 ? "-q" : x == 2 ? "-kv" : "-all");
    }
  });
  return out;
}

std::string problem_name(const BackwardProblem& a) { return size_name(a) + " " + feature_name(a); }

Json to_json(const BackwardProblem& a) {
  return problem_facts(a).with("pass", name(Pass::backward)).with("features", feature_name(a));
}

double flop_count(const LinearProblem& a, int chunk) {
  const double e = static_cast<double>(a.d_qk), m = static_cast<double>(a.d_v);
  const double s = static_cast<double>(a.s), c = std::min<double>(chunk, s);
  const bool forward = a.pass == Pass::forward;
  const double scores = c * (forward ? e + m : 3 * e + 2 * m), state = (forward ? 4 : 10) * e * m;
  return static_cast<double>(a.b) * static_cast<double>(a.h_v) * (s * scores + (s - c) * state);
}

double byte_count(const LinearProblem& a) { return linear_attention_bytes(a, a.pass); }

std::string size_name(const LinearProblem& a) {
  return fmt::format("b{} {} s{} {}", a.b, pair("h", a.h_qk, "/", a.h_v), a.s, pair("d", a.d_qk, "/", a.d_v));
}

std::string feature_name(const LinearProblem& a) {
  std::string out = a.pass == Pass::forward ? "linear" : "linear backward";
  if (a.scale != 0) out += fmt::format(" scale {:g}", a.scale);
  if (a.feature_map == FeatureMap::elu_plus_one) out += " elu";
  if (a.normalise) out += " normalised";
  if (a.decay != Decay::none) out += fmt::format(" decay {}", name(a.decay));
  return out;
}

std::string problem_name(const LinearProblem& a) { return size_name(a) + " " + feature_name(a); }

Json to_json(const LinearProblem& a) {
  return problem_facts(a).with("pass", name(a.pass)).with("features", feature_name(a));
}

}  // namespace falchion::tools
