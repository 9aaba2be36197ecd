// src/plan/gemm_gpu_few.cpp: how Hopper's GEMM kernel for few rows cuts a problem. The CTAs of a cluster have tiles
// side by side and parts of k, and clusters walk over tiles, so all SMs should load the same number of bytes.
#include "plan/gemm_gpu_few.hpp"

#include <algorithm>
#include <cstdint>

#include "base/divide.hpp"
#include "plan/constants.hpp"
#include "plan/read_rate.hpp"
#include "plan/text.hpp"
#include "tiles/gemm/sm90_few.hpp"

namespace falchion {
namespace {

constexpr sm90::GemmFewTiles kTile = sm90::gemm_few_tiles();

std::int64_t blocks_of_k(const Gemm& g) { return g.alpha == 0 ? 0 : ceil_div(g.k, kTile.depth); }

/// How many clusters run at a time. Their CTAs share a GPC of 16 or 18 SMs, so some SMs are left idle: an H100 with 132
/// of them holds 66 clusters of 2, but 39 of 3, 30 of 4 and 15 of 8. One too many would cost a round, so this returns
/// 39, 29 and 14.
std::int64_t clusters_at_once(const cuda::Device& device, int cluster) {
  const int sms = cluster > 2 ? device.sms * 9 / 10 : device.sms;
  return std::max(sms / cluster, 1);
}

/// The estimated microseconds of a cut into tiles of cut.columns, for so many groups of tiles side by side.
double microseconds(const Gemm& g, std::int64_t groups, const GemmGpuCut& cut, const cuda::Device& device) {
  const double line = 2.0 * kTile.depth, b = line * cut.columns;  // bytes of a block of k
  const auto rows = static_cast<double>(std::min<std::int64_t>(g.m, kTile.rows));
  const double a = line * rows / cut.neighbours;
  const double known = read_rate_of(device.name) / 1e6 / std::max(device.sms, 1);
  const double from_memory = known > 0 ? known : tiles::kFewFromMemory;
  const double block = tiles::kFewBlock + std::max({b / from_memory, (a + b) / tiles::kFewFromL2, tiles::kFewLeast});
  const auto rounds = static_cast<double>(ceil_div(groups, clusters_at_once(device, cut.splits * cut.neighbours)));
  const auto blocks = static_cast<double>(ceil_div(blocks_of_k(g), cut.splits));
  const double exchange = cut.splits > 1 ? tiles::kFewExchange + tiles::kFewExchangeRow * rows : 0;
  return tiles::kGemmTile + rounds * (blocks * block + exchange);
}

/// The cut into tiles of so many columns, and clusters for so many parts and tiles side by side. No tile: the grid
/// would be too large.
GemmGpuCut cut_into(const Gemm& g, int splits, int neighbours, int columns, const cuda::Device& device) {
  const std::int64_t tiles_m = ceil_div(g.m, kTile.rows), tiles_n = ceil_div(g.n, columns), blocks = blocks_of_k(g);
  if (static_cast<double>(g.batch) * static_cast<double>(tiles_m) * static_cast<double>(tiles_n) > INT32_MAX) return {};
  GemmGpuCut out{.items = g.batch * tiles_m * tiles_n, .splits = splits};
  out.whole = splits == 1 ? out.items : 0;
  out.depth = std::max<std::int64_t>(ceil_div(blocks, splits), 1) * kTile.depth;
  out.early = true;
  out.columns = columns;
  out.neighbours = neighbours;
  out.microseconds = microseconds(g, g.batch * tiles_m * ceil_div(tiles_n, neighbours), out, device);
  return out;
}

}  // namespace

bool is_few_of_hopper(const Variant& variant) {
  return variant.backend == Backend::sm90 && variant.is("gemm") && variant.kind == VariantKind::few;
}

/// Small clusters and wide tiles are tried first, and a later candidate has to be faster by more than the error of the
/// model.
GemmGpuCut cut_few(const Gemm& g, const cuda::Device& device) {
  GemmGpuCut best;
  for (int ctas = 1; ctas <= tiles::kFewMostCtas; ++ctas)
    for (const int neighbours : {1, 2}) {
      const int splits = ctas / neighbours;
      if (ctas % neighbours != 0 || (splits > 1 && blocks_of_k(g) < splits * tiles::kGemmLeastBlocks)) continue;
      for (int columns = kTile.columns; columns >= tiles::kFewLeastColumns; columns -= tiles::kFewColumnStep) {
        const GemmGpuCut other = cut_into(g, splits, neighbours, columns, device);
        const bool better = best.items == 0 || other.microseconds <= tiles::kFewBetter * best.microseconds;
        if (other.items > 0 && better) best = other;
      }
    }
  return best;
}

}  // namespace falchion
