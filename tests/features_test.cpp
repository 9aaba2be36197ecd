// tests/features_test.cpp: the features of problems and of kinds of GPU variants (src/plan/features.hpp, the lines KIND
// of variants.def).
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "plan/kinds.hpp"
#include "plan/operation.hpp"
#include "plan/text.hpp"

namespace falchion::testing {
namespace {

template <class Problem>
using Ask = std::function<void(Problem*)>;

/// One way to ask for each feature.
const std::vector<std::pair<Feature, Ask<Attention>>> kOfAttention = {
    {Feature::packed, [](Attention* a) { a->packed = true; }},
    {Feature::band, [](Attention* a) { a->band = Band::causal(Align::bottom_right); }},
    {Feature::lengths, [](Attention* a) { a->used_k = true; }},
    {Feature::groups, [](Attention* a) { a->h_k = 1; }},
    {Feature::bias, [](Attention* a) { a->bias = true; }},
    {Feature::mask, [](Attention* a) { a->mask = true; }},
    {Feature::dropout, [](Attention* a) { a->dropout = 0.5F; }},
    {Feature::row_max, [](Attention* a) { a->row_max = true; }},
    {Feature::probabilities, [](Attention* a) { a->probabilities = true; }},
    {Feature::any_head_dim, [](Attention* a) { a->d_qk = 71; }},
    {Feature::any_scale, [](Attention* a) { a->score.scale = -1; }},
    {Feature::softcap, [](Attention* a) { a->score.softcap = 20; }},
    {Feature::alibi, [](Attention* a) { a->alibi = true; }},
    {Feature::append, [](Attention* a) { a->append = true; }},
    {Feature::rotary, [](Attention* a) { a->rotary_dim = 32; }},
    {Feature::sinks, [](Attention* a) { a->sinks = true; }}};

const std::vector<std::pair<Feature, Ask<LinearAttention>>> kOfLinear = {
    {Feature::normalise, [](LinearAttention* a) { a->normalise = true; }},
    {Feature::decay, [](LinearAttention* a) { a->decay = Decay::head; }},
    {Feature::shared_heads, [](LinearAttention* a) { a->h_qk = 1; }},
    {Feature::packed, [](LinearAttention* a) { a->packed = true; }},
    {Feature::feature_map, [](LinearAttention* a) { a->feature_map = FeatureMap::elu_plus_one; }},
    {Feature::any_head_dim, [](LinearAttention* a) { a->d_v = 61; }}};

Features features_of(const LinearAttention& a, Pass pass) { return falchion::features_of(a, pass, true); }

/// Whatever two features a problem asks for, the variant that is taken has them.
template <class Problem>
void expect_plans_with_each_pair(const std::vector<std::pair<Feature, Ask<Problem>>>& all, const Problem& plain) {
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    for (const int sm : {80, 90}) {
      for (const auto& one : all) {
        for (const auto& other : all) {
          Problem problem = plain;
          one.second(&problem);
          other.second(&problem);
          const std::string what = text(operation_of(problem, pass).name, " sm_", sm, ": ", name(one.first), ", ",
                                        name(other.first), ", ", name(problem.dtype));
          Target target;
          target.sm = sm;
          PlanData plan;
          const Status status = plan_problem(problem, pass, target, &plan, true);
          ASSERT_TRUE(status) << what << ": " << status.why;
          EXPECT_TRUE((features_of(problem, pass) - plan.variant->features).empty()) << what << ": " << describe(plan);
          for (const Rejected& path : plan.rejected) EXPECT_EQ(path.reason.find("another type"), std::string::npos);
        }
      }
    }
  }
}

TEST(Features, APlanHasWhatItsProblemAsksFor) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    expect_plans_with_each_pair(
        kOfAttention,
        {.dtype = dtype, .b = 2, .s_q = 512, .s_k = 512, .h_q = 4, .h_k = 4, .d_qk = 64, .d_v = 64, .score = {0.1F}});
    expect_plans_with_each_pair(
        kOfLinear, {.dtype = dtype, .b = 2, .s = 512, .h_qk = 4, .h_v = 4, .d_qk = 64, .d_v = 64, .scale = 1});
  }
}

/// One feature alone: those kinds that are tried and lack it are refused with it, the others are not.
TEST(Features, ARefusalNamesTheFeature) {
  for (const auto& [feature, ask_for] : kOfAttention) {
    Attention a{.dtype = DType::bf16, .b = 2, .s_q = 512, .s_k = 512, .h_q = 4, .h_k = 4, .d_qk = 64, .d_v = 64};
    a.score.scale = 0.1F;
    ask_for(&a);
    for (const Variant& v : listed_variants()) {
      const bool backward = v.is("attention_backward");
      if (!is_gpu(v.backend) || !(backward || v.is("attention_forward")) || v.dtype != a.dtype) continue;
      const std::string why = why_lacking(v, a, features_of(a, backward ? Pass::backward : Pass::forward));
      const bool of_forward = !features_of(a, Pass::backward).has(feature);
      const bool has = v.features.has(feature) || (backward && of_forward);
      EXPECT_EQ(why.empty(), has) << v.op << " " << v.level << ": " << name(feature) << ": " << why;
      if (!has) { EXPECT_NE(why.find(" variant of "), std::string::npos) << why; }
    }
  }
}

TEST(Features, EachKindIsOfAVariantAndEachVariantHasOne) {
  const auto all = listed_variants();
  for (const KindOfVariant& kind : kinds::kAll) {
    const auto is_one = [&](const Variant& v) {
      return v.kind == kind.kind && v.backend == kind.backend && kind.op == v.op && v.level == std::string(kind.name);
    };
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), is_one)) << kind.op << " " << kind.name;
  }
  std::set<std::string> lines;
  for (const KindOfVariant& kind : kinds::kAll)
    EXPECT_TRUE(lines.insert(text(kind.op, name(kind.backend), kind.name)).second) << "two lines: " << kind.name;
}

TEST(Features, EachHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int i = 0; i < static_cast<int>(Feature::count); ++i)
    EXPECT_TRUE(names.insert(name(static_cast<Feature>(i))).second) << i;
  EXPECT_EQ(names.count(""), 0U);
}

}  // namespace
}  // namespace falchion::testing
