// tools/verify/quantise/kind.cpp: the storms' entry for Quantise: its limits and its words.
#include <string_view>
#include <utility>

#include "verify/kind.hpp"
#include "verify/problem_limits.hpp"
#include "verify/shrink_steps.hpp"

namespace falchion::tools::storm {
namespace {

// The values that a key of a problem's text may have.
constexpr std::string_view kOperands[] = {"x", "mean", "scale", "y"};
constexpr std::string_view kScores[] = {"normal", "outliers", "zero", "tiny", "huge"};
constexpr std::string_view kPlants[] = {"nan_x", "inf_x", "nan_scale", "inf_scale"};

void tidy_quantise(Problem* p) {
  Quantise& q = p->quantise;
  q.powers_of_two = q.powers_of_two && !q.scale_given;
  q.mean_given = q.mean_given && q.smooth;
  if (!q.scale_given) p->k_scale = {};
  const auto has_zero = [&](const char* operand) {
    const auto found = p->storage.find(operand);
    return found != p->storage.end() && found->second.zero != 0;
  };
  if (!q.mean_given && has_zero("mean")) p->storage.erase("mean");
  if (!q.scale_given && has_zero("scale")) p->storage.erase("scale");
}

void require_quantise(const Problem& p) {
  const Quantise& q = p.quantise;
  const std::pair<const char*, std::int64_t> sizes[] = {{"b", q.b}, {"s", q.s}, {"h", q.h}, {"rows", q.rows}};
  for (const auto& [key, size] : sizes) require_between(key, size, 0, kInt32);
  require_between("d", q.d, 1, 256);
  require_between("scale_ones", p.k_scale.one, 0, 7);
  require_elements("x", {q.b, q.s, q.h, q.d});
}

}  // namespace

constinit const StormKind kQuantiseKind = {
    .draw = draw_quantise,
    .make_subject = make_quantise_subject,
    .tidy = tidy_quantise,
    .require_sound = require_quantise,
    .operands = kOperands,
    .scores = kScores,
    .plants = kPlants,
    .simplify = simplify_quantise,
    .is_not_built_yet = [](const Problem&) { return false; },
    .may_exceed_the_hint = [](const Problem&, const Plan&) { return false; },
};

}  // namespace falchion::tools::storm
