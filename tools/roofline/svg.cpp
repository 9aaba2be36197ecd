// tools/roofline/svg.cpp: the dots and markers of the picture, the panel beside it, and the whole.
#include "roofline/svg.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "picture/xml.hpp"
#include "roofline/plot.hpp"
#include "tool.hpp"

namespace falchion::tools::roofline {
namespace {

constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#7a5c00"};

/// A marker of a measured series: six shapes, full or hollow.
std::string marker(std::size_t series, double px, double py) {
  const char* shapes[] = {"M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
                          "M-4-4h8v8h-8z",
                          "M0-5.2L5 3.8h-10z",
                          "M0-5.6L5.6 0 0 5.6-5.6 0z",
                          "M0 5.2L5-3.8h-10z",
                          "M-5 0h10M0-5v10"};
  const std::size_t shape = series / 2 % 6;
  const char* colour = kColours[shape];
  const bool hollow = series % 2 == 1;
  return fmt::format(
      "<path transform=\"translate({:.1f},{:.1f})\" d=\"{}{}\" fill=\"{}\" stroke=\"{}\" stroke-width=\"1.5\"/>\n", px,
      py, shapes[shape], shape == 5 && hollow ? "M-4-4L4 4M-4 4L4-4" : "", hollow ? "#fff" : colour, colour);
}

/// Numbers in names in their own order: b 4 before b 16.
bool natural_less(const std::string& a, const std::string& b) {
  std::size_t i = 0, j = 0;
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto number = [&](const std::string& text, std::size_t* at) {
    const std::size_t from = *at;
    while (*at < text.size() && digit(text[*at])) ++*at;
    return text.substr(from, *at - from);
  };
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      const std::string x = number(a, &i), y = number(b, &j);
      if (x != y) return x.size() != y.size() ? x.size() < y.size() : x < y;
    } else if (a[i++] != b[j++]) {
      return a[i - 1] < b[j - 1];
    }
  }
  return j < b.size() && i == a.size();
}

std::vector<std::string> series_of(const Picture& picture) {
  std::set<std::string> names;
  for (const Point& p : picture.points) names.insert(p.series);
  std::vector<std::string> out(names.begin(), names.end());
  std::stable_sort(out.begin(), out.end(), natural_less);
  return out;
}

struct Spot {
  double x, y;
};
Spot spot_of(const Picture& picture, const Case& one, const Plot& plot) {
  return {plot.x(one.work.intensity()), plot.y(one.work.flop / bound(picture.device, one.work).least)};
}

/// Whether the L2 moves other bytes than memory.
bool ringed(const Device& device, const Case& one) {
  return device.l2 > 0 && std::abs(one.work.l2_intensity() / one.work.intensity() - 1) > 0.05;
}
std::string ring(double px, double py) {
  return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#fff\" stroke=\"#222\"/>\n", px, py);
}

/// Places the number of a dot as near as possible, with a leader.
std::string number(const std::string& text, double px, double py, Plot* plot) {
  for (double radius = 15; radius < 400; radius += 6)
    for (const double angle : {0.25, 0.4, 0.1, 0.6, 0.75, 0.9, 0.0, 0.5}) {  // of a turn; down and right first
      const double a = 2 * M_PI * angle, x = px + radius * std::cos(a), y = py + radius * std::sin(a) + 4;
      const Box box = Plot::text_box(x, y, text, "middle");
      if (!plot->is_free(box)) continue;
      plot->take(box);
      const double short_of = radius - 8;
      return line(px, py, px + short_of * std::cos(a), py + short_of * std::sin(a), "stroke=\"#222\"") +
             label(x, y, text, "middle", " font-weight=\"700\"");
    }
  return "";
}

std::string dots(const Picture& picture, Plot* plot) {
  std::string rings, numbers, out;
  std::vector<std::pair<Spot, std::string>> named;  // dots that lie on one another share a label
  for (std::size_t i = 0; i < picture.cases.size(); ++i) {
    const Spot at = spot_of(picture, picture.cases[i], *plot);
    if (ringed(picture.device, picture.cases[i])) {
      const double l2 = plot->x(picture.cases[i].work.l2_intensity());
      rings += line(at.x, at.y, l2, at.y, "stroke=\"#555\" stroke-dasharray=\"1 3\"") + ring(l2, at.y);
    }
    out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"#222\" stroke=\"#fff\"/>\n", at.x, at.y);
    const auto same = std::find_if(named.begin(), named.end(), [&](const auto& other) {
      const double x = other.first.x - at.x, y = other.first.y - at.y;
      return x * x + y * y < 4 * 4;  // not std::hypot, whose newest form asks for glibc 2.35
    });
    if (same == named.end()) {
      named.emplace_back(at, std::to_string(i + 1));
    } else {
      same->second += ", " + std::to_string(i + 1);
    }
  }
  for (const auto& [at, text] : named) numbers += number(text, at.x, at.y, plot);
  return rings + numbers + out;
}

std::string points(const Picture& picture, const std::vector<std::string>& series, const Plot& plot) {
  std::string out;
  for (const Point& p : picture.points) {
    const auto at = std::find(series.begin(), series.end(), p.series) - series.begin();
    if (p.flops > plot.y_low()) out += marker(static_cast<std::size_t>(at), plot.x(p.intensity), plot.y(p.flops));
  }
  return out;
}

/// The legend of the numbers and the markers. height: its lower end.
std::string panel(const Picture& picture, const std::vector<std::string>& series, double* height) {
  double y = kTop + 6;
  std::string out;
  const auto heading = [&](const char* text) {
    out += label(kPanel, y, text, "start", " font-weight=\"600\"");
    y += 20;
  };
  if (!picture.cases.empty()) heading("The most that the roofs allow");
  for (std::size_t i = 0; i < picture.cases.size(); ++i) {
    const Work& work = picture.cases[i].work;
    const Bound times = bound(picture.device, work);
    out += label(kPanel + 14, y, std::to_string(i + 1), "end", " font-weight=\"700\"") +
           label(kPanel + 22, y, picture.cases[i].name) +
           label(kPanel + 22, y + 14,
                 fmt::format("{} TFLOP/s: {}", tera(work.flop / times.least), binds_text(picture.device, times)),
                 "start", " fill=\"#555\"");
    y += 33;
  }
  const auto has_ring = [&](const Case& one) { return ringed(picture.device, one); };
  if (std::any_of(picture.cases.begin(), picture.cases.end(), has_ring)) {
    out += ring(kPanel + 8, y - 4) + label(kPanel + 22, y, "ring: the same, for each byte of the L2");
    y += 26;
  }
  y += 6;
  if (!series.empty()) heading("Measured");
  for (std::size_t i = 0; i < series.size(); ++i) {
    out += marker(i, kPanel + 8, y - 4) + label(kPanel + 22, y, series[i]);
    y += 19;
  }
  *height = y;
  return out;
}

}  // namespace

std::string roofline_svg(const Picture& picture) {
  const std::vector<std::string> series = series_of(picture);
  if (picture.cases.size() > kMostDots)
    throw UsageError{fmt::format("--format svg: {} shapes, at most {}", picture.cases.size(), kMostDots)};
  if (series.size() > kMostSeries)
    throw UsageError{fmt::format("--points: {} kinds of points in one picture, at most {}; --match takes fewer",
                                 series.size(), kMostSeries)};
  Plot plot = make_plot(picture);
  for (const Case& one : picture.cases) {
    const Spot at = spot_of(picture, one, plot);
    plot.take({at.x - 6, at.y - 6, at.x + 6, at.y + 6});
  }
  for (const Point& p : picture.points) {
    const double x = plot.x(p.intensity), y = plot.y(p.flops);
    plot.take({x - 6, y - 6, x + 6, y + 6});
  }
  const Device& device = picture.device;
  std::string body = axes(plot, device) + flat_roofs(picture, &plot);
  body += slope(picture, device.hbm, fmt::format("{} {:.4g} TB/s", device.memory_name, device.hbm * 1e-12), true,
                "stroke=\"#222\" stroke-width=\"2.2\"", &plot);
  if (device.l2 > 0)
    body += slope(picture, device.l2, fmt::format("L2 {:.3g} TB/s", device.l2 * 1e-12), false,
                  "stroke=\"#0b5394\" stroke-width=\"1.8\" stroke-dasharray=\"9 4\"", &plot);
  body += points(picture, series, plot) + dots(picture, &plot);
  double reach = 0;
  body += panel(picture, series, &reach);
  const double width = kPanel + kRight, height = std::max(kTop + kHeight + 58, reach + 10);
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1:.0f}\" width=\"{0}\" height=\"{1:.0f}\" "
             "font-family=\"system-ui,sans-serif\" font-size=\"{2}\" fill=\"#222\" role=\"img\">\n<title>{3}</title>\n"
             "<rect width=\"{0}\" height=\"{1:.0f}\" fill=\"#fff\"/>\n"
             "<text x=\"{4}\" y=\"30\" font-size=\"18\" font-weight=\"600\">{3}</text>\n"
             "<text x=\"{4}\" y=\"52\" fill=\"#555\">{5}</text>\n",
             width, height, kFont, xml_text(picture.title), kLeft,
             xml_text(fmt::format("Left of {:.0f} FLOP/B memory is the limit, right of it the {}.",
                                  device.ridge(picture.element_bytes), device.math_name))) +
         body + "</svg>\n";
}

}  // namespace falchion::tools::roofline
