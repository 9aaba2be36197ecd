// src/plan/gemm_gpu_few.cpp: how Hopper's GEMM kernel for few rows cuts a problem. Each CTA of a cluster has a part of
// k, and clusters walk over tiles, so all SMs should load the same number of bytes.
#include "plan/gemm_gpu_few.hpp"

#include <algorithm>
#include <cstdint>

#include "base/divide.hpp"
#include "plan/constants.hpp"
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

/// The estimated microseconds of a cut.
double microseconds(const Gemm& g, std::int64_t items, int columns, int cluster, const cuda::Device& device) {
  const double line = 2.0 * kTile.depth, b = line * columns;  // bytes of a block of k
  const double a = line * static_cast<double>(std::min<std::int64_t>(g.m, kTile.rows));
  const double block =
      tiles::kFewBlock + std::max({b / tiles::kFewFromMemory, (a + b) / tiles::kFewFromL2, tiles::kFewLeast});
  const auto rounds = static_cast<double>(ceil_div(items, clusters_at_once(device, cluster)));
  const auto blocks = static_cast<double>(ceil_div(blocks_of_k(g), cluster));
  const double exchange = cluster > 1 ? tiles::kFewExchange + tiles::kFewExchangeCta * cluster : 0;
  return tiles::kGemmTile + rounds * (blocks * block + exchange);
}

}  // namespace

bool is_few_of_hopper(const Variant& variant) {
  return variant.backend == Backend::sm90 && variant.is("gemm") && variant.kind == VariantKind::few;
}

/// Small clusters and wide tiles are tried first, and a later candidate has to be faster by more than the error of the
/// model.
GemmGpuCut cut_few(const Gemm& g, const cuda::Device& device) {
  GemmGpuCut best;
  const std::int64_t tiles_m = ceil_div(g.m, kTile.rows), blocks = blocks_of_k(g);
  for (int cluster = 1; cluster <= tiles::kFewMostCtas; ++cluster) {
    if (cluster > 1 && blocks < cluster * tiles::kGemmLeastBlocks) break;
    for (int columns = kTile.columns; columns >= tiles::kFewLeastColumns; columns -= tiles::kFewLeastColumns) {
      const std::int64_t tiles_n = ceil_div(g.n, columns);
      const double all = static_cast<double>(g.batch) * static_cast<double>(tiles_m) * static_cast<double>(tiles_n);
      if (all > INT32_MAX) break;
      const std::int64_t items = g.batch * tiles_m * tiles_n;
      const double time = microseconds(g, items, columns, cluster, device);
      if (best.items > 0 && time > tiles::kFewBetter * best.microseconds) continue;
      best.splits = cluster;
      best.depth = std::max<std::int64_t>(ceil_div(blocks, cluster), 1) * kTile.depth;
      best.items = items;
      best.whole = cluster == 1 ? items : 0;
      best.microseconds = time;
      best.early = true;
      best.columns = columns;
    }
  }
  return best;
}

}  // namespace falchion
