// src/plan/explain_choices.cpp: explains the choices of a plan for a GPU, with their conditions, in words and facts.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <variant>
#include <vector>

#include "base/size.hpp"
#include "plan/explain.hpp"
#include "plan/operation.hpp"
#include "plan/text.hpp"

namespace falchion {
namespace {

/// Its name in the JSON and docs/explain.md.
const char* name(Condition x) {
  constexpr const char* kNames[] = {"one_matrix", "aligned", "contiguous", "along_k", "tma", "room"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Condition::count));
  return kNames[static_cast<std::size_t>(x)];
}

std::string words(Condition x, const PlanData& plan) {
  switch (x) {
    case Condition::one_matrix: {
      const Gemm& g = plan.gemm().problem;
      return text("a batch that shares b and is one matrix of m = ", g.batch * g.m);
    }
    case Condition::aligned: return "16-byte aligned";
    case Condition::contiguous: return "contiguous rows";
    case Condition::along_k: return "a and b contiguous along k";
    case Condition::tma:
      if (!plan.is<GemmPlan>()) return "strides that TMA accepts (rows do not overlap)";
      return text("strides that TMA accepts (above 0; if k has two axes, the inner one a multiple of ",
                  128 / size_of(plan.gemm().problem.dtype), ")");
    case Condition::room:
    case Condition::count: break;
  }
  return "at most b * s_q and b * s_k packed rows";
}

std::vector<Condition> listed(Conditions needs) {
  std::vector<Condition> out;
  for (; !needs.empty(); needs = needs - needs.first()) out.push_back(needs.first());
  return out;
}

std::string words(Conditions needs, const PlanData& plan) {
  std::string out;
  for (const Condition x : listed(needs)) out += text(out.empty() ? "" : ", ", words(x, plan));
  return out.empty() ? "any operands" : out;
}

Json json(Conditions needs) {
  std::vector<Json> out;
  for (const Condition x : listed(needs)) out.emplace_back(name(x));
  return Json::array(out);
}

/// "sm80 general d128"
std::string path_of(const Variant& variant) {
  return text(name(variant.backend), " ", variant.name(), variant.d > 0 ? text(" d", variant.d) : "");
}

Json json(const Choice& choice) {
  const Variant& variant = *choice.variant;
  Json out = Json::object({{"backend", name(variant.backend)},
                           {"level", variant.level},
                           {"tile", tile_json(&variant)},
                           {"d", variant.d > 0 ? Json(variant.d) : nullptr},
                           {"needs", json(choice.needs)}});
  const auto* cut = std::get_if<GemmGpuCut>(&choice.cut);
  return cut == nullptr ? out : out.with("items", cut->items).with("splits", cut->splits);
}

std::string cut_text(const Cut& cut) {
  if (const auto* of_gemm = std::get_if<GemmGpuCut>(&cut))
    return text(": ", count_text(of_gemm->items, "tile"), ", ", parts_of_k(*of_gemm));
  if (const auto* of_norm = std::get_if<gpu::NormCut>(&cut))
    return of_norm->whole ? ": eight numbers at a time" : ": single numbers";
  if (const auto* of_gradients = std::get_if<gpu::NormBackwardCut>(&cut))
    return of_gradients->whole ? ": eight numbers at a time" : ": single numbers";
  if (const auto* of_quantise = std::get_if<gpu::QuantiseCut>(&cut))
    return of_quantise->whole ? ": eight numbers at a time" : ": single numbers";
  return "";
}

}  // namespace

void tell_choices(const PlanData& plan, Story* story) {
  const std::vector<Choice>& choices = plan.gpu.choices;
  std::vector<Json> facts;
  std::size_t width = 0;
  for (const Choice& choice : choices) {
    facts.push_back(json(choice));
    width = std::max(width, path_of(*choice.variant).size());
  }
  story->note({{"choices", Json::array(facts)}});
  const bool any_will_do = choices.size() == 1 && choices.front().needs.empty();
  if (plan.items == 0 || choices.empty() || any_will_do) return;
  story->tell("choices", "a run takes the first that its operands fit");
  const auto line = [&](const std::string& path, const std::string& what) {
    story->line(text("  ", path, std::string(width - path.size() + 2, ' '), what));
  };
  for (const Choice& choice : choices) line(path_of(*choice.variant), words(choice.needs, plan) + cut_text(choice.cut));
  if (!choices.back().needs.empty()) line("none", "any others: this build has no general variant");
}

}  // namespace falchion
