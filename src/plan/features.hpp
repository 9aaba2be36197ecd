// src/plan/features.hpp: features: what a problem may need from a kernel beyond the formula (features.def lists them).
// A problem has a set of them, a kind of GPU variants has a set (the lines KIND of variants.def), and the difference is
// the reason why a variant does not fit. docs/support.md is made from the same sets (tests/support_test.sh).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/set_of.hpp"
#include "falchion/falchion.hpp"

namespace falchion {

enum class Feature : std::uint8_t {
#define FEATURE(name, ...) name,
#include "plan/features.def"
  count,  // the number of features
};

using Features = SetOf<Feature>;
constexpr Features operator|(Feature a, Feature b) { return Features(a) | Features(b); }

/// The features that a problem of an operation may ask for, "attention_forward".
constexpr Features features_of_operation(std::string_view operation) {
  enum class In { both, forward, backward };
  const In pass = operation.ends_with("_backward") ? In::backward : In::forward;
  const bool attention = operation.starts_with("attention_"), linear = operation.starts_with("linear_");
  Features out;
  const auto add = [&](Feature x, In in, std::string_view of_attention, std::string_view of_linear,
                       std::string_view of_gemm) {
    const std::string_view asked = attention ? of_attention : linear ? of_linear : operation == "gemm" ? of_gemm : "no";
    if ((in == In::both || in == pass) && asked != "no") out = out | x;
  };
#define FEATURE(name, words, in, of_attention, of_linear, of_gemm) \
  add(Feature::name, In::in, #of_attention, #of_linear, #of_gemm);
#include "plan/features.def"
  return out;
}

struct Variant;

/// The name in the grid of docs/support.md and, if the problem has no better one, in a refusal.
const char* name(Feature x);

/// The features that a problem needs. aligned: its rows begin at multiples of 16 bytes.
Features features_of(const Attention& problem, Pass pass);
Features features_of(const LinearAttention& problem, Pass pass, bool aligned);
Features features_of(const Gemm& problem);

/// Why the variant does not fit: the first feature that it lacks, in the words of the problem, and the kinds that have
/// it. "" if it lacks none.
std::string why_lacking(const Variant& variant, const Attention& problem, Features asked);
std::string why_lacking(const Variant& variant, const LinearAttention& problem, Features asked);

}  // namespace falchion
