// src/plan/explain_attention_backward.cpp: what a plan of attention's backward pass decided, in words and facts.
#include <string>
#include <string_view>

#include "base/divide.hpp"
#include "plan/attention_backward.hpp"
#include "plan/explain.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"

namespace falchion {
namespace {

void tell_cpu(const PlanData& plan, Story* story) {
  const AttentionPlan& attention = plan.attention();
  const int parts = attention.backward.parts;
  story->tell(
      "tiles",
      text("blocks of ", attention.keys, " keys, each visited by all queries in tiles of ", attention.rows, " rows"),
      {{"tile", Json::object({{"rows", attention.rows}, {"keys", attention.keys}})}});
  const bool callers_pool = plan.target.executor.parallel_for != nullptr;
  const std::int64_t items = plan.items * parts, rounds = ceil_div(items, plan.threads);
  const std::int64_t busy = items == 0 ? 0 : 100 * items / (rounds * plan.threads);
  story->tell("threads",
              text(plan.threads, callers_pool ? " of the caller's pool" : "", "; ", count_text(items, "item"), ", ",
                   rounds, " a thread at most: ", busy, " % busy"),
              {{"threads", Json::object({{"count", plan.threads},
                                         {"callers_pool", callers_pool},
                                         {"items", items},
                                         {"items_a_thread", rounds},
                                         {"busy_percent", busy}})}});
  story->note({{"parts", parts}});
  if (parts > 1) {
    story->tell("parts",
                text(parts, ": ", count_text(plan.items, "item"), " would leave threads idle, so the keys are ",
                     "cut into parts, each with its own sum of grad_q; the sums are added in order"));
  }
  const cpu::BackwardMemory& m = attention.backward.memory;
  story->tell("workspace",
              text(bytes_text(static_cast<double>(plan.workspace)), ": scratch ", plan.threads, " x ",
                   bytes_text(static_cast<double>(m.scratch)), ", shared ", bytes_text(static_cast<double>(m.shared))),
              {{"memory", Json::object({{"scratch_a_thread", m.scratch}, {"shared", m.shared}})}});
}

/// How a GPU's kernels share the pairs of queries and keys, in words.
struct Sharing {
  const char* nothing;            // text of an empty plan
  const char *of_keys, *of_rows;  // text after the numbers of keys and rows of a tile
  const char* ctas;               // text after the number of CTAs
  const char* holds;              // the workspace, beside lse and D of each row
};
/// One kernel owns tiles of keys and adds to the sums of grad_q.
constexpr Sharing kSummed = {"none: there are no keys", " keys, visited by ", " rows at a time", " CTAs, ",
                             ", and its sums of grad_q in f32"};
/// Some CTAs of a kernel own tiles of keys and others tiles of rows: Hopper's, above them.
constexpr Sharing kWide = {"none: there are neither keys nor queries", " keys, for grad_k and grad_v, and ",
                           " rows, for grad_q, in one kernel", " CTAs, ", ""};
/// One kernel owns tiles of keys and another tiles of rows: the kernels of sm_80 that have every feature.
constexpr Sharing kSweeps = {"none: there are no queries", " keys, for grad_k and grad_v, and ",
                             " rows, for grad_q, each in a kernel of its own", " CTAs for grad_q, ",
                             ", and a sum of slopes for each tile of rows"};

const Sharing& sharing_of(const PlanData& plan) {
  if (computes_pairs_once(*plan.variant)) return kSummed;
  return plan.variant->kind == VariantKind::wide ? kWide : kSweeps;
}

void tell_gpu(const PlanData& plan, Story* story) {
  const gpu::BackwardVariantFacts& facts = plan.variant->facts_as<gpu::BackwardVariantFacts>();
  const Sharing& in_words = sharing_of(plan);
  if (plan.items == 0) return story->tell("tiles", in_words.nothing);
  const std::string tiles = text(facts.keys, in_words.of_keys, facts.rows, in_words.of_rows);
  story->tell(
      "tiles", text(tiles, "; head dims up to ", facts.d, ", ", facts.threads, " threads"),
      {{"tile",
        Json::object({{"rows", facts.rows}, {"keys", facts.keys}, {"d", facts.d}, {"threads", facts.threads}})}});
  const std::int64_t slots = std::int64_t{plan.gpu.sms} * plan.gpu.ctas, waves = ceil_div(plan.items, slots);
  const std::int64_t busy = 100 * plan.items / (waves * slots);
  const AttentionPlan& attention = plan.attention();
  const std::string drawn =
      attention.counted ? text(" tiles, drawn from a counter by ", attention.walkers) : std::string();
  story->tell("grid",
              text(plan.items, drawn, in_words.ctas, plan.gpu.ctas, " an SM: ", waves, waves == 1 ? " wave" : " waves",
                   ", ", busy, " % busy"),
              {{"grid", Json::object({{"tiles", plan.items},
                                      {"ctas", attention.walkers > 0 ? attention.walkers : plan.items},
                                      {"from_a_counter", attention.counted},
                                      {"ctas_an_sm", plan.gpu.ctas},
                                      {"waves", waves},
                                      {"busy_percent", busy}})}});
  story->tell("shared", text(bytes_text(static_cast<double>(facts.shared_bytes)), " a CTA"),
              {{"shared_bytes", facts.shared_bytes}});
  story->tell("workspace",
              text(bytes_text(static_cast<double>(plan.workspace)), ": lse and D of each row", in_words.holds));
}

}  // namespace

void tell_attention_backward(const PlanData& plan, Story* story) {
  if (plan.backend == Backend::cpu) tell_cpu(plan, story);
  if (plan.variant != nullptr && is_gpu(plan.backend)) tell_gpu(plan, story);
}

}  // namespace falchion
