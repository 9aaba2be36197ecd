// src/plan/explain.cpp: the plan, in words. describe() is one line, explain() the whole story; both are tested as text.
#include "plan/explain.hpp"
#include "plan/attention_launch.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "plan/tiles.hpp"
#include "plan/work.hpp"

namespace falchion {
namespace {

std::string band_text(const Band& band) {
  if (band.left < 0 && band.right < 0) return "full";
  const auto side = [](std::int64_t x) { return x < 0 ? std::string("unbounded") : std::to_string(x); };
  if (band.left < 0 && band.right == 0) return text("causal(", name(band.align), ")");
  return text("window(", side(band.left), ", ", side(band.right), ", ", name(band.align), ")");
}

std::string score_text(const Attention& a) {
  std::string out = text("scale ", a.score.scale);
  if (a.score.softcap > 0) out += text(", softcap ", a.score.softcap);
  if (a.alibi) out += ", ALiBi slopes";
  if (a.bias) out += ", bias";
  if (a.mask) out += ", boolean mask";
  if (a.dropout > 0) out += text(", dropout ", a.dropout);
  return out;
}

void explain_problem(const PlanData& plan, std::string* out) {
  const Attention& a = plan.problem;
  line(out, "problem",
       text("attention_", name(plan.pass), " ", name(a.dtype), ": b ", a.b, ", s_q ", a.s_q, ", s_k ", a.s_k, ", h_q ",
            a.h_q, ", h_k ", a.h_k, ", d_qk ", a.d_qk, ", d_v ", a.d_v));
  line(out, "band",
       text(band_text(a.band), a.band.left < 0 && a.band.right < 0 ? ""
                               : a.band.align == Align::top_left   ? ": query 0 stands at key 0"
                                                                   : ": the last query stands at the last key"));
  line(out, "score", score_text(a));
  std::string with = a.packed ? "packed lengths" : "";
  const auto also = [&with](bool there, const char* what) {
    if (there) with += text(with.empty() ? "" : ", ", what);
  };
  also(a.used_q, "used_q"), also(a.used_k, "used_k"), also(a.first_k, "first_k"), also(a.lse, "lse"),
      also(a.row_max, "row_max");
  also(a.probabilities, "probabilities");
  if (!with.empty()) line(out, "with", with);

  const double pairs = visible_pairs(a), all = static_cast<double>(a.s_q) * static_cast<double>(a.s_k);
  const double flops = attention_flops(a), bytes = attention_bytes(a);
  line(out, "work",
       text(scaled_text(flops, "flop"), ", ", all > 0 ? text(100 * pairs / all) : "100", " % of s_q x s_k seen; ",
            bytes_text(bytes), " if each tensor moves once: ", scaled_text(bytes > 0 ? flops / bytes : 0, "flop/B")));
}

std::string tiles_text(const PlanData& plan) {
  const std::int64_t g = plan.problem.h_q / plan.problem.h_k;
  std::string out = text(plan.rows, " rows x ", plan.keys, " keys");
  if (g > 1) out += text("; the ", g, " query heads of a K/V head are rows of one item");
  if (plan.decode)
    return text(out, "; decode: at most ", tiles::kDecodeRows,
                " rows a K/V head, so lanes are head dims and K, V are not packed; ", plan.heads,
                plan.heads == 1 ? " K/V head" : " K/V heads", " an item");
  if (plan.rows == tiles::kMaxRows) return text(out, "; as many rows as the L2 holds");
  return text(out, "; fewer than ", tiles::kMaxRows, " rows, for ",
              plan.problem.s_q * g <= plan.rows ? "there are no more"
                                                : text("at least ", tiles::kItemsPerThread, " items a thread"));
}

void explain_cpu(const PlanData& plan, std::string* out) {
  if (plan.items == 0) return line(out, "tiles", "none: the problem is empty");
  line(out, "tiles", tiles_text(plan));
  const std::int64_t parts = plan.items * plan.splits, rounds = (parts + plan.threads - 1) / plan.threads;
  line(out, "threads",
       text(plan.threads, plan.target.executor.parallel_for != nullptr ? " of the caller's pool" : "", "; ", parts,
            " items, ", rounds, " a thread at most: ", 100 * parts / (rounds * plan.threads), " % busy"));
  if (plan.splits > 1) {
    line(out, "splits",
         text(plan.splits, ": ", plan.items,
              " items would leave threads idle, so the keys are cut into parts, merged by maximum and sum"));
  }
  const cpu::Memory& m = plan.memory;
  std::string parts_text = text("scratch ", plan.threads, " x ", bytes_text(static_cast<double>(m.scratch)));
  if (m.packed_k > 0) {
    parts_text = text("packed K ", bytes_text(static_cast<double>(m.packed_k)), ", packed V ",
                      bytes_text(static_cast<double>(m.packed_v)), ", ", parts_text);
  }
  if (m.partials > 0) parts_text += text(", partial results ", bytes_text(static_cast<double>(m.partials)));
  line(out, "workspace", text(bytes_text(static_cast<double>(plan.workspace)), ": ", parts_text));
}

void explain_gpu(const PlanData& plan, std::string* out) {
  const gpu::AttentionFacts& row = plan.variant->facts;
  const GpuPlan& gpu = plan.gpu;
  line(out, "device", text(gpu.device, ": ", gpu.sms, " SMs"));
  if (plan.items == 0) return line(out, "tiles", "none: the problem is empty");
  const std::int64_t g = plan.problem.h_q / plan.problem.h_k;
  line(out, "tiles",
       text(row.rows, " rows x ", row.keys, " keys, head dims up to ", row.d, ", ", row.threads, " threads, ",
            row.stages, row.stages == 1 ? " stage" : " stages", " of K and V",
            gpu.group > 1 ? text("; the ", gpu.group, " query heads of a K/V head are rows of one tile")
            : g > 1       ? text("; ", g, " query heads read one K/V head, each a tile of its own")
                          : ""));
  const std::int64_t blocks = plan.items * plan.splits, slots = std::int64_t{gpu.sms} * row.ctas;
  const std::int64_t waves = (blocks + slots - 1) / slots;
  line(out, "grid",
       text(blocks, gpu.walkers > 0 ? text(" tiles, walked by ", gpu.walkers) : "", " CTAs, ", row.ctas,
            " an SM: ", waves, waves == 1 ? " wave" : " waves", ", ", 100 * blocks / (waves * slots), " % busy"));
  if (plan.splits > 1) {
    line(out, "splits",
         text(plan.splits, ": ", plan.items,
              " tiles would leave SMs idle, so the keys are cut into parts, merged by maximum and sum"));
  }
  line(out, "shared", text(bytes_text(static_cast<double>(row.shared_bytes)), " a CTA"));
  line(out, "workspace", bytes_text(static_cast<double>(plan.workspace)));
  if (gpu.unaligned != plan.variant) {
    line(out, "unaligned",
         gpu.unaligned == nullptr ? "refused: this build has no general row"
                                  : text("operands that are not 16-byte aligned",
                                         plan.backend == Backend::sm90 ? ", or whose rows overlap," : "",
                                         " run on the row ", gpu.unaligned->level, " d", gpu.unaligned->d));
  }
}

}  // namespace

std::string describe(const PlanData& plan) {
  if (plan.linear) return describe_linear(plan);
  const Attention& a = plan.problem;
  std::string out = text("attention_", name(plan.pass), " ", level_text(plan), " ", name(a.dtype), " d", a.d_qk, " dv",
                         a.d_v, " band ", band_text(a.band));
  if (plan.backend == Backend::cpu) {
    out += text(" rows ", plan.rows, " keys ", plan.keys, " threads ", plan.threads, " splits ", plan.splits,
                plan.decode ? " decode" : "");
  }
  if (plan.variant != nullptr && is_gpu(plan.backend)) {
    out += text(" tile ", plan.rows, "x", plan.keys, "x", plan.variant->d, " group ", plan.gpu.group, " grid ",
                plan.items * plan.splits, " splits ", plan.splits);
  }
  return text(out, " ws ", bytes_text(static_cast<double>(plan.workspace)));
}

std::string explain(const PlanData& plan) {
  std::string out;
  explain_absence(plan, &out);
  plan.linear ? explain_linear_problem(plan, &out) : explain_problem(plan, &out);
  line(&out, "decision",
       plan.backend == Backend::ref ? "ref: the definition in double, naive, one thread" : level_text(plan));
  if (plan.linear) {
    explain_linear(plan, &out);
  } else {
    if (plan.backend == Backend::cpu) explain_cpu(plan, &out);
    if (plan.variant != nullptr && is_gpu(plan.backend)) explain_gpu(plan, &out);
  }
  const DType dtype = plan.linear ? plan.linear->problem.dtype : plan.problem.dtype;
  explain_paths(plan, text(level_text(plan), plan.backend == Backend::ref ? "" : text(" ", name(dtype))), &out);
  return out;
}

std::string explain(const PlanData& plan, const Status& refusal) {
  std::string out;
  if (refusal.code != Code::invalid)  // of an invalid one nothing can be counted
    plan.linear ? explain_linear_problem(plan, &out) : explain_problem(plan, &out);
  line(&out, "decision", text("refused (", name(refusal.code), "): ", refusal.why));
  if (!plan.rejected.empty()) explain_paths(plan, "", &out);
  return out;
}

}  // namespace falchion
