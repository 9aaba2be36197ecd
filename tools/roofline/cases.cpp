// tools/roofline/cases.cpp
#include "roofline/cases.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "tool.hpp"

namespace falchion::tools::roofline {
namespace {

using List = std::vector<std::int64_t>;
constexpr std::int64_t kLargest = std::int64_t{1} << 32;
constexpr std::size_t kMostCases = 256;

List or_else(const List& list, const List& fallback) { return list.empty() ? fallback : list; }

std::string size_text(const Attention& a) {
  const std::string h = a.h_q == a.h_k ? fmt::format("{}", a.h_q) : fmt::format("{}/{}", a.h_q, a.h_k);
  const std::string s = a.s_q == a.s_k ? fmt::format("{}", a.s_q) : fmt::format("{}x{}", a.s_q, a.s_k);
  const std::string d = a.d == a.d_v ? fmt::format("{}", a.d) : fmt::format("{}/{}", a.d, a.d_v);
  return fmt::format("b{} h{} s{} d{}", a.b, h, s, d);
}

Case prefill_case(const Attention& a) {
  return {fmt::format("{} {}{}", size_text(a), a.causal ? "causal" : "full", a.unfused ? " unfused" : ""),
          attention(a)};
}

Case backward_case(const Attention& a) {
  return {fmt::format("{} {} backward", size_text(a), a.causal ? "causal" : "full"), attention_backward(a)};
}

Case decode_case(const Attention& a, bool mla) {
  if (!mla) return {size_text(a), attention(a)};
  return {fmt::format("MLA b{} h{} s{}x{} d{}/{}", a.b, a.h_q, a.s_q, a.s_k, a.d, a.d_v), mla_decode(a)};
}

Case recurrent_case(double b, double h, double d, double d_v, int bytes) {
  return {fmt::format("recurrent b{} h{} d{}", b, h, d == d_v ? fmt::format("{}", d) : fmt::format("{}/{}", d, d_v)),
          linear_recurrent(b, h, d, d_v, bytes)};
}

Case chunked_case(const Chunked& c) {
  return {
      fmt::format("chunk {} b{} h{} s{} d{}{}", c.chunk, c.b, c.heads, c.s,
                  c.d == c.d_v ? fmt::format("{}", c.d) : fmt::format("{}/{}", c.d, c.d_v), c.spill ? " spilled" : ""),
      linear_chunked(c)};
}

Case gemm_case(const Gemm& g) { return {fmt::format("{} x {} x {}", g.m, g.n, g.k), gemm(g)}; }

}  // namespace

void ShapeOptions::add_to(Command& command) {
  command.group("Shapes (lists: every combination; none: the usual ones)");
  command.list("--b", &b, "Sequences [1]");
  command.list("--h-q", &h_q, "Query heads; heads of linear attention [32; MLA 128]");
  command.list("--h-k", &h_k, "K/V heads [8]");
  command.list("--s", &s, "Length: of Q and of K and V; in decode, keys [4096; decode 8192]");
  command.list("--s-q", &s_q, "Queries [prefill: s; decode: 1]");
  command.list("--s-k", &s_k, "Keys [s]");
  command.list("--d", &d, "Head dim [128; MLA 576]");
  command.list("--d-v", &d_v, "Head dim of V [d; MLA 512]");
  command.list("--chunk", &chunk, "linear: the chunk of a prompt [64]");
  command.list("--m", &m, "gemm: rows of A and C [4096]");
  command.list("--n", &n, "gemm: columns of B and C [4096]");
  command.list("--k", &k, "gemm: columns of A, rows of B [4096]");
  command.choice("--dtype", &dtype, {"bf16", "f16", "fp8", "f32"}, "Type of the operands");
  command.flag("--causal", &causal, "prefill: half the scores");
  command.flag("--lse", &lse, "The log-sum-exp is written too, 4 bytes a row");
  command.flag("--mla", &mla, "decode: absorbed MLA, one latent for all heads");
  command.flag("--spill", &spill, "linear: the f32 state goes to memory and back each chunk");
  command.integer("--br", &block_rows, 1, 1 << 20,
                  "Query rows that read K and V together, backward keys that read Q and dO (what the L2 sees)");
}

bool ShapeOptions::given() const {
  for (const List* list : {&b, &h_q, &h_k, &s, &s_q, &s_k, &d, &d_v, &chunk, &m, &n, &k})
    if (!list->empty()) return true;
  return causal || lse || mla || spill;
}

int ShapeOptions::element_bytes() const { return dtype == "fp8" ? 1 : dtype == "f32" ? 4 : 2; }

namespace {

/// Refuses options that are out of range, or that the mode ignores.
void check(const ShapeOptions& o, const std::string& mode) {
  struct Named {
    const char* name;
    const List* list;
    const char* modes;
  };
  const Named lists[] = {{"--b", &o.b, "prefill backward decode linear"},
                         {"--h-q", &o.h_q, "prefill backward decode linear"},
                         {"--h-k", &o.h_k, "prefill backward decode"},
                         {"--s", &o.s, "prefill backward decode linear"},
                         {"--s-q", &o.s_q, "prefill backward decode"},
                         {"--s-k", &o.s_k, "prefill backward decode"},
                         {"--d", &o.d, "prefill backward decode linear"},
                         {"--d-v", &o.d_v, "prefill backward decode linear"},
                         {"--chunk", &o.chunk, "linear"},
                         {"--m", &o.m, "gemm"},
                         {"--n", &o.n, "gemm"},
                         {"--k", &o.k, "gemm"}};
  const auto belongs = [&](const char* name, const std::string& modes) {
    if (modes.find(mode) == std::string::npos)
      throw UsageError{fmt::format("{} says nothing in --mode {}; it belongs to {}", name, mode, modes)};
  };
  for (const Named& named : lists) {
    if (!named.list->empty()) belongs(named.name, named.modes);
    for (const std::int64_t value : *named.list)
      if (value < 1 || value > kLargest)
        throw UsageError{fmt::format("{}: {} is not between 1 and {}", named.name, value, kLargest)};
  }
  if (o.causal) belongs("--causal", "prefill backward");
  if (o.lse) belongs("--lse", "prefill decode");
  if (o.mla) belongs("--mla", "decode");
  if (o.spill) belongs("--spill", "linear");
  if (o.mla && !o.h_k.empty()) throw UsageError{"--h-k and --mla: the heads of MLA share one latent; leave --h-k out"};
}

/// Calls body for every attention of the lists.
template <class Body>
void each_attention(const ShapeOptions& o, const Attention& base, bool decode, const Body& body) {
  const auto whole = [](double x) { return static_cast<std::int64_t>(x); };
  for (const auto batch : or_else(o.b, {1}))
    for (const auto heads : or_else(o.h_q, {whole(base.h_q)}))
      for (const auto kv : or_else(o.h_k, {std::min(heads, whole(base.h_k))}))
        for (const auto d : or_else(o.d, {whole(base.d)}))
          for (const auto d_v : or_else(o.d_v, {o.mla ? whole(base.d_v) : d}))
            for (const auto s : or_else(o.s, {whole(base.s_k)}))
              for (const auto rows : or_else(o.s_q, {decode ? 1 : s}))
                for (const auto keys : or_else(o.s_k, {s})) {
                  Attention a = base;
                  a.b = static_cast<double>(batch);
                  a.h_q = static_cast<double>(heads);
                  a.h_k = static_cast<double>(kv);
                  a.d = static_cast<double>(d);
                  a.d_v = static_cast<double>(d_v);
                  a.s_q = static_cast<double>(rows);
                  a.s_k = static_cast<double>(keys);
                  if (!o.mla && heads % kv != 0)
                    throw UsageError{fmt::format("--h-q {} is not a multiple of --h-k {}", heads, kv)};
                  if (o.causal && rows != keys)
                    throw UsageError{
                        fmt::format("--causal: half the scores is a square's, and s_q {} is not s_k {}", rows, keys)};
                  if (o.mla && d_v > d) throw UsageError{fmt::format("--d-v {}: more than the latent's {}", d_v, d)};
                  body(a);
                }
}

void add_usual_prefill(const Attention& base, std::vector<Case>* out) {
  const auto add = [&](double s, double d, bool causal, bool unfused) {
    Attention a = base;
    a.s_q = a.s_k = s;
    a.d = a.d_v = d;
    a.causal = causal;
    a.unfused = unfused;
    out->push_back(prefill_case(a));
  };
  for (const double s : {512.0, 4096.0, 16384.0}) add(s, 128, false, false);
  add(4096, 128, true, false);
  add(4096, 64, false, false);
  add(4096, 128, false, true);
  add(4096, 64, false, true);
}

void add_usual_backward(const Attention& base, std::vector<Case>* out) {
  const auto add = [&](double s, double d, bool causal) {
    Attention a = base;
    a.s_q = a.s_k = s;
    a.d = a.d_v = d;
    a.causal = causal;
    out->push_back(backward_case(a));
  };
  for (const double s : {512.0, 4096.0, 16384.0}) add(s, 128, false);
  add(4096, 128, true);
  add(4096, 64, false);
  add(4096, 256, false);
}

void add_usual_decode(const Attention& base, std::vector<Case>* out) {
  const auto add = [&](double h_q, double h_k, double s_q, bool mla) {
    Attention a = base;
    a.h_q = h_q;
    a.h_k = h_k;
    a.s_q = s_q;
    if (mla) {
      a.d = 576;
      a.d_v = 512;
    }
    out->push_back(decode_case(a, mla));
  };
  add(8, 8, 1, false);
  add(32, 8, 1, false);
  add(64, 8, 1, false);
  add(32, 8, 4, false);
  add(16, 16, 1, true);
  add(128, 128, 1, true);
}

void add_linear(const ShapeOptions& o, std::vector<Case>* out) {
  const int bytes = o.element_bytes();
  const bool usual = !o.given();
  for (const auto b : or_else(o.b, {1}))
    for (const auto h : or_else(o.h_q, {32}))
      for (const auto d : or_else(o.d, {128}))
        for (const auto d_v : or_else(o.d_v, {d})) {
          const double sizes[] = {static_cast<double>(b), static_cast<double>(h), static_cast<double>(d),
                                  static_cast<double>(d_v)};
          out->push_back(recurrent_case(sizes[0], sizes[1], sizes[2], sizes[3], bytes));
          for (const bool spill : {false, true})
            for (const auto s : or_else(o.s, {4096}))
              for (const auto chunk : or_else(o.chunk, usual ? List{64, 128, 256} : List{64}))
                if (usual || spill == o.spill)
                  out->push_back(chunked_case({sizes[0], sizes[1], static_cast<double>(s), sizes[2], sizes[3],
                                               static_cast<double>(chunk), spill, bytes}));
        }
}

void add_gemms(const ShapeOptions& o, std::vector<Case>* out) {
  const auto add = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    Gemm g;
    g.m = static_cast<double>(m);
    g.n = static_cast<double>(n);
    g.k = static_cast<double>(k);
    g.element_bytes = o.element_bytes();
    out->push_back(gemm_case(g));
  };
  if (!o.given()) {
    for (const std::int64_t m : {1, 16, 64, 256, 4096}) add(m, 4096, 4096);
    add(512, 512, 512);
    return;
  }
  for (const auto m : or_else(o.m, {4096}))
    for (const auto n : or_else(o.n, {4096}))
      for (const auto k : or_else(o.k, {4096})) add(m, n, k);
}

}  // namespace

std::vector<Case> ShapeOptions::cases(const std::string& mode) const {
  check(*this, mode);
  std::size_t count = 1;
  for (const List* list : {&b, &h_q, &h_k, &s, &s_q, &s_k, &d, &d_v, &chunk, &m, &n, &k})
    if ((count *= std::max<std::size_t>(list->size(), 1)) > kMostCases)
      throw UsageError{fmt::format("these lists make more than {} shapes", kMostCases)};
  std::vector<Case> out;
  Attention base;
  base.element_bytes = element_bytes();
  base.block_rows = static_cast<double>(block_rows);
  base.causal = causal;
  base.lse = lse;
  if (mode == "decode") {
    base.s_q = 1;
    base.s_k = 8192;
  }
  if (mla) {
    base.h_q = base.h_k = 128;
    base.d = 576;
    base.d_v = 512;
  }
  if (mode == "linear") {
    add_linear(*this, &out);
  } else if (mode == "gemm") {
    add_gemms(*this, &out);
  } else if (!given()) {
    (mode == "prefill" ? add_usual_prefill : mode == "backward" ? add_usual_backward : add_usual_decode)(base, &out);
  } else if (mode == "backward") {
    each_attention(*this, base, false, [&](const Attention& a) { out.push_back(backward_case(a)); });
  } else if (mode == "decode") {
    each_attention(*this, base, true, [&](const Attention& a) { out.push_back(decode_case(a, mla)); });
  } else {
    each_attention(*this, base, false, [&](Attention a) {
      for (const bool unfused : {false, true}) {
        a.unfused = unfused;
        out.push_back(prefill_case(a));
      }
    });
  }
  return out;
}

}  // namespace falchion::tools::roofline
