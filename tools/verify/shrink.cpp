// tools/verify/shrink.cpp: makes a failing problem smaller. Each step tries one simpler
// problem and keeps it if it still fails.
#include <algorithm>

#include "storm.hpp"

namespace falchion::tools::storm {
namespace {

using Steps = std::vector<Problem>;

/// Adds the problem that `change` makes to the candidates, if it is another one.
template <class Change>
void offer(const Problem& from, Steps* steps, const Change& change) {
  Problem next = from;
  change(next);
  tidy(&next);
  if (!(next == from)) steps->push_back(std::move(next));
}

/// Numbers to try on the way to `least`: `least` itself, halfway there, and one less.
template <class Get>
void smaller(const Problem& from, Steps* steps, std::int64_t least, const Get& get) {
  const std::int64_t now = get(const_cast<Problem&>(from));
  for (const std::int64_t next : {least, least + (now - least) / 2, now - 1})
    if (next >= least && next < now) offer(from, steps, [&](Problem& p) { get(p) = next; });
}

void drop_sequences(const Problem& from, Steps* steps) {
  const std::int64_t b = from.op == Op::attention ? from.attention.b : from.linear.b;
  const auto cut = [&](std::int64_t begin, std::int64_t end) {
    offer(from, steps, [&](Problem& p) {
      (p.op == Op::attention ? p.attention.b : p.linear.b) = b - (end - begin);
      for (auto* list : {&p.lengths_q, &p.lengths_k, &p.used_q, &p.used_k, &p.first_k})
        if (!list->empty()) list->erase(list->begin() + begin, list->begin() + end);
    });
  };
  if (b < 2) return;
  cut(b / 2, b), cut(0, b / 2);
  for (std::int64_t i = 0; i < std::min<std::int64_t>(b, 16); ++i) cut(i, i + 1);
}

void smaller_lengths(const Problem& from, Steps* steps) {
  using List = std::vector<std::int64_t> Problem::*;
  for (const List list :
       {&Problem::lengths_q, &Problem::lengths_k, &Problem::used_q, &Problem::used_k, &Problem::first_k}) {
    if ((from.*list).empty()) continue;
    offer(from, steps, [&](Problem& p) {
      for (std::int64_t& n : p.*list) n = n > 1 ? n / 2 : n;
    });
    for (std::size_t i = 0; i < std::min<std::size_t>((from.*list).size(), 16); ++i)
      for (const std::int64_t n : {std::int64_t{0}, (from.*list)[i] / 2, (from.*list)[i] - 1})
        if (n >= 0 && n < (from.*list)[i]) offer(from, steps, [&](Problem& p) { (p.*list)[i] = n; });
  }
}

void simpler_memory(const Problem& from, Steps* steps) {
  offer(from, steps, [](Problem& p) { p.storage.clear(); });
  for (const auto& [operand, storage] : from.storage) {
    offer(from, steps, [&](Problem& p) { p.storage.erase(operand); });
    const auto part = [&](const auto& change) { offer(from, steps, [&](Problem& p) { change(p.storage[operand]); }); };
    part([](Storage& x) { x.order = Storage{}.order; }), part([](Storage& x) { x.pad = 0; });
    part([](Storage& x) { x.gap = 0; }), part([](Storage& x) { x.start = 0; }), part([](Storage& x) { x.flip = 0; });
    part([](Storage& x) { x.zero = 0; }), part([](Storage& x) { x.wild = false; });
  }
}

void simpler_data(const Problem& from, Steps* steps) {
  offer(from, steps, [](Problem& p) { p.data = {.seed = p.data.seed}; });
  offer(from, steps, [](Problem& p) { p.data.q = p.data.k = p.data.v = 1; });
  offer(from, steps, [](Problem& p) { p.data.shape = Data{}.shape; });
  offer(from, steps, [](Problem& p) { p.data.plant.clear(); });
  offer(from, steps, [](Problem& p) { p.data.bias = Data{}.bias; });
  offer(from, steps, [](Problem& p) { p.data.mask = Data{}.mask; });
  offer(from, steps, [](Problem& p) { p.data.decay = Data{}.decay; });
}

void simpler_attention(const Problem& from, Steps* steps) {
  const auto flag = [&](bool Attention::*which) {
    offer(from, steps, [&](Problem& p) { p.attention.*which = false; });
  };
  for (bool Attention::*which :
       {&Attention::mask, &Attention::bias, &Attention::alibi, &Attention::probabilities, &Attention::row_max,
        &Attention::lse, &Attention::used_q, &Attention::used_k, &Attention::first_k})
    flag(which);
  if (from.attention.packed && from.attention.b > 0)
    offer(from, steps, [](Problem& p) {
      for (auto* side : {&p.lengths_q, &p.lengths_k}) side->resize(1);
      p.attention.packed = false, p.attention.b = 1, p.attention.s_q = p.lengths_q[0], p.attention.s_k = p.lengths_k[0];
    });
  offer(from, steps, [](Problem& p) { p.attention.dropout = 0; });
  offer(from, steps, [](Problem& p) { p.rng_in_memory = false; });
  offer(from, steps, [](Problem& p) { p.slopes_by_batch = false; });
  offer(from, steps, [](Problem& p) { p.attention.score.softcap = 0; });
  offer(from, steps, [](Problem& p) { p.attention.score.scale = 0; });
  offer(from, steps, [](Problem& p) { p.attention.band = {}; });
  offer(from, steps, [](Problem& p) { p.attention.band.left = Band::unbounded; });
  offer(from, steps, [](Problem& p) { p.attention.band.right = Band::unbounded; });
  offer(from, steps, [](Problem& p) { p.bias = {}; });
  offer(from, steps, [](Problem& p) { p.mask = {}; });
  offer(from, steps, [](Problem& p) { p.bias_dtype = DType::f32; });
  offer(from, steps, [](Problem& p) { p.attention.h_q = p.attention.h_k; });
  if (from.attention.h_k > 0) {
    const std::int64_t group = from.attention.h_q / from.attention.h_k;
    for (const std::int64_t heads : {std::int64_t{1}, from.attention.h_k / 2})
      if (heads > 0) offer(from, steps, [&](Problem& p) { p.attention.h_k = heads, p.attention.h_q = heads * group; });
    for (const std::int64_t g : {std::int64_t{1}, group / 2, group - 1})
      if (g > 0) offer(from, steps, [&](Problem& p) { p.attention.h_q = p.attention.h_k * g; });
  }
  smaller(from, steps, 0, [](Problem& p) -> std::int64_t& { return p.attention.s_q; });
  smaller(from, steps, 0, [](Problem& p) -> std::int64_t& { return p.attention.s_k; });
  smaller(from, steps, 1, [](Problem& p) -> std::int64_t& { return p.attention.d_qk; });
  smaller(from, steps, 1, [](Problem& p) -> std::int64_t& { return p.attention.d_v; });
  smaller(from, steps, 0, [](Problem& p) -> std::int64_t& { return p.attention.band.left; });
  smaller(from, steps, 0, [](Problem& p) -> std::int64_t& { return p.attention.band.right; });
}

void simpler_linear(const Problem& from, Steps* steps) {
  using L = LinearAttention;
  for (bool L::*which : {&L::normalise, &L::reverse, &L::initial_state, &L::final_state})
    offer(from, steps, [&](Problem& p) { p.linear.*which = false; });
  if (from.linear.packed && from.linear.b > 0)
    offer(from, steps, [](Problem& p) {
      p.lengths_q.resize(1);
      p.linear.packed = false, p.linear.b = 1, p.linear.s = p.lengths_q[0];
    });
  offer(from, steps, [](Problem& p) { p.linear.decay = Decay::none; });
  offer(from, steps, [](Problem& p) { p.linear.feature_map = FeatureMap::identity; });
  offer(from, steps, [](Problem& p) { p.linear.scale = 0; });
  offer(from, steps, [](Problem& p) { p.in_place = false; });
  offer(from, steps, [](Problem& p) { p.segments = 0; });
  offer(from, steps, [](Problem& p) { p.linear.h_v = p.linear.h_qk; });
  if (from.linear.h_qk > 0) {
    const std::int64_t group = from.linear.h_v / from.linear.h_qk;
    for (const std::int64_t heads : {std::int64_t{1}, from.linear.h_qk / 2})
      if (heads > 0) offer(from, steps, [&](Problem& p) { p.linear.h_qk = heads, p.linear.h_v = heads * group; });
    if (group > 2) offer(from, steps, [&](Problem& p) { p.linear.h_v = p.linear.h_qk * (group / 2); });
  }
  smaller(from, steps, 0, [](Problem& p) -> std::int64_t& { return p.linear.s; });
  smaller(from, steps, 1, [](Problem& p) -> std::int64_t& { return p.linear.d_qk; });
  smaller(from, steps, 1, [](Problem& p) -> std::int64_t& { return p.linear.d_v; });
}

Steps steps_from(const Problem& from) {
  Steps steps;
  drop_sequences(from, &steps);
  simpler_memory(from, &steps);
  if (from.op == Op::attention) {
    simpler_attention(from, &steps);
  } else {
    simpler_linear(from, &steps);
  }
  smaller_lengths(from, &steps);
  simpler_data(from, &steps);
  offer(from, &steps, [](Problem& p) { p.threads = 1; });
  offer(from, &steps, [](Problem& p) { p.lent = false; });
  offer(from, &steps, [](Problem& p) { p.spare = 0; });
  return steps;
}

}  // namespace

Problem shrink(const Problem& problem, const std::function<bool(const Problem&)>& fails,
               const std::function<bool()>& enough) {
  Problem best = problem;
  int left = 600;  // how many trials are left; most are far cheaper than the first
  for (bool better = true; better && left > 0;) {
    better = false;
    for (const Problem& next : steps_from(best)) {
      if (--left < 0 || enough()) return best;
      if (!fails(next)) continue;
      best = next, better = true;
      break;
    }
  }
  return best;
}

}  // namespace falchion::tools::storm
