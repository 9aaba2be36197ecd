// tools/problem/problem_options.cpp
#include "problem/problem_options.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <type_traits>

#include "base/fields.hpp"
#include "command/numbers.hpp"
#include "command/words.hpp"
#include "cpu/levels.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "problem/levels.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

const std::vector<std::string> kCorners = {"bottom-right", "top-left"};

std::int64_t parse_side(const std::string& text, const std::string& whole) {
  if (text == "inf" || text == "-1") return Band::unbounded;
  return parse_number<std::int64_t>(text, "--window", whole);
}

/// Says where the diagonal lies: a corner, or the key at which query 0 stands. Without either both corners must be one.
void align(const std::string& text, const std::string& option, Attention* problem) {
  Band& band = problem->band;
  if (!text.empty() && text.find_first_not_of("+-0123456789") == std::string::npos) {
    band.align = Align::at;
    band.offset = parse_number<std::int64_t>(text, option, text);
    return;
  }
  // With equal lengths both alignments mean the same, so nothing is guessed. Packed or used lengths may differ from s.
  const bool same = problem->s_q == problem->s_k && !problem->packed && !has_lengths(*problem);
  if (text.empty() && !same)
    throw UsageError{fmt::format(
        "{}: s_q = {} and s_k = {} can differ, so say bottom-right (the last query sees the last key, as "
        "FlashAttention), top-left (query 0 sees key 0, as PyTorch's is_causal), or the key at which query 0 stands",
        option, problem->s_q, problem->s_k)};
  const bool top_left = !text.empty() && word_of(option, text, kCorners) == kCorners[1];
  band.align = top_left ? Align::top_left : Align::bottom_right;
}

/// The values of a list option, or its default when it was not given.
std::vector<std::int64_t> or_else(const std::vector<std::int64_t>& list, const std::vector<std::int64_t>& fallback) {
  return list.empty() ? fallback : list;
}

/// Combines two lists, element i of one with element i of the other. A list of one element serves all.
std::int64_t paired(const std::vector<std::int64_t>& list, std::size_t i, std::int64_t fallback) {
  return list.empty() ? fallback : list[list.size() == 1 ? 0 : i];
}
std::size_t pair_count(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b, const char* names) {
  if (a.size() > 1 && b.size() > 1 && a.size() != b.size())
    throw UsageError{fmt::format("{}: lists of {} and {} values cannot be paired", names, a.size(), b.size())};
  return std::max({a.size(), b.size(), std::size_t{1}});
}

}  // namespace

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

DType parse_dtype(const std::string& text) {
  constexpr DType kAll[] = {DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::i8, DType::i32};
  return named<DType>("dtype", text, kAll);
}

Backend parse_backend(const std::string& text) {
  constexpr Backend kAll[] = {Backend::best, Backend::ref, Backend::cpu, Backend::sm80, Backend::sm90};
  return named<Backend>("backend", text, kAll);
}

std::vector<std::int64_t> parse_integers(const std::string& text, const std::string& option) {
  std::vector<std::int64_t> out;
  for (const auto& part : split(text)) out.push_back(parse_number<std::int64_t>(part, option, text));
  return out;
}

void FeatureOptions::add_to(Command& command) {
  command.group("What is computed");
  command.optional(
      "--causal", &causal, &causal_given,
      "Each query sees no later key. Where s_q and s_k differ: a corner, or the key at which query 0 stands",
      "{bottom-right,top-left}");
  command.text("--window", &window, "Sliding window: keys from L before to R after the diagonal; inf: no bound", "L,R");
  command.text(
      "--align", &align_at,
      "Where the diagonal of a window, or ALiBi's distance 0, lies when s_q and s_k differ: a corner, or a key",
      "{bottom-right,top-left}");
  each_field(numbers, [&](const Field& field, auto& x) {
    if constexpr (std::is_same_v<decltype(x), float&>) {
      if (&x != &numbers.dropout) command.number(field.option, &x, field.text);
    }
    if (is_of_heads(field) && field.forward)
      command.text(field.option, &of_heads[field.key],
                   std::string(field.text) + ": a .npy file, or auto (2^(-8 h / heads))", "FILE|auto");
  });
  command.text("--dropout", &dropout, "Dropout on the probabilities, the same bits on every backend",
               "P[,SEED[,OFFSET]]");
}

std::vector<const char*> FeatureOptions::names(bool alone) {
  std::vector<const char*> out{"--causal", "--window", "--align"};
  const Attention any;
  each_field(any, [&](const Field& field, const auto& x) {
    if (static_cast<const void*>(&x) == &any.score.scale && alone) return;  // linear attention has it too
    if (field.kind == FieldKind::number || (is_of_heads(field) && field.forward)) out.push_back(field.option);
  });
  return out;
}

std::string FeatureOptions::of_heads_of(const Field& field) const {
  const auto found = of_heads.find(field.key);
  return found != of_heads.end() ? found->second : "";
}

void FeatureOptions::name_files(FileNames* files) const {
  each_field(Attention{}, [&](const Field& field, const auto&) {
    const std::string text = of_heads_of(field);
    if (!text.empty() && text != "auto") files->reads(field.option, text);
  });
}

void FeatureOptions::refuse_files() const {
  each_field(Attention{}, [&](const Field& field, const auto&) {
    const std::string text = of_heads_of(field);
    if (!text.empty() && text != "auto")
      throw UsageError{
          fmt::format("{0}: \"{1}\" is not read here, where no tensors are; write {0} auto", field.option, text)};
  });
}

void FeatureOptions::apply(Attention* problem) const {
  if (causal_given && !window.empty())
    throw UsageError{"--causal and --window: give one; a causal window of 128 keys is --window 127,0"};
  if (causal_given) {
    problem->band = Band::causal(Align::unset);
    align(causal, "--causal", problem);
  }
  if (!window.empty()) {
    const auto sides = split(window);
    if (sides.size() != 2) throw UsageError{fmt::format("--window \"{}\" is not L,R, as 127,0 or inf,16", window)};
    problem->band = Band::window(parse_side(sides[0], window), parse_side(sides[1], window), Align::unset);
    align(align_at, align_at.empty() ? "--window" : "--align", problem);
  } else if (!align_at.empty()) {
    if (!of_heads.contains("alibi") || of_heads.at("alibi").empty() || causal_given)
      throw UsageError{
          "--align: there is no --window or --alibi that it belongs to; --causal has its own: --causal top-left"};
    align(align_at, "--align", problem);
  }
  problem->score = numbers.score;
  each_field(*problem, [&](const Field& field, auto& x) {
    if constexpr (std::is_same_v<decltype(x), bool&>) {
      if (is_of_heads(field) && field.forward) x = !of_heads_of(field).empty();
    }
  });
  if (!dropout.empty()) {
    static_cast<void>(rng());  // so that a bad value is refused also where no random number is drawn
    problem->dropout = parse_number<float>(split(dropout)[0], "--dropout", dropout);
  }
}

Rng FeatureOptions::rng() const {
  Rng out;
  if (dropout.empty()) return out;
  const auto parts = split(dropout);
  if (parts.size() > 3) throw UsageError{fmt::format("--dropout \"{}\" is not P[,SEED[,OFFSET]]", dropout)};
  if (parts.size() > 1) out.seed = parse_number<std::uint64_t>(parts[1], "--dropout", dropout);
  if (parts.size() > 2) out.offset = parse_number<std::uint64_t>(parts[2], "--dropout", dropout);
  return out;
}

namespace {

/// f(field, member) for each flag, number, type and operand of a cache.
template <class A, class F>
void each_cache_field(A&& a, const F& f) {
  each_field(a, [&](const Field& field, auto& x) {
    const bool of_cache = field.forward && !field.backward;
    if (of_cache && field.kind != FieldKind::output) f(field, x);
  });
}

}  // namespace

void CacheOptions::add_to(Command& command) {
  command.group("A KV cache, or Q of 8 bits");
  each_cache_field(fields, [&](const Field& field, auto& x) {
    using Member = std::remove_reference_t<decltype(x)>;
    if constexpr (std::is_same_v<Member, bool>) command.flag(field.option, &x, field.text);
    if constexpr (std::is_same_v<Member, std::int64_t>) command.integer(field.option, &x, 0, 1 << 30, field.text);
    if constexpr (std::is_same_v<Member, DType>)
      command.choice(field.option, &(types[field.key] = "as_q"), {"as_q", "e4m3", "i8", "bf16", "f16"}, field.text);
  });
}

bool CacheOptions::given() const {
  bool any = std::any_of(types.begin(), types.end(), [](const auto& type) { return type.second != "as_q"; });
  each_cache_field(fields, [&](const Field&, const auto& x) { any = any || x != std::remove_cvref_t<decltype(x)>{}; });
  return any;
}

void CacheOptions::apply(Attention* problem) const {
  if (!given()) return;
#define FALCHION_CACHE_FIELD(kind, key, member, option, text) problem->member = fields.member;
#include "base/fields.def"
  problem->cache = !is_8bit(problem->dtype);  // with q of 8 bits they are options of that
  each_field(*problem, [&](const Field& field, auto& x) {
    const auto type = types.find(field.key);
    if constexpr (std::is_same_v<decltype(x), DType&>)
      if (type != types.end() && type->second != "as_q") x = parse_dtype(type->second);
    if constexpr (std::is_same_v<decltype(x), bool&>)
      x = x || (problem->cache && field.option == std::string_view("--used-k"));
  });
}

std::vector<const char*> CacheOptions::names() {
  std::vector<const char*> out;
  each_cache_field(Attention{}, [&](const Field& field, const auto&) { out.push_back(field.option); });
  return out;
}

void BackwardOptions::add_to(Command& command) {
  command.group("What the backward pass of attention computes");
  each_field(flags, [&](const Field& field, auto& x) {
    using Member = std::remove_reference_t<decltype(x)>;
    if (field.forward) return;
    if constexpr (std::is_same_v<Member, bool>) command.flag(field.option, &x, field.text);
    if constexpr (std::is_same_v<Member, Grads>)
      command.choice(field.option, &grads, {"rounded", "f32", "accumulate"}, field.text);
    if constexpr (std::is_same_v<Member, std::uint8_t>)
      command.choice(field.option, &frozen, {"none", "q", "kv", "all"}, field.text);
  });
}

void BackwardOptions::apply(Attention* problem) const {
#define FALCHION_BACKWARD_FIELD(kind, key, member, option, text) problem->member = flags.member;
#include "base/fields.def"
  problem->grads = grads == "f32" ? Grads::f32 : grads == "accumulate" ? Grads::accumulate : Grads::rounded;
  problem->frozen = frozen == "q" ? 1 : frozen == "kv" ? 2 : frozen == "all" ? 3 : 0;
}

void LinearOptions::add_to(Command& command) {
  command.group("What linear attention computes");
  command.choice("--decay", &decay, {"none", "head", "token"},
                 "How the state fades: by a constant a head, or by one number a token and head");
  command.flag("--elu", &elu, "q and k go through elu + 1 first");
  command.flag("--normalise", &normalise, "Divided by the sum of the weights");
}

LinearProblem LinearOptions::problem(const Attention& sizes, Pass pass, float scale) const {
  if (sizes.s_q != sizes.s_k)
    throw UsageError{fmt::format("--op linear: queries and keys are the same tokens; s_q = {} is not s_k = {}",
                                 sizes.s_q, sizes.s_k)};
  LinearProblem a;
  a.pass = pass;
  a.dtype = sizes.dtype;
  a.b = sizes.b;
  a.s = sizes.s_q;
  a.h_qk = sizes.h_q;
  a.h_v = sizes.h_k;
  a.d_qk = sizes.d_qk;
  a.d_v = sizes.d_v;
  a.scale = scale;
  a.decay = decay == "head" ? Decay::head : decay == "token" ? Decay::token : Decay::none;
  a.feature_map = elu ? FeatureMap::elu_plus_one : FeatureMap::identity;
  a.normalise = normalise;
  return a;
}

void SizeOptions::add_to(Command& command) {
  command.group("Sizes (lists: every combination)");
  command.list("--dtype", &dtype, kTypes, "Types; e4m3 and i8 are of GEMMs");
  command.list("--b", &b, "Sequences");
  command.list("--h", &h, "Heads, of Q and of K and V");
  command.list("--h-q", &h_q, "Query heads");
  command.list("--h-k,--h-v", &h_k, "K and V heads, paired with --h-q (linear attention: V heads)");
  command.list("--s", &s, "Length, of Q and of K and V");
  command.list("--s-q", &s_q, "Queries");
  command.list("--s-k", &s_k, "Keys, paired with --s-q");
  command.list("--d", &d, "Head dim, of Q and K and of V");
  command.list("--d-v", &d_v, "Head dim of V, paired with --d");
}

bool SizeOptions::given() const {
  for (const auto* list : {&b, &h, &h_q, &h_k, &s, &s_q, &s_k, &d, &d_v})
    if (!list->empty()) return true;
  return false;
}

std::vector<Attention> SizeOptions::expand() const {
  if (!h.empty() && !h_q.empty() && !h_k.empty())
    throw UsageError{"--h: --h-q and --h-k say all that it would say; leave it out"};
  if (!s.empty() && !s_q.empty() && !s_k.empty())
    throw UsageError{"--s: --s-q and --s-k say all that it would say; leave it out"};
  const auto q_heads = or_else(h_q, or_else(h, {8})), q_rows = or_else(s_q, or_else(s, {1024}));
  const auto dims = or_else(d, {128});
  const auto k_heads = or_else(h_k, h), k_rows = or_else(s_k, s);
  std::vector<Attention> out;
  for (const auto& type : dtype.empty() ? std::vector<std::string>{"bf16"} : dtype)
    for (const std::int64_t batch : or_else(b, {1}))
      for (std::size_t ih = 0; ih < pair_count(q_heads, k_heads, "--h-q, --h-k"); ++ih)
        for (std::size_t id = 0; id < pair_count(dims, d_v, "--d, --d-v"); ++id)
          for (std::size_t is = 0; is < pair_count(q_rows, k_rows, "--s-q, --s-k"); ++is) {
            Attention a;
            a.dtype = parse_dtype(type);
            a.b = batch;
            a.h_q = paired(q_heads, ih, 8);
            a.h_k = paired(k_heads, ih, a.h_q);
            a.s_q = paired(q_rows, is, 1024);
            a.s_k = paired(k_rows, is, a.s_q);
            a.d_qk = paired(dims, id, 128);
            a.d_v = paired(d_v, id, a.d_qk);
            out.push_back(a);
          }
  return out;
}

void TargetOptions::add_to(Command& command, const std::string& level_help) {
  command.group("Where it runs");
  command.choice("--backend", &backend, {"best", "ref", "cpu", "sm80", "sm90"}, "Back end");
  std::string levels;
  for (const auto& known : cpu::cpu_levels()) levels += (levels.empty() ? "{" : ",") + std::string(known.name);
  command.text("--level", &level, level_help, levels + "}");
  command.integer("--threads", &threads, 0, 4096, "CPU threads; 0: all that the process may use");
  command.integer("--sms", &sms, 0, 65535, "SMs of the GPU that a plan may use; 0: all");
}

Target TargetOptions::target() const {
  const Backend where = parse_backend(backend);
  const auto refuse = [&](const char* option) {
    throw UsageError{fmt::format("{}: it is of the CPU, and --backend {} does not run there", option, backend)};
  };
  const bool gpu = is_gpu(where);
  if (!level.empty() && (gpu || where == Backend::ref)) refuse("--level");
  if (threads > 0 && gpu) refuse("--threads");
  if (sms > 0 && !gpu && where != Backend::best)
    throw UsageError{fmt::format("--sms: it is of GPUs, and --backend {} does not run there", backend)};
  Target target = Path{where, level}.target(static_cast<int>(threads));
  target.sms = static_cast<int>(sms);
  return target;
}

}  // namespace falchion::tools
