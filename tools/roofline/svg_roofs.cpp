// tools/roofline/svg_roofs.cpp: the axes of the picture, and the lines of its roofs.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "roofline/plot.hpp"

namespace falchion::tools::roofline {
namespace {

/// A horizontal roof: from the slope of memory to the right edge.
struct Flat {
  double flops;
  std::string name;
  bool dotted;
};
constexpr const char* kSolid = "stroke=\"#222\" stroke-width=\"2.2\"";
constexpr const char* kDotted = "stroke=\"#e69f00\" stroke-width=\"2.2\" stroke-dasharray=\"2 5\"";

std::vector<Flat> flats(const Picture& picture) {
  const Device& device = picture.device;
  const double top = device.flops(picture.element_bytes);
  std::vector<Flat> out = {{top, fmt::format("{} {} TFLOP/s", device.math_name, tera(top)), false}};
  std::map<int, double> exps;  // The key is flop for each exponential, 2 (d + d_v).
  if (device.exps > 0)
    for (const Case& one : picture.cases)
      if (one.work.exps > 0)
        exps[static_cast<int>(std::lround(one.work.flop / one.work.exps))] = one.work.flop / one.work.exps;
  for (const auto& [key, flop] : exps)
    if (flop * device.exps <= 4 * top)
      out.push_back(
          {flop * device.exps, fmt::format("exp units, d {:g}: {}", flop / 4, tera(flop * device.exps)), true});
  std::sort(out.begin(), out.end(), [](const Flat& a, const Flat& b) { return a.flops > b.flops; });
  return out;
}

}  // namespace

std::string axes(const Plot& plot, const Device& device) {
  std::string grid, out;
  int step = 1;
  while (std::log2(plot.x_high() / plot.x_low()) / step > 10) ++step;
  for (int i = static_cast<int>(std::ceil(std::log2(plot.x_low()))); std::exp2(i) < plot.x_high(); ++i) {
    if (i % step != 0) continue;
    const double px = plot.x(std::exp2(i));
    grid += fmt::format("M{:.1f} {}v{}", px, kTop, kHeight);
    out += label(px, kTop + kHeight + 18, fmt::format("{:g}", std::exp2(i)), "middle");
  }
  const bool few = std::log10(plot.y_high() / plot.y_low()) < 4;
  for (int i = static_cast<int>(std::floor(std::log10(plot.y_low()))); std::pow(10.0, i) < plot.y_high(); ++i)
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double value = digit * std::pow(10.0, i);
      if (value < plot.y_low() || value > plot.y_high() || (digit > 1 && !few)) continue;
      grid += fmt::format("M{} {:.1f}h{}", kLeft, plot.y(value), kWidth);
      out += label(kLeft - 7, plot.y(value) + 4, fmt::format("{:g}", value * 1e-12), "end");
    }
  return fmt::format("<path d=\"{}\" stroke=\"#e2e2e2\" fill=\"none\"/>\n", grid) +
         fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#444\"/>\n", kLeft,
                     kTop, kWidth, kHeight) +
         out +
         label(kLeft + kWidth / 2, kTop + kHeight + 40, "FLOP/B: work for each byte of " + device.memory_name,
               "middle") +
         label(0, 0, "TFLOP/s", "middle",
               fmt::format(" transform=\"translate(20,{}) rotate(-90)\"", kTop + kHeight / 2));
}

std::string flat_roofs(const Picture& picture, Plot* plot) {
  std::string lines, dotted, labels;
  const auto draw = [&](const Flat& flat) {
    const double y = plot->y(flat.flops), x = plot->x(std::max(plot->x_low(), flat.flops / picture.device.hbm));
    (flat.dotted ? dotted : lines) += line(x, y, kLeft + kWidth, y, flat.dotted ? kDotted : kSolid);
  };
  const std::vector<Flat> all = flats(picture);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double py = plot->y(all[i].flops);
    draw(all[i]);
    // Roofs so close that their labels would touch share one.
    std::string text = all[i].name;
    while (i + 1 < all.size() && plot->y(all[i + 1].flops) - py < 17) {
      draw(all[++i]);
      text = all[i].dotted ? fmt::format("{} = {}", text, all[i].name) : fmt::format("{} = {}", all[i].name, text);
    }
    labels += label(kLeft + kWidth - 6, py - 6, text, "end");
    plot->take(Plot::text_box(kLeft + kWidth - 6, py - 6, text, "end"));
  }
  return lines + dotted + labels;
}

std::string slope(const Picture& picture, double rate, const std::string& name, bool below, const std::string& style,
                  Plot* plot) {
  const double top = picture.device.flops(picture.element_bytes);
  const double from = std::max(plot->x_low(), plot->y_low() / rate), to = std::min(top / rate, plot->x_high());
  if (from >= to) return "";
  std::string out = line(plot->x(from), plot->y(from * rate), plot->x(to), plot->y(to * rate), style);
  for (double t = 0.9; t > 0.05; t -= 0.05) {
    const double at = from * std::pow(to / from, t);
    const double px = plot->x(at) + (below ? 9 : -9), py = plot->y(at * rate) + (below ? 12 : -5);
    const std::string anchor = below ? "start" : "end";
    const Box box = Plot::text_box(px, py, name, anchor);
    if (!plot->is_free(box)) continue;
    plot->take(box);
    out += label(px, py, name, anchor);
    break;
  }
  for (double t = 0; t < 1; t += 0.01) {  // Keeps the numbers of the dots off this line.
    const double at = from * std::pow(to / from, t), px = plot->x(at), py = plot->y(at * rate);
    plot->take({px - 2, py - 2, px + 2, py + 2});
  }
  return out;
}

}  // namespace falchion::tools::roofline
