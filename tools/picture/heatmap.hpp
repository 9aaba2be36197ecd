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

/// Queries downwards, keys to the right, colour by the logarithm of the probability (viridis: readable without colour
/// vision and in grey). At most 128 cells a side: a cell shows the largest probability in it. Under 150 KB.
std::string heatmap_svg(const Heatmap& map);

}  // namespace falchion::tools
