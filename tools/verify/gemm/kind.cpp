// tools/verify/gemm/kind.cpp: the storms' entry for GEMMs: its limits and its words.
#include <string_view>
#include <utility>

#include "base/size.hpp"
#include "plan/gemm.hpp"
#include "tool.hpp"
#include "verify/kind.hpp"
#include "verify/problem_limits.hpp"
#include "verify/shrink_steps.hpp"

namespace falchion::tools::storm {
namespace {

// The values that a key of a problem's text may have.
constexpr std::string_view kOperands[] = {"a", "b", "c", "d", "residual", "bias_n", "bias_m", "scale_a", "scale_b"};
constexpr std::string_view kScores[] = {"normal", "ones"};
constexpr std::string_view kPlants[] = {"nan_a",       "nan_b",        "nan_c",        "inf_a",
                                        "inf_b",       "inf_c",        "nan_residual", "nan_bias_n",
                                        "nan_bias_m",  "inf_residual", "inf_bias_n",   "inf_bias_m",
                                        "nan_scale_a", "nan_scale_b",  "inf_scale_a",  "inf_scale_b"};

/// Removes the features of 8-bit problems from others, and those that d in i32 excludes.
void tidy_8bit(Gemm* g) {
  const bool bytes = is_8bit(g->dtype);
  if (!bytes || (g->dtype == DType::i8 && g->scaling == Scaling::block128)) g->scaling = Scaling::none;
  if (bytes && g->dtype_d == DType::as_q) g->dtype_d = DType::f32;
  if (g->dtype_d != DType::i32) return;
  *g = {.dtype = g->dtype, .dtype_d = g->dtype_d, .batch = g->batch, .m = g->m, .n = g->n, .k = g->k};
}

void tidy_gemm(Problem* p) {
  tidy_8bit(&p->gemm);
  const Gemm& g = p->gemm;
  if (g.k % p->k2 != 0) p->k2 = 1;
  if (g.n % p->n2 != 0) p->n2 = 1;
  const bool over_c = g.beta != 0 && dtype_of_c(g) == dtype_of_d(g);
  if (!over_c && !g.residual) p->in_place = false;
  if (!g.bias_n && !g.bias_m) p->bias_dtype = DType::f32;
}

void require_part(const char* key, std::int64_t parts, std::int64_t of) {
  require_between(key, parts, 1, kInt32);
  require_between(std::string("the rest that ") + key + " leaves", of % parts, 0, 0);
}

void require_gemm(const Problem& p) {
  const Gemm& g = p.gemm;
  const std::pair<const char*, std::int64_t> sizes[] = {{"batch", g.batch}, {"m", g.m}, {"n", g.n}, {"k", g.k}};
  for (const auto& [key, size] : sizes) require_between(key, size, 0, kInt32);
  require_part("k2", p.k2, g.k);
  require_part("n2", p.n2, g.n);
  require_elements("a", {g.batch, g.m, g.k});
  require_elements("b", {g.batch, 2 * g.n, g.k});
  require_elements("d", {g.batch, g.m, g.n});
}

}  // namespace

constinit const StormKind kGemmKind = {
    .draw = draw_gemm,
    .make_subject = make_gemm_subject,
    .tidy = tidy_gemm,
    .require_sound = require_gemm,
    .operands = kOperands,
    .scores = kScores,
    .plants = kPlants,
    .simplify = simplify_gemm,
    .is_not_built_yet = [](const Problem&) { return false; },
    .may_exceed_the_hint = [](const Problem&, const Plan&) { return false; },
};

}  // namespace falchion::tools::storm
