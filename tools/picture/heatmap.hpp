// tools/picture/heatmap.hpp: one head's attention as an SVG picture.
#pragma once

#include <cstdint>
#include <string>

namespace falchion::tools {

struct Heatmap {
  const float* values = nullptr;  // (rows, columns), dense: query i's probability of key j
  std::int64_t rows = 0, columns = 0;
  std::string title, subtitle;
};

/// Queries go downwards and keys to the right. The colour follows the logarithm of the probability (viridis, which is
/// readable without colour vision and in grey). A side has at most 128 cells, and a cell shows the largest probability
/// in it. The picture is under 150 KB.
std::string heatmap_svg(const Heatmap& map);

}  // namespace falchion::tools
