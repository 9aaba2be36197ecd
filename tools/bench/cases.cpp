// tools/bench/cases.cpp
#include "bench/cases.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/fields.hpp"
#include "plan/plan_data.hpp"
#include "problem/levels.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

std::vector<Op> parse_ops(const std::vector<std::string>& names) {
  std::vector<Op> out;
  for (const std::string& name : names) out.push_back(parse_op(name));
  if (out.empty()) out.push_back(Op::attention);
  return out;
}

/// Refuses an option that no requested operation has.
void check_options(const BenchOptions& o, const std::vector<Op>& ops) {
  struct Given {
    const char* name;
    bool given;
    const std::vector<Op>& of;
  };
  const std::vector<Op> attention = operations_of(Kind::attention), linear = operations_of(Kind::linear);
  const std::vector<Op> forward = {Op::attention}, backward = {Op::attention_backward}, gemm = {Op::gemm},
                        norm = {Op::norm, Op::norm_backward}, quantise = {Op::quantise};
  const FeatureOptions& f = o.features;
  const BackwardOptions &b = o.backward, none;
  std::vector<Given> all = {{"--causal", f.causal_given, attention},
                            {"--window", !f.window.empty(), attention},
                            {"--align", !f.align_at.empty(), attention},
                            {"--dropout", !f.dropout.empty(), attention},
                            {"--lse", o.lse, forward},
                            {"--decode", o.decode, forward},
                            {"--grads", b.grads != none.grads, backward},
                            {"--frozen", b.frozen != none.frozen, backward},
                            {"--decay", o.linear.decay != "none", linear},
                            {"--elu", o.linear.elu, linear},
                            {"--normalise", o.linear.normalise, linear},
                            {"--batch, --m, --n, --k", o.gemm.sizes_given(), gemm},
                            {"--activation", o.gemm.activation != "none", gemm},
                            {"--bias-n", o.gemm.bias_n, gemm},
                            {"--residual", o.gemm.residual, gemm},
                            {"--d-f32", o.gemm.d_f32, gemm},
                            {"--rows", !o.norm.rows.empty(), norm},
                            {"--kind", o.norm.kind != NormOptions{}.kind, norm},
                            {"--add-residual", o.norm.add_residual, norm},
                            {"--to, --tokens-a-scale, --smooth, --rotate", o.quantise.given(), quantise}};
  each_field(f.numbers, [&](const Field& field, const auto& x) {
    if (!f.of_heads_of(field).empty()) all.push_back({field.option, true, attention});
    if constexpr (std::is_same_v<decltype(x), const float&>) {  // linear attention has a scale too
      if (&x != &f.numbers.score.scale) all.push_back({field.option, x != 0, attention});
    }
  });
  if (o.cache.given()) all.push_back({CacheOptions::names().front(), true, forward});
  each_field(b.flags, [&](const Field& field, const auto& x) {
    if constexpr (std::is_same_v<decltype(x), const bool&>) {
      if (!field.forward) all.push_back({field.option, x, backward});
    }
  });
  for (const Given& option : all) {
    const auto has = [&](Op op) { return std::find(option.of.begin(), option.of.end(), op) != option.of.end(); };
    if (option.given && std::none_of(ops.begin(), ops.end(), has))
      throw UsageError{
          fmt::format("{} has no effect here; it is an option of --op {}", option.name, operation_list(option.of))};
  }
}

/// The problems on the CPU if no size is given: prefill in each type, full and causal.
std::vector<Attention> usual_cpu_prefill(const std::vector<std::string>& dtypes) {
  SizeOptions prefill;
  prefill.dtype = dtypes;
  prefill.s = {1024, 4096};
  prefill.d = {64, 128};
  std::vector<Attention> out;
  for (const Attention& a : prefill.expand()) {
    out.push_back(a);
    out.push_back(a);
    out.back().band = Band::causal(Align::bottom_right);
  }
  return out;
}

/// On a GPU: 16k tokens of hidden size 2048, full and causal.
std::vector<Attention> usual_gpu_prefill(const std::vector<std::string>& dtypes) {
  SizeOptions sizes;
  sizes.dtype = dtypes;
  std::vector<Attention> out;
  for (const std::int64_t d : {64, 128, 256})
    for (const std::int64_t s : {1024, 4096, 16384})
      for (const bool causal : {false, true}) {
        sizes.b = {16384 / s};
        sizes.h = {2048 / d};
        sizes.s = {s};
        sizes.d = {d};
        for (Attention a : sizes.expand()) {
          if (causal) a.band = Band::causal(Align::bottom_right);
          out.push_back(a);
        }
      }
  return out;
}

std::vector<Attention> usual_prefill(const std::vector<std::string>& dtypes, bool gpu) {
  return gpu ? usual_gpu_prefill(dtypes) : usual_cpu_prefill(dtypes);
}

/// Decode steps: on the CPU one in the first type, on a GPU four.
std::vector<Attention> usual_decode(const std::vector<std::string>& dtypes, bool gpu) {
  using Sizes = std::vector<std::pair<std::int64_t, std::int64_t>>;
  SizeOptions decode;
  decode.dtype = dtypes;
  if (!gpu && dtypes.size() > 1) decode.dtype = {dtypes.front()};
  decode.h_q = {32};
  decode.h_k = {8};
  decode.s_q = {1};
  std::vector<Attention> out;
  for (const auto& [b, s_k] : gpu ? Sizes{{1, 8192}, {16, 8192}, {1, 131072}, {64, 1024}} : Sizes{{1, 8192}}) {
    decode.b = {b};
    decode.s_k = {s_k};
    for (const Attention& a : decode.expand()) out.push_back(a);
  }
  return out;
}

std::vector<Attention> usual_attention(const std::vector<std::string>& dtypes, bool gpu) {
  std::vector<Attention> out = usual_prefill(dtypes, gpu);
  for (const Attention& a : usual_decode(dtypes, gpu)) out.push_back(a);
  return out;
}

/// Whether this runs on a GPU, as far as the options determine it.
bool wants_gpu(const TargetOptions& where) {
  const Backend backend = parse_backend(where.backend);
  if (backend == Backend::best) return where.level.empty() && !usable_gpu_paths(DType::bf16).empty();
  return is_gpu(backend);
}

/// The sizes of the usual problems of linear attention, held in an Attention that itself is not measured. On a GPU they
/// are those of bench/compare_linear.py.
std::vector<Attention> usual_linear_sizes(const std::vector<std::string>& dtypes, bool gpu) {
  SizeOptions sizes;
  sizes.dtype = dtypes;
  if (!gpu) {
    sizes.s = {1024, 4096};
    sizes.d = {64, 128};
    return sizes.expand();
  }
  struct {
    std::int64_t b, h, s, d;
  } const all[] = {{8, 16, 2048, 64}, {4, 16, 8192, 64}, {1, 16, 32768, 64}, {4, 16, 8192, 128},
                   {1, 4, 8192, 64},  {1, 1, 65536, 64}, {2, 8, 4096, 64}};
  std::vector<Attention> out;
  for (const auto& x : all) {
    sizes.b = {x.b};
    sizes.h = {x.h};
    sizes.s = {x.s};
    sizes.d = {x.d};
    for (const Attention& a : sizes.expand()) out.push_back(a);
  }
  return out;
}

/// The sizes with the requested features.
Attention with_features(const BenchOptions& options, const Attention& sizes) {
  Attention a = sizes;
  options.features.apply(&a);
  if (!options.features.causal_given && options.features.window.empty()) a.band = sizes.band;
  return a;
}

BenchProblem attention_problem(const BenchOptions& options, Op op, const Attention& sizes) {
  Attention a = sizes;
  options.cache.apply(&a);
  a = with_features(options, a);
  a.lse = options.lse;
  return {op, a};
}

/// Each of these sizes as a KV cache: in rows and in pages; ragged lengths, whose mean is s_k and whose sum is that of
/// equal ones; more queries, as drafts have them; and with new keys that are appended, as they are and rotated.
void add_decode(const BenchOptions& options, const std::vector<Attention>& all, std::vector<BenchProblem>* out) {
  struct Step {
    std::int64_t page_size, s_q = 1;
    bool ragged = false, append = false, rotary = false;
  };
  constexpr Step kSteps[] = {{0},
                             {256},
                             {64},
                             {16},
                             {1},
                             {0, 1, true},
                             {16, 1, true},
                             {16, 4},
                             {16, 16},
                             {16, 1, false, true},
                             {16, 1, false, true, true}};
  for (const Attention& sizes : all) {
    for (const Step& step : kSteps) {
      if ((step.s_q > 1 && sizes.s_q > 1) || (step.ragged && sizes.b == 1)) continue;
      BenchOptions with = options;
      Attention& cache = with.cache.fields;
      cache.cache = true;
      cache.page_size = step.page_size;
      cache.append = cache.append || step.append;
      if (step.rotary) cache.rotary_dim = sizes.d_qk / 2 * 2;
      Attention a = sizes;
      a.s_q *= step.s_q;
      if (a.s_q > 1) a.band = Band::causal(Align::bottom_right);
      if (step.ragged) a.s_k *= 4;
      out->push_back(attention_problem(with, Op::attention, a));
      if (step.ragged) out->back().ragged = sizes.s_k;
    }
  }
}

BenchProblem backward_problem(const BenchOptions& options, Op op, const Attention& sizes) {
  BackwardProblem a{with_features(options, sizes)};
  options.backward.apply(&a);
  return {op, a};
}

BenchProblem linear_problem(const BenchOptions& options, Op op, const Attention& sizes) {
  return {op, options.linear.problem(sizes, pass_of(op), options.features.numbers.score.scale)};
}

/// Of 16k tokens: in heads of 64, 128 and 256.
std::vector<Attention> usual_quantise_sizes(const std::vector<std::string>& dtypes, bool) {
  SizeOptions sizes;
  sizes.dtype = dtypes;
  std::vector<Attention> out;
  for (const std::int64_t d : {64, 128, 256}) {
    sizes.h = {2048 / d};
    sizes.s = {16384};
    sizes.d = {d};
    for (const Attention& a : sizes.expand()) out.push_back(a);
  }
  return out;
}

BenchProblem quantise_problem(const BenchOptions& options, Op op, const Attention& sizes) {
  return {op, options.quantise.problem(sizes)};
}

/// The functions for one kind of problem. The passes of softmax attention are two kinds here.
struct BenchKind {
  /// The sizes that are measured if none is given.
  std::vector<Attention> (*usual)(const std::vector<std::string>& dtypes, bool gpu);
  BenchProblem (*problem)(const BenchOptions& options, Op op, const Attention& sizes);
};
constexpr BenchKind kAttention = {usual_attention, attention_problem};
constexpr BenchKind kBackward = {usual_prefill, backward_problem};
constexpr BenchKind kLinear = {usual_linear_sizes, linear_problem};
constexpr BenchKind kQuantised = {usual_quantise_sizes, quantise_problem};

const BenchKind& bench_kind(Op op) {
  if (kind_of(op) == Kind::linear) return kLinear;
  if (kind_of(op) == Kind::quantise) return kQuantised;
  return pass_of(op) == Pass::forward ? kAttention : kBackward;
}

/// GEMMs have their own sizes: squares and decode if none is given.
void add_gemms(const BenchOptions& options, const std::vector<std::string>& dtypes, std::vector<BenchProblem>* out) {
  GemmOptions gemm = options.gemm;
  const auto add = [&] {
    for (const Gemm& problem : gemm.expand(dtypes)) out->push_back({Op::gemm, problem});
  };
  if (gemm.sizes_given()) return add();
  for (const std::int64_t square : {512, 1024, 2048}) {
    gemm.m = gemm.n = gemm.k = {square};
    add();
  }
  gemm.m = {1, 16};
  gemm.n = gemm.k = {4096};
  add();
}

/// Norms have rows of d. If neither is given: those of a hidden layer, for many tokens and for few.
void add_norms(const BenchOptions& options, Op op, const std::vector<std::string>& dtypes,
               std::vector<BenchProblem>* out) {
  NormOptions norm = options.norm;
  const auto add = [&](const std::vector<std::int64_t>& d) {
    for (const Norm& problem : norm.expand(op, dtypes, d)) {
      if (pass_of(op) == Pass::forward)
        out->push_back({op, problem});
      else
        out->push_back({op, NormBackwardProblem{problem}});
    }
  };
  if (!norm.rows.empty() || !options.sizes.d.empty()) return add(options.sizes.d);
  norm.rows = {4096};
  add({1024, 4096, 8192});
  norm.rows = {1, 16};
  add({4096});
}

}  // namespace

void BenchOptions::add_to(Command& command) {
  command.group("What is measured");
  command.list("--op", &op, operation_names(), "What is measured, side by side (attention when not given)");
  sizes.add_to(command);
  features.add_to(command);
  cache.add_to(command);
  command.flag("--decode", &decode,
               "A KV cache of each size in rows and pages, with ragged lengths, more queries, new keys");
  command.flag("--lse", &lse, "With the log-sum-exp as an output");
  backward.add_to(command);
  linear.add_to(command);
  gemm.add_to(command);
  norm.add_to(command);
  quantise.add_to(command);
  where.add_to(command, "Force CPU levels: one, a list, or all");
  command.group("How it is measured");
  command.integer("--runs", &runs, 1, 100000, "Timed runs; the median counts");
  command.choice("--layout", &layout, {"bshd", "bhsd"}, "How the tensors lie in memory");
  command.flag("--cold", &cold, "Flush the caches before each run (decode: always, unless --warm)");
  command.flag("--warm", &warm, "Never flush the caches");
  command.excludes("--cold", "--warm");
  command.optional("--json", &json_file, &as_json, "Google Benchmark's JSON: to FILE, or instead of the table", "FILE");
}

std::vector<BenchProblem> bench_problems(const BenchOptions& options) {
  const std::vector<Op> ops = parse_ops(options.op);
  check_options(options, ops);
  options.features.refuse_files();
  std::vector<BenchProblem> out;
  const bool gpu = wants_gpu(options.where);
  std::vector<std::string> dtypes = options.sizes.dtype;
  if (dtypes.empty() && !gpu) dtypes = {"bf16", "f16", "f32"};
  const bool any_gemm = std::find(ops.begin(), ops.end(), Op::gemm) != ops.end();
  if (any_gemm) add_gemms(options, dtypes, &out);
  const auto is_norm = [](Op op) { return kind_of(op) == Kind::norm; };
  for (const Op op : ops)
    if (is_norm(op)) add_norms(options, op, dtypes, &out);
  if (std::all_of(ops.begin(), ops.end(), is_norm)) return out;
  if (options.decode) {
    add_decode(options, options.sizes.given() ? options.sizes.expand() : usual_decode(dtypes, gpu), &out);
    return out;
  }
  if (options.sizes.given()) {
    if (any_gemm && ops.size() == 1) throw UsageError{"the sizes of --op gemm are --batch, --m, --n and --k"};
    for (const Attention& sizes : options.sizes.expand())
      for (const Op op : ops)
        if (op != Op::gemm && !is_norm(op)) out.push_back(bench_kind(op).problem(options, op, sizes));
    return out;
  }
  for (const Op op : ops) {
    if (op == Op::gemm || is_norm(op)) continue;
    for (const Attention& sizes : bench_kind(op).usual(dtypes, gpu))
      out.push_back(bench_kind(op).problem(options, op, sizes));
  }
  return out;
}

}  // namespace falchion::tools
