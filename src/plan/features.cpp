// src/plan/features.cpp: see features.hpp.
#include "plan/features.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "plan/kinds.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "types/size.hpp"

namespace falchion {
namespace {

/// Elements of 16 bytes.
std::int64_t chunk_of(DType dtype) { return 16 / size_of(dtype); }

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

/// Which kinds of the variant's operation and type have the feature: "a score variant of sm90 or a general one"; all of
/// one back end: "a variant of sm80".
std::string holders_of(Feature x, const Variant& variant) {
  const auto is_there = [&](const KindOfVariant& kind) { return kind.has(variant.dtype) && kind.op == variant.op; };
  std::vector<const KindOfVariant*> all;
  for (const KindOfVariant& kind : kinds::kAll)
    if (kind.features.has(x) && is_there(kind)) all.push_back(&kind);
  if (all.empty()) return "another type";
  const auto of_its_backend = [&](const KindOfVariant& kind) {
    return kind.backend == all[0]->backend && is_there(kind);
  };
  const auto count = std::count_if(std::begin(kinds::kAll), std::end(kinds::kAll), of_its_backend);
  if (count > 1 && count == static_cast<std::ptrdiff_t>(all.size()))
    return text("a variant of ", name(all[0]->backend));
  std::string out;
  for (const KindOfVariant* kind : all) {
    const char* article = kind->name[0] == 'e' || kind->name[0] == 'o' ? "an " : "a ";
    out += out.empty() ? text(article, kind->name, " variant of ", name(kind->backend))
                       : text(kind == all.back() ? " or " : ", ", article, kind->name, " one");
  }
  return out;
}

template <class Problem>
std::string why_lacking_any(const Variant& variant, const Problem& problem, Features asked) {
  const Features lacks = asked - variant.features;
  return lacks.empty() ? "" : text(words(lacks.first(), problem), " ", holders_of(lacks.first(), variant));
}

}  // namespace

const char* name(Feature x) {
  switch (x) {
    case Feature::normalise: return "the normaliser";
    case Feature::grad_decay: return "the gradient of decay";
    case Feature::summed_heads: return "gradients summed over heads";
    case Feature::packed: return "packed sequences";
    case Feature::band: return "a band";
    case Feature::lengths: return "used lengths";
    case Feature::groups: return "heads that share k and v";
    case Feature::bias: return "bias";
    case Feature::mask: return "mask";
    case Feature::dropout: return "dropout";
    case Feature::row_max: return "row_max";
    case Feature::probabilities: return "probabilities";
    case Feature::unaligned: return "operands that are not 16-byte aligned";
    case Feature::feature_map: return "a feature map";
    case Feature::decay: return "decay";
    case Feature::any_head_dim: return "any head dim";
    case Feature::any_scale: return "any scale";
    case Feature::softcap: return "softcap";
    case Feature::alibi: return "alibi";
    case Feature::beta: return "beta * c";
    case Feature::biases: return "biases";
    case Feature::residual: return "a residual";
    case Feature::activation: return "activations";
    case Feature::swiglu: return "swiglu";
    case Feature::count: break;
  }
  return "";
}

Features features_of(const Attention& a, Pass pass) {
  const std::int64_t chunk = chunk_of(a.dtype);
  const bool forward = pass == Pass::forward;
  return those_of({{Feature::packed, a.packed},
                   {Feature::band, a.band.left >= 0 || a.band.right >= 0},
                   {Feature::lengths, a.used_q || a.used_k || a.first_k},
                   {Feature::groups, a.h_q != a.h_k},
                   {Feature::bias, a.bias},
                   {Feature::mask, a.mask},
                   {Feature::dropout, a.dropout > 0},
                   {Feature::row_max, forward && a.row_max},
                   {Feature::probabilities, forward && a.probabilities},
                   {Feature::any_head_dim, a.d_qk % chunk != 0 || a.d_v % chunk != 0},
                   {Feature::any_scale, !(a.score.scale > 1e-30f && a.score.scale < 1e30f)},
                   {Feature::softcap, a.score.softcap > 0},
                   {Feature::alibi, a.alibi}});
}

Features features_of(const LinearAttention& a, Pass pass, bool aligned) {
  const std::int64_t chunk = chunk_of(a.dtype);
  const bool backward = pass == Pass::backward, decays = a.decay != Decay::none, shared = a.h_v != a.h_qk;
  return those_of({{Feature::normalise, a.normalise},
                   {Feature::grad_decay, backward && decays},
                   {Feature::summed_heads, backward && shared},
                   {Feature::packed, a.packed},
                   {Feature::groups, !backward && shared},
                   {Feature::unaligned, !aligned},
                   {Feature::feature_map, a.feature_map != FeatureMap::identity},
                   {Feature::decay, !backward && decays},
                   {Feature::any_head_dim, a.d_qk % chunk != 0 || a.d_v % chunk != 0}});
}

Features features_of(const Gemm& g) {
  return those_of({{Feature::beta, g.beta != 0},
                   {Feature::biases, g.bias_n || g.bias_m},
                   {Feature::residual, g.residual},
                   {Feature::activation, g.activation != Activation::none},
                   {Feature::swiglu, g.activation == Activation::swiglu}});
}

std::string why_lacking(const Variant& variant, const Attention& problem, Features asked) {
  return why_lacking_any(variant, problem, asked);
}
std::string why_lacking(const Variant& variant, const LinearAttention& problem, Features asked) {
  return why_lacking_any(variant, problem, asked);
}

}  // namespace falchion
