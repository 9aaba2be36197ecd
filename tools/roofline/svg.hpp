// tools/roofline/svg.hpp: the roofline as an SVG picture: FLOP/s over FLOP/B, both logarithmic.
#pragma once

#include <string>
#include <vector>

#include "roofline/model.hpp"
#include "roofline/points.hpp"

namespace falchion::tools::roofline {

struct Picture {
  Device device;
  int element_bytes = 2;
  std::string title;
  std::vector<Case> cases;    // a numbered dot each, at what its slowest roof allows; at most kMostDots
  std::vector<Point> points;  // measured: a marker shape each series, full or hollow; at most kMostSeries of them
};
constexpr std::size_t kMostDots = 16, kMostSeries = 12;

/// Lines differ by dash and by label, and markers by shape and filling, so no colour is needed to read the picture. No
/// two texts overlap. Throws UsageError if there is no space for all dots or series.
std::string roofline_svg(const Picture& picture);

}  // namespace falchion::tools::roofline
