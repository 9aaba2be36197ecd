// tools/roofline/plot.cpp
#include "roofline/plot.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "command/table.hpp"
#include "picture/xml.hpp"

namespace falchion::tools::roofline {

bool Plot::is_free(const Box& box) const {
  return box.x0 >= kLeft + 2 && box.x1 <= kLeft + kWidth - 2 && box.y0 >= kTop + 2 && box.y1 <= kTop + kHeight - 2 &&
         std::none_of(taken_.begin(), taken_.end(), [&](const Box& other) { return box.meets(other); });
}

Box Plot::text_box(double px, double py, const std::string& text, const std::string& anchor) {
  const double w = kFont * kLetter * static_cast<double>(display_width(text));
  const double left = anchor == "end" ? px - w : anchor == "middle" ? px - w / 2 : px;
  return {left, py - kFont * 0.85, left + w, py + kFont * 0.3};
}

Plot make_plot(const Picture& picture) {
  const Device& device = picture.device;
  const double ridge = device.ridge(picture.element_bytes), top = device.flops(picture.element_bytes);
  double x0 = ridge / 16, x1 = ridge * 8, y0 = x0 * device.hbm, y1 = top;
  const auto see = [&](double intensity, double flops) {
    x0 = std::min(x0, intensity / 1.5);
    x1 = std::max(x1, intensity * 1.5);
    y0 = std::min(y0, flops / 1.5);
    y1 = std::max(y1, flops);
  };
  for (const Case& one : picture.cases) {
    see(one.work.intensity(), one.work.flop / bound(device, one.work).least);
    if (device.l2 > 0) x0 = std::min(x0, one.work.l2_intensity() / 1.5);
    if (one.work.exps > 0) y1 = std::max(y1, std::min(4 * top, device.exps * one.work.flop / one.work.exps));
  }
  for (const Point& p : picture.points) see(p.intensity, p.flops);
  return {x0, x1, std::max(y0, y1 * 1e-6), y1 * 2};
}

std::string tera(double flops) {
  const double x = flops * 1e-12;
  return fmt::format("{:.{}f}", x, x >= 99.95 ? 0 : x >= 9.995 ? 1 : x >= 0.9995 ? 2 : 4);
}

std::string label(double px, double py, const std::string& text, const std::string& anchor, const std::string& more) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", px, py, anchor, more,
                     xml_text(text));
}

std::string line(double ax, double ay, double bx, double by, const std::string& style) {
  return fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" fill=\"none\" {}/>\n", ax, ay, bx, by, style);
}

}  // namespace falchion::tools::roofline
