// src/plan/features.cpp: see features.hpp.
#include "plan/features.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.hpp"
#include "base/size.hpp"
#include "plan/kinds.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"

namespace falchion {
namespace {

constexpr bool no = false;

/// The features whose condition holds.
Features those_of(std::initializer_list<bool> asked) {
  Features out;
  int x = 0;
  for (const bool one : asked) {
    if (one) out = out | static_cast<Feature>(x);
    ++x;
  }
  return out;
}

/// Elements of 16 bytes.
std::int64_t chunk_of(DType dtype) { return 16 / size_of(dtype); }

bool has_odd_head_dim(const auto& a) { return a.d_qk % chunk_of(a.dtype) != 0 || a.d_v % chunk_of(a.dtype) != 0; }

std::string words(Feature x, const Attention& a) {
  switch (x) {
    case Feature::any_head_dim: return text("a head dim that is no multiple of ", chunk_of(a.dtype), " needs");
    case Feature::any_scale: return text("scale = ", a.score.scale, " needs");
    default: return text(name(x), " needs");
  }
}

std::string words(Feature x, const LinearAttention& a) {
  switch (x) {
    case Feature::any_head_dim: return text("a head dim that is no multiple of ", chunk_of(a.dtype), " needs");
    case Feature::summed_heads: return text("gradients summed over h_v / h_qk = ", a.h_v / a.h_qk, " heads need");
    case Feature::packed:
    case Feature::unaligned: return text(name(x), " need");
    default: return text(name(x), " needs");
  }
}

/// Of kinds with one name, which two back ends may have, the first.
std::vector<const KindOfVariant*>& named_once(std::vector<const KindOfVariant*>* all) {
  std::set<std::string_view> names;
  std::erase_if(*all, [&](const KindOfVariant* kind) { return !names.insert(kind->name).second; });
  return *all;
}

/// Which kinds of the variant's operation and type have the feature: "a score variant of sm90 or a general one"; all of
/// one back end: "a variant of sm80". Kinds for pages are no answer to a problem without them, nor the others to one
/// with them; and so of 8-bit caches, whose kinds take rows and pages, and of q of 8 bits.
std::string holders_of(Feature x, const Variant& variant, Features asked) {
  const auto is_there = [&](const KindOfVariant& kind) {
    if (!kind.has(variant.dtype) || kind.op != variant.op) return false;
    if (kind.features.has(Feature::bytes_of_q) != asked.has(Feature::bytes_of_q)) return false;
    if (kind.features.has(Feature::bytes) || asked.has(Feature::bytes))
      return kind.features.has(Feature::bytes) && asked.has(Feature::bytes);
    return kind.features.has(Feature::pages) == asked.has(Feature::pages);
  };
  std::vector<const KindOfVariant*> all;
  for (const KindOfVariant& kind : kinds::kAll)
    if (kind.features.has(x) && is_there(kind)) all.push_back(&kind);
  const auto has_it = [&](const KindOfVariant& kind) { return kind.features.has(x) && kind.op == variant.op; };
  if (all.empty() && std::none_of(std::begin(kinds::kAll), std::end(kinds::kAll), has_it))
    return text("another back end: no variant of a GPU has it");
  if (all.empty()) return "another type";
  const auto of_its_backend = [&](const KindOfVariant& kind) {
    return kind.backend == all[0]->backend && is_there(kind);
  };
  const auto count = std::count_if(std::begin(kinds::kAll), std::end(kinds::kAll), of_its_backend);
  const bool no_other = all.back()->backend == all[0]->backend;  // kinds of a back end follow each other
  if (!asked.has(Feature::pages) && no_other && count > 1 && count == static_cast<std::ptrdiff_t>(all.size()))
    return text("a variant of ", name(all[0]->backend));
  std::string out;
  for (const KindOfVariant* kind : named_once(&all)) {
    const char* article = kind->name[0] == 'e' || kind->name[0] == 'o' ? "an " : "a ";
    out += out.empty() ? text(article, kind->name, " variant of ", name(kind->backend))
                       : text(kind == all.back() ? " or " : ", ", article, kind->name, " one");
  }
  return out;
}

template <class Problem>
std::string why_lacking_any(const Variant& variant, const Problem& problem, Features asked) {
  const Features lacks = asked - variant.features;
  return lacks.empty() ? "" : text(words(lacks.first(), problem), " ", holders_of(lacks.first(), variant, asked));
}

}  // namespace

const char* name(Feature x) {
  constexpr const char* kNames[] = {
#define FEATURE(name, words, ...) words,
#include "plan/features.def"
      ""};
  return kNames[static_cast<std::size_t>(x)];
}

Features features_of(const Attention& a, Pass pass) {
  constexpr Features kForward = features_of_operation("attention_forward");
  constexpr Features kBackward = features_of_operation("attention_backward");
  const Features all = those_of({
#define FEATURE(name, words, in, of_attention, of_linear, of_gemm) of_attention,
#include "plan/features.def"
  });
  return all & (pass == Pass::backward ? kBackward : kForward);
}

Features features_of(const LinearAttention& l, Pass pass, bool aligned) {
  constexpr Features kForward = features_of_operation("linear_attention_forward");
  constexpr Features kBackward = features_of_operation("linear_attention_backward");
  const Features all = those_of({
#define FEATURE(name, words, in, of_attention, of_linear, of_gemm) of_linear,
#include "plan/features.def"
  });
  return all & (pass == Pass::backward ? kBackward : kForward);
}

Features features_of(const Gemm& g) {
  return those_of({
#define FEATURE(name, words, in, of_attention, of_linear, of_gemm) of_gemm,
#include "plan/features.def"
  });
}

std::string why_lacking(const Variant& variant, const Attention& problem, Features asked) {
  return why_lacking_any(variant, problem, asked);
}
std::string why_lacking(const Variant& variant, const LinearAttention& problem, Features asked) {
  return why_lacking_any(variant, problem, asked);
}

}  // namespace falchion
