// src/plan/features.hpp: THE list of features: what a problem may ask of a kernel beyond the formula. A problem has a
// set of them, a kind of GPU variants has a set (the lines KIND of variants.def), and why a variant does not fit is the
// difference. docs/support.md is made from the same sets (tests/support_test.sh).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "falchion/falchion.hpp"

namespace falchion {

/// In the order in which a refusal names them.
enum class Feature : std::uint8_t {
  // Of linear attention.
  normalise,
  grad_decay,
  summed_heads,
  // Of both attentions.
  packed,
  groups,
  // Of softmax attention.
  band,
  lengths,
  bias,
  mask,
  dropout,
  row_max,
  probabilities,
  // Of linear attention.
  unaligned,
  feature_map,
  decay,
  // Of both.
  any_head_dim,
  // Of softmax attention.
  any_scale,
  softcap,
  alibi,
  // Of GEMMs.
  beta,
  biases,
  residual,
  activation,
  swiglu,
  count,  // how many there are
};

/// A set of features.
class Features {
 public:
  constexpr Features() = default;
  constexpr Features(Feature x) : bits_(std::uint32_t{1} << static_cast<int>(x)) {}  // NOLINT: a feature is a set
  constexpr Features operator|(Features x) const { return Features(bits_ | x.bits_); }
  constexpr Features operator-(Features x) const { return Features(bits_ & ~x.bits_); }
  constexpr bool has(Feature x) const { return (bits_ & Features(x).bits_) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  /// The first of a set that is not empty.
  constexpr Feature first() const {
    int x = 0;
    while (!has(static_cast<Feature>(x))) ++x;
    return static_cast<Feature>(x);
  }
  constexpr bool operator==(const Features&) const = default;

 private:
  constexpr explicit Features(std::uint32_t bits) : bits_(bits) {}
  std::uint32_t bits_ = 0;
};
constexpr Features operator|(Feature a, Feature b) { return Features(a) | Features(b); }

/// A feature that is asked for where a condition holds.
struct AskedFeature {
  Feature feature;
  bool asked;
};
constexpr Features those_of(std::initializer_list<AskedFeature> all) {
  Features out;
  for (const AskedFeature& x : all)
    if (x.asked) out = out | x.feature;
  return out;
}

struct Variant;

/// As the grid of docs/support.md and, where the problem has no better one, a refusal name it.
const char* name(Feature x);

/// What a problem asks for. aligned: its rows begin at multiples of 16 bytes.
Features features_of(const Attention& problem, Pass pass);
Features features_of(const LinearAttention& problem, Pass pass, bool aligned);
Features features_of(const Gemm& problem);

/// Why the variant does not fit: the first feature that it lacks, in the words of the problem, and which kinds have it.
/// "" where it lacks none.
std::string why_lacking(const Variant& variant, const Attention& problem, Features asked);
std::string why_lacking(const Variant& variant, const LinearAttention& problem, Features asked);

}  // namespace falchion
