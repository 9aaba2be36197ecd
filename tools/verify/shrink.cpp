// tools/verify/shrink.cpp: makes a failing problem smaller. Each step tries one simpler
// problem and keeps it if it still fails.
#include <algorithm>

#include "kind.hpp"
#include "shrink_steps.hpp"
#include "storm.hpp"

namespace falchion::tools::storm {
namespace {

using List = Lengths Problem::*;
constexpr List kLists[] = {
    &Problem::lengths_q,
    &Problem::lengths_k,
#define FALCHION_LENGTHS(key, ...) &Problem::key,
#include "base/fields.def"
};

void drop_sequences(const Problem& from, Steps* steps) {
  const std::int64_t b = from.b();
  const auto cut = [&](std::int64_t begin, std::int64_t end) {
    offer(from, steps, [&](Problem& p) {
      p.change([&](auto& a) { batch_of(a) = b - (end - begin); });
      for (const List list : kLists)
        if (!(p.*list).empty()) (p.*list).erase((p.*list).begin() + begin, (p.*list).begin() + end);
    });
  };
  if (b < 2) return;
  cut(b / 2, b);
  cut(0, b / 2);
  for (std::int64_t i = 0; i < std::min<std::int64_t>(b, 16); ++i) cut(i, i + 1);
}

void smaller_lengths(const Problem& from, Steps* steps) {
  for (const List list : kLists) {
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
    part([](Storage& x) { x.order = Storage{}.order; });
    part([](Storage& x) { x.pad = 0; });
    part([](Storage& x) { x.gap = 0; });
    part([](Storage& x) { x.start = 0; });
    part([](Storage& x) { x.flip = 0; });
    part([](Storage& x) { x.zero = 0; });
    part([](Storage& x) { x.wild = false; });
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

Steps steps_from(const Problem& from) {
  Steps steps;
  drop_sequences(from, &steps);
  simpler_memory(from, &steps);
  storm_kind(from).simplify(from, &steps);
  smaller_lengths(from, &steps);
  simpler_data(from, &steps);
  offer(from, &steps, [](Problem& p) { p.threads = 1; });
  offer(from, &steps, [](Problem& p) { p.lent = false; });
  offer(from, &steps, [](Problem& p) { p.sms = 0; });
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
      best = next;
      better = true;
      break;
    }
  }
  return best;
}

}  // namespace falchion::tools::storm
