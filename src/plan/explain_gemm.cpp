// src/plan/explain_gemm.cpp: a plan of a GEMM, in words and facts.
#include "base/divide.hpp"
#include "base/size.hpp"
#include "plan/explain.hpp"
#include "plan/gemm.hpp"
#include "plan/gemm_gpu.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "plan/work.hpp"
#include "policy/scale_block.hpp"

namespace falchion {
namespace {

std::string bytes(std::size_t count) { return bytes_text(static_cast<double>(count)); }

const char* scales(Scaling scaling) {
  switch (scaling) {
    case Scaling::none: return "";
    case Scaling::tensor: return "s_a s_b ";
    case Scaling::row_col: return "s_a[row] s_b[column] ";
    case Scaling::block128: return "sum over each 128 of k of s_a[row, block of k] s_b[block of columns, block of k] ";
  }
  return "";
}

/// "0.3 A B^T + 0.5 C + bias of each column, then gelu_tanh, + R"
std::string terms(const Gemm& g) {
  std::string out = g.alpha == 0 ? "0" : text(g.alpha == 1 ? "" : text(g.alpha, " "), scales(g.scaling), "A B^T");
  if (g.beta != 0) out += g.beta == 1 ? " + C" : text(" + ", g.beta, " C");
  if (g.bias_n) out += " + bias of each column";
  if (g.bias_m) out += " + bias of each row";
  if (g.activation != Activation::none) out += text(", then ", name(g.activation));
  if (g.residual) out += ", + R";
  return out;
}

std::string few_rows(std::int64_t m, const GemmCut& cut, const cpu::GemmTile& tile) {
  return text("m = ", m, " is at most ", tile.few_rows,
              ": where rows of b lie element after element, b is read once as it lies, in items of ",
              count_text(cut.few_columns, "column"));
}

/// When a batch is computed as rows of one matrix, and how: `cut` is the end of the sentence.
std::string as_one_matrix(const Gemm& g, const std::string& cut) {
  return text("where the batch shares b, and rows of one entry follow those of the last, it is one product of m = ",
              g.batch * g.m, ": ", cut);
}

}  // namespace

std::string parts_of_k(const GemmGpuCut& cut) {
  if (cut.splits == 1) return "k stays whole";
  if (cut.columns > 0) return text("k in ", cut.splits, " parts, added up in order by the CTAs of a cluster");
  return text(cut.whole > 0 ? text("of the last ", count_text(cut.items - cut.whole, "tile"), ", ") : "", cut.splits,
              " parts of ", cut.depth, " of k, added up by a kernel after");
}

std::string describe_gemm(const PlanData& plan) {
  const GemmPlan& gemm = plan.gemm();
  const Gemm& g = gemm.problem;
  std::string out = text(plan.operation->name, " ", level_text(plan), " ", g.dtype);
  if (dtype_of_d(g) != g.dtype) out += text(" to ", dtype_of_d(g));
  if (g.batch != 1) out += text(" batch ", g.batch);
  out += text(" ", g.m, "x", g.n, "x", g.k);
  if (g.activation != Activation::none) out += text(" ", name(g.activation));
  if (g.scaling != Scaling::none) out += text(" scaling ", name(g.scaling));
  if (plan.variant != nullptr && gemm.rows > 0) {
    if (is_gpu(plan.backend)) {
      out += text(" tile ", gemm.rows, "x", gemm.columns);
      if (own_cut(plan).splits > 1) out += text(" splits ", own_cut(plan).splits);
      return text(out, " ws ", bytes(plan.workspace));
    }
    out += gemm.few ? text(" few rows, columns ", gemm.few_columns) : text(" tile ", gemm.rows, "x", gemm.columns);
    out += text(" threads ", plan.threads);
  }
  return text(out, " ws ", bytes(plan.workspace));
}

Json problem_facts(const Gemm& g) {
  return Json::object({{"dtype", name(g.dtype)},
                       {"dtype_b", name(g.dtype_b)},
                       {"dtype_c", name(g.dtype_c)},
                       {"dtype_d", name(g.dtype_d)},
                       {"batch", g.batch},
                       {"m", g.m},
                       {"n", g.n},
                       {"k", g.k},
                       {"alpha", g.alpha},
                       {"beta", g.beta},
                       {"activation", name(g.activation)},
                       {"bias_n", g.bias_n},
                       {"bias_m", g.bias_m},
                       {"residual", g.residual},
                       {"scaling", name(g.scaling)}});
}
Json gemm_facts(const PlanData& plan) { return problem_facts(plan.gemm().problem); }

void tell_gemm_problem(const PlanData& plan, Story* story) {
  const Gemm& g = plan.gemm().problem;
  story->tell("problem", text("gemm ", g.dtype, ": batch ", g.batch, ", m ", g.m, ", n ", g.n, ", k ", g.k, ", D of ",
                              dtype_of_d(g)));
  story->tell("terms", terms(g));
  const double flops = gemm_flops(g), moved = gemm_bytes(g), intensity = moved > 0 ? flops / moved : 0;
  story->tell("work",
              text(scaled_text(flops, "flop"), "; ", bytes_text(moved),
                   " if each tensor moves once: ", scaled_text(intensity, "flop/B")),
              {{"work", Json::object({{"flops", flops}, {"bytes", moved}, {"flops_per_byte", intensity}})}});
  if (g.batch <= 1) return;
  const double shared = gemm_bytes(g, true);
  story->tell(
      "one b",
      text(bytes_text(shared), " where the batch shares b: ", scaled_text(shared > 0 ? flops / shared : 0, "flop/B")),
      {{"one_b", Json::object({{"bytes", shared}})}});
}

namespace {

void tell_gpu(const PlanData& plan, Story* story) {
  const GemmPlan& gemm = plan.gemm();
  const gpu::GemmFacts& facts = plan.variant->facts_as<gpu::GemmFacts>();
  const GemmGpuCut cut = own_cut(plan);
  const std::int64_t ctas = cut.pieces() * facts.cluster, slots = std::int64_t{plan.gpu.sms} * plan.gpu.ctas;
  const std::int64_t waves = ceil_div(ctas, slots);
  story->tell("tile",
              text(gemm.rows, " x ", gemm.columns, " of D",
                   facts.cluster > 1 ? text(" by ", facts.cluster, " CTAs together") : "", ", over ", facts.depth,
                   " of k at a time, ", facts.stages, " in flight"),
              {{"tile", Json::object({{"rows", gemm.rows}, {"columns", gemm.columns}, {"depth", facts.depth}})},
               {"items", plan.items}});
  story->tell("splits", text(cut.splits == 1 ? "1: " : "", parts_of_k(cut)), {{"splits", cut.splits}});
  story->tell("grid", text(ctas, " CTAs, ", plan.gpu.ctas, " an SM: ", waves, waves == 1 ? " wave" : " waves"),
              {{"grid", Json::object({{"ctas", ctas}, {"ctas_an_sm", plan.gpu.ctas}, {"waves", waves}})}});
  story->tell("shared",
              text(bytes(static_cast<std::size_t>(facts.shared_bytes)), " a CTA, ", facts.threads, " threads"),
              {{"shared_bytes", facts.shared_bytes}});
  story->tell("workspace", bytes(plan.workspace));
}

}  // namespace

void tell_gemm(const PlanData& plan, Story* story) {
  const GemmPlan& gemm = plan.gemm();
  if (plan.variant == nullptr) return story->tell("workspace", bytes(plan.workspace));
  if (gemm.rows == 0) return story->tell("tile", "none: the problem is empty");
  if (is_gpu(plan.backend)) return tell_gpu(plan, story);
  const cpu::GemmTile& tile = plan.variant->kernel_as<cpu::GemmKernel>()->tile;
  const std::int64_t depth = gemm.problem.scaling == Scaling::block128 ? kScaleBlock : tile.depth;
  story->tell("tile",
              text(gemm.rows, " x ", gemm.columns, " of D are one work item, in register tiles of ", tile.rows, " x ",
                   tile.columns, " over ", depth, " of k at a time: ", count_text(gemm.items, "item")),
              {{"tile", Json::object({{"rows", gemm.rows},
                                      {"columns", gemm.columns},
                                      {"register_rows", tile.rows},
                                      {"register_columns", tile.columns},
                                      {"depth", depth}})},
               {"items", gemm.items}});
  if (gemm.few)
    story->tell("few rows", few_rows(gemm.problem.m, gemm, tile),
                {{"few_rows", Json::object({{"columns", gemm.few_columns}, {"most", tile.few_rows}})}});
  if (const GemmCut& merged = gemm.merged; merged.rows > 0) {
    const std::int64_t m = gemm.problem.batch * gemm.problem.m;
    story->tell("one matrix",
                as_one_matrix(gemm.problem, merged.few ? few_rows(m, merged, tile)
                                                       : text("items of ", merged.rows, " x ", merged.columns, ": ",
                                                              count_text(merged.items, "item"))),
                {{"one_matrix", Json::object({{"m", m},
                                              {"rows", merged.rows},
                                              {"columns", merged.few ? merged.few_columns : merged.columns},
                                              {"few", merged.few}})}});
  }
  const bool callers_pool = plan.target.executor.parallel_for != nullptr;
  story->tell("threads", text(plan.threads, callers_pool ? " of the caller's pool" : ""),
              {{"threads", Json::object({{"count", plan.threads}, {"callers_pool", callers_pool}})}});
  story->tell("workspace", text(bytes(plan.workspace), ": scratch ", plan.threads, " x ", bytes(gemm.scratch)),
              {{"memory", Json::object({{"scratch_a_thread", gemm.scratch}})}});
}

}  // namespace falchion
