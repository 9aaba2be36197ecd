// tools/picture/heatmap.cpp
#include "picture/heatmap.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "picture/xml.hpp"

namespace falchion::tools {
namespace {

constexpr std::int64_t kCells = 128;  // a side; 128 x 128 runs of 8 bytes stay under 150 KB
constexpr int kColours = 25;          // steps of the scale
constexpr double kDecades = 4;        // 1 down to 1e-4
constexpr double kPlot = 512, kLeft = 76, kTop = 74;
constexpr const char* kUnseen = "#e9e9e9";  // probability 0: masked

struct Rgb {
  double r, g, b;
};
constexpr Rgb kViridis[] = {{68, 1, 84},    {70, 50, 126},  {54, 92, 141},  {39, 127, 142},
                            {31, 161, 135}, {74, 193, 109}, {160, 218, 57}, {253, 231, 37}};

std::string colour(int step) {
  const double at = static_cast<double>(step) / (kColours - 1) * 7;
  const int i = std::min(static_cast<int>(at), 6);
  const double t = at - i;
  const Rgb &a = kViridis[i], &b = kViridis[i + 1];
  return fmt::format("#{:02x}{:02x}{:02x}", std::lround(a.r + t * (b.r - a.r)), std::lround(a.g + t * (b.g - a.g)),
                     std::lround(a.b + t * (b.b - a.b)));
}

/// The step of the scale, or -1 for a masked key.
int step_of(double p) {
  if (!(p > 0)) return -1;
  const double at = 1 + std::log10(p) / kDecades;  // 0 at 1e-4, 1 at 1
  return static_cast<int>(std::lround(std::clamp(at, 0.0, 1.0) * (kColours - 1)));
}

struct Grid {
  std::int64_t rows, columns;
  std::vector<int> step;  // (rows, columns)
};

/// The largest value of each cell, so that one bright key is not averaged away.
Grid downsample(const Heatmap& map) {
  Grid grid{std::min(map.rows, kCells), std::min(map.columns, kCells), {}};
  std::vector<float> largest(static_cast<std::size_t>(grid.rows * grid.columns), 0.0F);
  for (std::int64_t i = 0; i < map.rows; ++i)
    for (std::int64_t j = 0; j < map.columns; ++j) {
      float& cell =
          largest[static_cast<std::size_t>(i * grid.rows / map.rows * grid.columns + j * grid.columns / map.columns)];
      cell = std::max(cell, map.values[i * map.columns + j]);
    }
  for (const float p : largest) grid.step.push_back(step_of(p));
  return grid;
}

/// Draws one path for each colour and one stroke for each run of equal cells. That takes a tenth of the bytes that a
/// rectangle for each cell would.
std::string cells(const Grid& grid) {
  std::vector<std::string> paths(kColours);
  for (std::int64_t i = 0; i < grid.rows; ++i)
    for (std::int64_t j = 0; j < grid.columns;) {
      const int step = grid.step[static_cast<std::size_t>(i * grid.columns + j)];
      std::int64_t end = j + 1;
      while (end < grid.columns && grid.step[static_cast<std::size_t>(i * grid.columns + end)] == step) ++end;
      if (step >= 0) paths[static_cast<std::size_t>(step)] += fmt::format("M{} {}h{}", j, i, end - j);
      j = end;
    }
  std::string out = fmt::format(
      "<g transform=\"translate({},{}) scale({:.6f},{:.6f}) translate(0,.5)\" fill=\"none\" stroke-width=\"1.03\">\n",
      kLeft, kTop, kPlot / static_cast<double>(grid.columns), kPlot / static_cast<double>(grid.rows));
  for (int step = 0; step < kColours; ++step)
    if (!paths[static_cast<std::size_t>(step)].empty())
      out += fmt::format("<path stroke=\"{}\" d=\"{}\"/>\n", colour(step), paths[static_cast<std::size_t>(step)]);
  return out + "</g>\n";
}

/// 1, 2 or 5 times a power of ten, giving four to eight ticks.
std::int64_t tick_step(std::int64_t extent) {
  std::int64_t power = 1;
  for (;; power *= 10)
    for (const std::int64_t step : {power, 2 * power, 5 * power})
      if (extent <= 8 * step) return step;
}

std::string label(double x, double y, const char* anchor, const std::string& text, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more, text);
}

std::string axes(const Heatmap& map) {
  std::string out, lines;
  for (std::int64_t t = 0; t < map.columns; t += tick_step(map.columns)) {
    const double x = kLeft + kPlot * (static_cast<double>(t) + 0.5) / static_cast<double>(map.columns);
    lines += fmt::format("M{:.1f} {}v5", x, kTop + kPlot);
    out += label(x, kTop + kPlot + 20, "middle", std::to_string(t));
  }
  for (std::int64_t t = 0; t < map.rows; t += tick_step(map.rows)) {
    const double y = kTop + kPlot * (static_cast<double>(t) + 0.5) / static_cast<double>(map.rows);
    lines += fmt::format("M{} {:.1f}h-5", kLeft, y);
    out += label(kLeft - 9, y + 4, "end", std::to_string(t));
  }
  out += fmt::format(
      "<path d=\"{}\" stroke=\"#444\"/><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" "
      "stroke=\"#444\"/>\n",
      lines, kLeft, kTop, kPlot, kPlot);
  out += label(kLeft + kPlot / 2, kTop + kPlot + 42, "middle", "key: the token that is looked at");
  out += label(0, 0, "middle", "query: the token that looks",
               fmt::format(" transform=\"translate(22,{}) rotate(-90)\"", kTop + kPlot / 2).c_str());
  return out;
}

std::string scale_bar() {
  const double x = kLeft + kPlot + 26, height = 320, step = height / kColours;
  std::string out = label(x, kTop - 8, "start", "probability");
  for (int i = 0; i < kColours; ++i)
    out += fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"18\" height=\"{:.1f}\" fill=\"{}\"/>\n", x,
                       kTop + step * (kColours - 1 - i), step + 0.5, colour(i));
  const char* names[] = {"1", "0.1", "0.01", "0.001", "≤ 0.0001"};
  for (int i = 0; i < 5; ++i) out += label(x + 25, kTop + step / 2 + (height - step) * i / 4 + 4, "start", names[i]);
  out +=
      fmt::format("<rect x=\"{}\" y=\"{}\" width=\"18\" height=\"18\" fill=\"{}\"/>\n", x, kTop + height + 18, kUnseen);
  return out + label(x + 25, kTop + height + 31, "start", "not seen");
}

}  // namespace

std::string heatmap_svg(const Heatmap& map) {
  const Grid grid = downsample(map);
  std::string subtitle = map.subtitle;
  if (map.rows > grid.rows || map.columns > grid.columns)
    subtitle += fmt::format("; one cell: the largest of {:.0f} x {:.0f}",
                            std::ceil(static_cast<double>(map.rows) / static_cast<double>(grid.rows)),
                            std::ceil(static_cast<double>(map.columns) / static_cast<double>(grid.columns)));
  const double width = kLeft + kPlot + 130, height = kTop + kPlot + 58;
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
             "font-family=\"system-ui,sans-serif\" font-size=\"13\" fill=\"#222\" role=\"img\">\n<title>{2}</title>\n"
             "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n"
             "<text x=\"{3}\" y=\"30\" font-size=\"18\" font-weight=\"600\">{2}</text>\n"
             "<text x=\"{3}\" y=\"52\" fill=\"#555\">{4}</text>\n"
             "<rect x=\"{3}\" y=\"{5}\" width=\"{6}\" height=\"{6}\" fill=\"{7}\"/>\n",
             width, height, xml_text(map.title), kLeft, xml_text(subtitle), kTop, kPlot, kUnseen) +
         cells(grid) + axes(map) + scale_bar() + "</svg>\n";
}

}  // namespace falchion::tools
