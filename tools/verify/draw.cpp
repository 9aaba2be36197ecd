// tools/verify/draw.cpp: see draw.hpp.
#include "draw.hpp"

#include <algorithm>
#include <cmath>

#include "kind.hpp"

namespace falchion::tools::storm {
namespace {

/// Lengths at which tiles of some kernel end.
constexpr std::int64_t kEdges[] = {8, 16, 32, 64, 80, 96, 112, 128, 176, 192, 256, 384, 512, 1024, 2048, 4096, 8192};

}  // namespace

std::int64_t Dice::log_between(std::int64_t least, std::int64_t most) {
  if (most <= least) return least;
  const double low = std::log2(static_cast<double>(least) + 1), high = std::log2(static_cast<double>(most) + 2);
  const auto x = static_cast<std::int64_t>(std::exp2(low + uniform() * (high - low))) - 1;
  return std::clamp(x, least, most);
}

std::int64_t draw_length(Dice* dice, std::int64_t most) {
  const double kind = dice->uniform();
  if (kind < 0.03) return 0;
  if (kind < 0.1) return std::min<std::int64_t>(1, most);
  if (kind < 0.5) {
    std::int64_t edges = 0;
    for (const std::int64_t edge : kEdges) edges += edge - 1 <= most ? 1 : 0;
    if (edges > 0) return std::min(most, kEdges[dice->between(0, edges - 1)] + dice->between(-1, 1));
  }
  return dice->log_between(1, std::max<std::int64_t>(most, 1));
}

std::int64_t draw_head_dim(Dice* dice, std::int64_t most) {
  const std::int64_t d = dice->chance(0.7)
                             ? dice->pick<std::int64_t>({8, 16, 32, 40, 64, 64, 80, 96, 128, 128, 192, 256})
                             : dice->between(1, 256);
  return std::clamp<std::int64_t>(d, 1, most);
}

std::int64_t draw_group(Dice* dice) {
  return dice->pick<std::int64_t>({1, 1, 1, 1, 2, 2, 3, 4, 4, 5, 6, 7, 8, 8, 12, 16});
}

Storage draw_storage(Dice* dice, bool rows, bool input) {
  Storage out;
  if (dice->chance(0.5)) return out;
  const double kind = dice->uniform();
  if (kind < 0.3) {
    out.order = "0213";
  } else if (kind < 0.45) {
    out.order = rows ? dice->pick<const char*>({"1023", "2013", "1203", "2103"})
                     : dice->pick<const char*>({"0132", "3210", "2301", "1032"});
  }
  if (dice->chance(0.35)) out.pad = dice->pick<std::int64_t>({8, 8, 64, 1, 3, 5, 16});
  if (dice->chance(0.25)) out.gap = dice->pick<std::int64_t>({8, 128, 1, 3});
  if (dice->chance(0.3)) out.start = dice->pick<std::int64_t>({8, 64, 1, 2, 3, 4, 7});
  if (dice->chance(0.1)) out.wild = true;
  if (input && dice->chance(0.12)) out.flip = 1U << dice->between(0, rows ? 2 : 3);
  if (input && dice->chance(0.12)) out.zero = 1U << dice->between(0, rows ? 2 : 3);
  out.flip &= ~out.zero;
  return out;
}

std::vector<std::int64_t> draw_lengths(Dice* dice, std::int64_t b, std::int64_t most) {
  const std::int64_t kind = dice->between(0, 5), full = dice->between(0, std::max<std::int64_t>(b - 1, 0));
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < b; ++i) {
    std::int64_t n = dice->chance(0.5) ? dice->between(0, most) : draw_length(dice, most);
    if (kind == 1 && !dice->chance(0.25)) n = 0;  // three quarters are empty
    if (kind == 2 && i != full) n = 0;            // but one
    if (kind == 3) n = most;
    if (kind == 4 && dice->chance(0.1)) n = 0;
    out.push_back(std::min(n, most));
  }
  if (kind == 2 && dice->chance(0.2)) std::fill(out.begin(), out.end(), 0);
  return out;
}

Problem draw_problem(std::uint64_t seed, std::uint64_t index, Op op, const std::vector<DType>& types, const Mix& mix) {
  Dice dice(random_bits(seed, static_cast<std::uint64_t>(op)), index);
  Problem out;
  out.op = op;
  out.data.seed = dice.bits() % 1000000;
  const DType dtype = dice.pick(types);
  out.change([&](auto& a) { a.dtype = dtype; });
  out.threads = static_cast<int>(dice.pick({1, 1, 2, 3, 4}));
  out.lent = dice.chance(0.7);
  // From the seed of the data, so that problems without a cache are those that they were before there were caches.
  out.attention.cache = op == Op::attention && Dice(out.data.seed, 1).chance(mix.caches);
  // On few SMs the CTAs of small problems, too, go on to other tiles.
  Dice of_sms(out.data.seed, 3);
  if (of_sms.chance(0.3)) out.sms = static_cast<int>(of_sms.between(1, 9));
  Dice of_eight(out.data.seed, 2);
  if (op == Op::attention && !out.attention.cache && !mix.bytes.empty() && of_eight.chance(mix.eight))
    out.attention.dtype = of_eight.pick(mix.bytes);
  storm_kind(out).draw(&dice, &out);
  tidy(&out);
  return out;
}

}  // namespace falchion::tools::storm
