// src/plan/explain_attention.cpp: a plan of attention, in words and facts.
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/divide.hpp"
#include "base/fields.hpp"
#include "base/size.hpp"
#include "plan/attention_gpu_decode.hpp"
#include "plan/attention_launch.hpp"
#include "plan/constants.hpp"
#include "plan/explain.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"
#include "plan/read_rate.hpp"
#include "plan/text.hpp"
#include "plan/work.hpp"

namespace falchion {
namespace {

std::string band_text(const Band& band) {
  if (band.left < 0 && band.right < 0) return "full";
  const auto side = [](std::int64_t x) { return x < 0 ? std::string("unbounded") : std::to_string(x); };
  const std::string where = band.align == Align::at ? text("at ", band.offset) : name(band.align);
  if (band.left < 0 && band.right == 0) return text("causal(", where, ")");
  return text("window(", side(band.left), ", ", side(band.right), ", ", where, ")");
}

/// The meaning of the band's diagonal, in the terms of other libraries.
std::string diagonal_text(const Band& band) {
  if (band.left < 0 && band.right < 0) return "";
  if (band.align == Align::bottom_right) return ": the last query stands at the last key";
  return text(": query 0 stands at key ", band.offset);
}

/// The scale, and the other numbers and operands that both passes make scores and probabilities with.
std::string score_text(const Attention& a) {
  std::string out = text("scale ", a.score.scale);
  each_field(a, [&](const Field& field, const auto& x) {
    if constexpr (std::is_same_v<decltype(x), const float&>) {
      if (x != 0 && &x != &a.score.scale) out += text(", ", field.key, " ", x);
    }
    if constexpr (std::is_same_v<decltype(x), const bool&>) {
      if (x && field.kind == FieldKind::tensor && field.forward && field.backward) out += text(", ", field.key);
    }
  });
  return out;
}

/// The lengths, and what the pass has besides q, k, v and o.
std::string with_text(const Attention& a, Pass pass) {
  std::string with = a.packed ? "packed lengths" : "";
  const auto also = [&with](bool there, std::string_view what) {
    if (there) with += text(with.empty() ? "" : ", ", what);
  };
  each_field(a, [&](const Field& field, const auto& x) {
    if constexpr (std::is_same_v<decltype(x), const bool&>) {
      const bool of_one_pass = field.forward != field.backward || field.kind == FieldKind::lengths;
      if (of_one_pass && field.in(pass)) also(x, field.key);
    }
  });
  also(dtype_of_k(a) != a.dtype, text("k and v of ", name(dtype_of_k(a))));
  also(dtype_of_v(a) != dtype_of_k(a), text("v of ", name(dtype_of_v(a))));
  also(dtype_of_o(a) != a.dtype, text("o of ", name(dtype_of_o(a))));
  also(a.k_scale_rows > 1, text("a scale of k for ", a.k_scale_rows, " keys"));
  also(a.page_size > 0, text("pages of ", a.page_size, " keys"));
  also(a.rotary_dim > 0, text("rotary embedding of ", a.rotary_dim, " columns"));
  also(a.split_keys > 0, text("parts of ", a.split_keys, " keys"));
  if (pass == Pass::forward) return with;
  also(a.grads == Grads::f32, "gradients in f32");
  also(a.grads == Grads::accumulate, "gradients added to what is there");
  also((a.frozen & 1) != 0, "no grad_q");
  also((a.frozen & 2) != 0, "no grad_k and grad_v");
  return with;
}

void tell_work(const Attention& a, Pass pass, Story* story) {
  const double pairs = visible_pairs(a), all = static_cast<double>(a.s_q) * static_cast<double>(a.s_k);
  const double flops = pass == Pass::forward ? attention_flops(a) : attention_backward_flops(a);
  const double bytes = pass == Pass::forward ? attention_bytes(a) : attention_backward_bytes(a);
  const double seen = all > 0 ? pairs / all : 1, intensity = bytes > 0 ? flops / bytes : 0;
  story->tell(
      "work",
      text(scaled_text(flops, "flop"), ", ", 100 * seen, " % of s_q x s_k seen; ", bytes_text(bytes),
           " if each tensor moves once: ", scaled_text(intensity, "flop/B")),
      {{"work", Json::object({{"flops", flops}, {"bytes", bytes}, {"flops_per_byte", intensity}, {"seen", seen}})}});
}

/// The rates of the plan's device, or of all that it may be.
std::vector<ReadRate> read_rates_of(const PlanData& plan) {
  std::vector<ReadRate> out;
  if (!is_gpu(plan.backend)) return out;
  for (const ReadRate& rate : kReadRates) {
    if (rate.is_of(plan.gpu.device)) return {rate};
    if (plan.gpu.sm == rate.sm) out.push_back(rate);
  }
  return out;
}

/// Few rows cannot be faster than K and V are read. The plan knows s_k, not the lengths in use.
void tell_floor(const PlanData& plan, Story* story) {
  constexpr std::int64_t kMostRows = 64;
  const Attention& a = plan.attention().problem;
  if (a.h_k == 0 || a.s_q * (a.h_q / a.h_k) > kMostRows || a.s_k < 16 * a.s_q || a.s_q == 0) return;
  const double bytes = keys_bytes(a);
  std::string times;
  std::vector<Json> devices;
  for (const ReadRate& rate : read_rates_of(plan)) {
    const double seconds = bytes / rate.bytes_per_second;
    times += text(times.empty() ? ": " : ", ", 1e6 * seconds, " us on an ", rate.name);
    devices.push_back(
        Json::object({{"name", rate.name}, {"bytes_per_second", rate.bytes_per_second}, {"seconds", seconds}}));
  }
  story->tell("floor",
              text("reading the ", bytes_text(bytes), " of K and V",
                   has_lengths(a) ? text(" of sequences with ", a.s_k, " keys") : std::string(), times),
              {{"floor", Json::object({{"bytes", bytes}, {"devices", Json::array(devices)}})}});
}

template <class T>
Json fact_of(const T& x) {
  if constexpr (std::is_enum_v<T>) {
    return name(x);
  } else {
    return x;
  }
}

std::string tiles_text(const PlanData& plan) {
  const AttentionPlan& attention = plan.attention();
  const std::int64_t g = attention.problem.h_q / attention.problem.h_k;
  std::string out = text(attention.rows, " rows x ", attention.keys, " keys");
  if (g > 1) out += text("; the ", g, " query heads of a K/V head are rows of one item");
  if (attention.decode)
    return text(out, "; decode: at most ", tiles::kDecodeRows,
                " rows a K/V head, so lanes are head dims and K, V are not packed; ", attention.heads,
                attention.heads == 1 ? " K/V head" : " K/V heads", " an item");
  if (attention.rows == tiles::kMaxRows) return text(out, "; as many rows as the L2 holds");
  return text(out, "; fewer than ", tiles::kMaxRows, " rows, for ",
              attention.problem.s_q * g <= attention.rows
                  ? "there are no more"
                  : text("at least ", tiles::kItemsPerThread, " items a thread"));
}

/// item, idle: "item" and "threads", of which too few items leave some idle.
void tell_splits(const PlanData& plan, std::string_view item, std::string_view idle, Story* story) {
  const AttentionPlan& attention = plan.attention();
  story->note({{"splits", attention.splits}});
  if (attention.splits == 1) return;
  if (attention.problem.split_keys > 0) {
    story->tell("splits",
                text(attention.splits, ": they begin at multiples of split_keys = ", attention.problem.split_keys));
    return;
  }
  story->tell("splits", text(attention.splits, ": ", count_text(plan.items, item), " would leave ", idle,
                             " idle, so the keys are cut into parts, merged by maximum and sum"));
}

void tell_memory_of_cpu(const PlanData& plan, Story* story) {
  const cpu::Memory& m = plan.attention().memory;
  std::string parts = text("scratch ", plan.threads, " x ", bytes_text(static_cast<double>(m.scratch)));
  if (m.packed_k > 0) {
    parts = text("packed K ", bytes_text(static_cast<double>(m.packed_k)), ", packed V ",
                 bytes_text(static_cast<double>(m.packed_v)), ", ", parts);
  }
  if (m.partials > 0) parts += text(", partial results ", bytes_text(static_cast<double>(m.partials)));
  story->tell("workspace", text(bytes_text(static_cast<double>(plan.workspace)), ": ", parts),
              {{"memory", Json::object({{"packed_k", m.packed_k},
                                        {"packed_v", m.packed_v},
                                        {"scratch_a_thread", m.scratch},
                                        {"partials", m.partials}})}});
}

void tell_cpu(const PlanData& plan, Story* story) {
  const AttentionPlan& attention = plan.attention();
  if (plan.items == 0) return story->tell("tiles", "none: the problem is empty");
  story->tell("tiles", tiles_text(plan),
              {{"tile", Json::object({{"rows", attention.rows},
                                      {"keys", attention.keys},
                                      {"decode", attention.decode},
                                      {"heads", attention.heads}})}});
  const bool callers_pool = plan.target.executor.parallel_for != nullptr;
  const std::int64_t parts = plan.items * attention.splits, rounds = ceil_div(parts, plan.threads);
  const std::int64_t busy = 100 * parts / (rounds * plan.threads);
  story->tell("threads",
              text(plan.threads, callers_pool ? " of the caller's pool" : "", "; ", count_text(parts, "item"), ", ",
                   rounds, " a thread at most: ", busy, " % busy"),
              {{"threads", Json::object({{"count", plan.threads},
                                         {"callers_pool", callers_pool},
                                         {"items", parts},
                                         {"items_a_thread", rounds},
                                         {"busy_percent", busy}})}});
  tell_splits(plan, "item", "threads", story);
  tell_memory_of_cpu(plan, story);
}

void tell_grid(const PlanData& plan, Story* story) {
  const AttentionPlan& attention = plan.attention();
  const GpuPlan& gpu = plan.gpu;
  const std::int64_t tiles = plan.items * attention.splits, slots = std::int64_t{gpu.sms} * gpu.ctas;
  const std::int64_t waves = ceil_div(tiles, slots), busy = 100 * tiles / (waves * slots);
  const std::string walkers = attention.walkers == 0 ? std::string()
                              : attention.counted    ? text(" tiles, drawn from a counter by ", attention.walkers)
                                                     : text(" tiles, dealt to ", attention.walkers);
  story->tell("grid",
              text(tiles, walkers, " CTAs, ", gpu.ctas, " an SM: ", waves, waves == 1 ? " wave" : " waves", ", ", busy,
                   " % busy"),
              {{"grid", Json::object({{"tiles", tiles},
                                      {"ctas", attention.walkers > 0 ? attention.walkers : tiles},
                                      {"from_a_counter", attention.counted},
                                      {"ctas_an_sm", gpu.ctas},
                                      {"waves", waves},
                                      {"busy_percent", busy}})}});
}

/// Kind decode: the grid does not depend on the lengths, which the device alone knows.
void tell_decode_grid(const PlanData& plan, Story* story) {
  const AttentionPlan& attention = plan.attention();
  const int groups = attention.walkers / attention.width, busy = 100 * attention.walkers / plan.gpu.sms;
  const bool parts = attention.problem.split_keys > 0;
  std::string of_group = attention.width == 1 ? text("1 CTA") : text(attention.width, " CTAs, one per K/V head");
  story->tell("grid",
              text(attention.walkers, " CTAs, 1 an SM, ", busy, " % busy: ", groups, groups == 1 ? " group" : " groups",
                   " of ", of_group, "; on the device they get equal shares of the tiles of keys",
                   parts ? ", to the nearest part" : ""),
              {{"grid", Json::object({{"tiles", plan.items},
                                      {"ctas", attention.walkers},
                                      {"from_a_counter", false},
                                      {"ctas_an_sm", 1},
                                      {"waves", 1},
                                      {"busy_percent", busy}})}});
}

/// The contents of kind halves' workspace.
const char* halves_text(const PlanData& plan) {
  return plan.variant->kind == VariantKind::halves ? ": q, k and v as two f16 parts" : "";
}

void tell_gpu(const PlanData& plan, Story* story) {
  const AttentionPlan& attention = plan.attention();
  if (plan.items == 0) return story->tell("tiles", "none: the problem is empty");
  const bool decode = is_decode_of_hopper(*plan.variant);
  const gpu::AttentionFacts facts = decode ? decode_facts(plan) : plan.variant->facts_as<gpu::AttentionFacts>();
  const std::int64_t g = attention.problem.h_q / attention.problem.h_k;
  story->tell(
      "tiles",
      text(facts.rows, " rows x ", facts.keys, " keys, head dims up to ", facts.d, ", ", facts.threads, " threads, ",
           facts.stages, facts.stages == 1 ? " stage" : " stages", " of K and V",
           attention.group > 1 ? text("; the ", attention.group, " query heads of a K/V head are rows of one tile")
           : g > 1             ? text("; ", g, " query heads read one K/V head, each a tile of its own")
                               : ""),
      {{"tile", Json::object({{"rows", facts.rows},
                              {"keys", facts.keys},
                              {"d", facts.d},
                              {"threads", facts.threads},
                              {"stages", facts.stages},
                              {"group", attention.group}})}});
  if (decode) {
    tell_decode_grid(plan, story);
  } else {
    tell_grid(plan, story);
  }
  tell_splits(plan, "tile", "SMs", story);
  story->tell("shared", text(bytes_text(static_cast<double>(facts.shared_bytes)), " a CTA"),
              {{"shared_bytes", facts.shared_bytes}});
  story->tell("workspace", text(bytes_text(static_cast<double>(plan.workspace)), halves_text(plan)));
}

}  // namespace

std::string describe_attention(const PlanData& plan) {
  const AttentionPlan& attention = plan.attention();
  const Attention& a = attention.problem;
  std::string out = text(plan.operation->name, " ", level_text(plan), " ", name(a.dtype), " d", a.d_qk, " dv", a.d_v,
                         " band ", band_text(a.band));
  if (plan.backend == Backend::cpu) {
    out += text(" rows ", attention.rows, " keys ", attention.keys, " threads ", plan.threads);
    out += plan.pass == Pass::forward ? text(" splits ", attention.splits, attention.decode ? " decode" : "")
                                      : text(" parts ", attention.backward.parts);
  }
  if (plan.variant != nullptr && is_gpu(plan.backend)) {
    out += text(" tile ", attention.rows, "x", attention.keys, "x", plan.variant->d, " group ", attention.group,
                " grid ", plan.items * attention.splits, " splits ", attention.splits);
  }
  return text(out, " ws ", bytes_text(static_cast<double>(plan.workspace)));
}

Json attention_facts(const PlanData& plan) { return problem_facts(plan.attention().problem); }

Json problem_facts(const Attention& a) {
  std::vector<Json::Member> facts;
  each_field(a, [&](const Field& field, const auto& x) {
    const std::size_t dot = field.member.find('.');
    if (dot == std::string_view::npos) {
      facts.emplace_back(field.key, fact_of(x));
      return;
    }
    const std::string_view object = field.member.substr(0, dot);  // "score", of "score.scale"
    if (facts.back().first != object) facts.emplace_back(object, Json::object({}));
    facts.back().second = facts.back().second.with(field.key, fact_of(x));
  });
  return Json::object(facts);
}

void tell_attention_problem(const PlanData& plan, Story* story) {
  const Attention& a = plan.attention().problem;
  story->tell("problem", text(plan.operation->name, " ", name(a.dtype), ": b ", a.b, ", s_q ", a.s_q, ", s_k ", a.s_k,
                              ", h_q ", a.h_q, ", h_k ", a.h_k, ", d_qk ", a.d_qk, ", d_v ", a.d_v));
  story->tell("band", text(band_text(a.band), diagonal_text(a.band)));
  story->tell("score", score_text(a));
  const std::string with = with_text(a, plan.pass);
  if (!with.empty()) story->tell("with", with);
  tell_work(a, plan.pass, story);
}

/// An 8-bit cache on the CPU. Kernels of GPUs say it in their kind.
void tell_bytes(const PlanData& plan, Story* story) {
  const DType cached = dtype_of_k(plan.attention().problem);
  if (plan.items == 0 || plan.backend != Backend::cpu || !is_8bit(cached)) return;
  story->tell("8 bits", text("k and v of ", name(cached), " are converted to f32, a block at a time"));
}

/// What is done before scores are computed.
void tell_new_keys(const PlanData& plan, Story* story) {
  const Attention& a = plan.attention().problem;
  if (plan.items == 0 || (!a.append && a.rotary_dim == 0)) return;
  std::string what = a.append ? "the new keys are written into the cache" : "";
  if (a.append && a.rotary_dim > 0) what += ", rotated";
  if (a.rotary_dim > 0) what += text(what.empty() ? "" : ", and ", "q is rotated");
  const bool decode = plan.variant != nullptr && is_decode_of_hopper(*plan.variant);
  story->tell("new keys",
              text(what, decode                 ? ", by the same kernel"
                         : is_gpu(plan.backend) ? ", by a kernel before"
                                                : ""),
              {{"new_keys", Json::object({{"kernel_before", is_gpu(plan.backend) && !decode}})}});
}

void tell_attention(const PlanData& plan, Story* story) {
  if (plan.items > 0) tell_floor(plan, story);
  tell_bytes(plan, story);
  tell_new_keys(plan, story);
  if (plan.backend == Backend::cpu) tell_cpu(plan, story);
  if (plan.variant != nullptr && is_gpu(plan.backend)) tell_gpu(plan, story);
}

}  // namespace falchion
