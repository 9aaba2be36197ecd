// src/plan/support.cpp: see support.hpp.
#include "plan/support.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/size.hpp"
#include "plan/operation.hpp"
#include "plan/text.hpp"

namespace falchion {
namespace {

constexpr Backend kColumns[] = {Backend::ref, Backend::cpu, Backend::sm80, Backend::sm90};
constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::i8};

/// The types in which the back end has the features, from its GPU variants: ref and the CPU have every feature that
/// there is. Attention with q of 8 bits is a feature, not a type.
std::vector<DType> types_with(const Operation& operation, Backend backend, Features wanted) {
  const auto all = listed_variants();
  const bool bytes_are_a_feature = features_of_operation(operation.name).has(Feature::bytes_of_q);
  std::vector<DType> out;
  for (const DType dtype : kTypes) {
    const auto has_it = [&](const Variant& v) {
      const bool its = backend == Backend::ref || v.backend == backend;
      const Features lacked = is_gpu(backend) ? wanted - v.features : Features();
      return its && v.is(operation.name) && v.dtype == dtype && lacked.empty();
    };
    if (is_8bit(dtype) && bytes_are_a_feature) continue;
    if (std::any_of(all.begin(), all.end(), has_it)) out.push_back(dtype);
  }
  return out;
}

std::string names(const std::vector<DType>& types) {
  std::string out;
  for (const DType dtype : types) out += text(" ", name(dtype));
  return out;
}

/// A tick if all types of the back end have the feature, else those that have it. q of 8 bits has types of its own.
std::string cell(const Operation& operation, Backend backend, Feature feature) {
  if (feature == Feature::bytes_of_q) return types_with(operation, backend, feature).empty() ? "" : " ✓";
  const std::vector<DType> types = types_with(operation, backend, feature);
  return types == types_with(operation, backend, {}) && !types.empty() ? " ✓" : names(types);
}

}  // namespace

std::string support_tables() {
  std::string out;
  for (const Operation& operation : operations()) {
    std::string backends, rule, types;
    for (const Backend backend : kColumns) {
      backends += text(" ", name(backend), " |");
      rule += "---|";
      types += names(types_with(operation, backend, {})) + " |";
    }
    out += text(out.empty() ? "" : "\n", "| ", operation.name, " |", backends, "\n|---|", rule, "\n| types |", types,
                "\n");
    for (int i = 0; i < static_cast<int>(Feature::count); ++i) {
      const auto feature = static_cast<Feature>(i);
      if (!features_of_operation(operation.name).has(feature)) continue;
      out += text("| ", name(feature), " |");
      for (const Backend backend : kColumns) out += cell(operation, backend, feature) + " |";
      out += "\n";
    }
  }
  return out;
}

}  // namespace falchion
