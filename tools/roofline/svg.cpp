// tools/roofline/svg.cpp
#include "roofline/svg.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "command/table.hpp"
#include "tool.hpp"

namespace falchion::tools::roofline {
namespace {

constexpr double kLeft = 72, kTop = 76, kWidth = 600, kHeight = 430, kPanel = kLeft + kWidth + 26, kRight = 300;
constexpr double kFont = 12, kLetter = 0.58;  // of the font's height: a generous mean of system-ui
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#7a5c00"};

struct Box {
  double x0, y0, x1, y1;
  bool meets(const Box& o) const { return x0 < o.x1 && o.x0 < x1 && y0 < o.y1 && o.y0 < y1; }
};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) continue;  // XML has no control characters
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : std::string(1, c);
  }
  return out;
}

/// Three digits of TFLOP/s, and never an exponent.
std::string tera(double flops) {
  const double x = flops * 1e-12;
  return fmt::format("{:.{}f}", x, x >= 99.95 ? 0 : x >= 9.995 ? 1 : x >= 0.9995 ? 2 : 4);
}

/// Where things are, and which places are taken.
class Plot {
 public:
  Plot(double x0, double x1, double y0, double y1) : x0_(x0), x1_(x1), y0_(y0), y1_(y1) {}

  double x(double intensity) const { return kLeft + kWidth * std::log(intensity / x0_) / std::log(x1_ / x0_); }
  double y(double flops) const { return kTop + kHeight - kHeight * std::log(flops / y0_) / std::log(y1_ / y0_); }
  double x_low() const { return x0_; }
  double x_high() const { return x1_; }
  double y_low() const { return y0_; }
  double y_high() const { return y1_; }

  void take(const Box& box) { taken_.push_back(box); }
  bool is_free(const Box& box) const {
    return box.x0 >= kLeft + 2 && box.x1 <= kLeft + kWidth - 2 && box.y0 >= kTop + 2 && box.y1 <= kTop + kHeight - 2 &&
           std::none_of(taken_.begin(), taken_.end(), [&](const Box& other) { return box.meets(other); });
  }
  static Box text_box(double px, double py, const std::string& text, const std::string& anchor) {
    const double w = kFont * kLetter * static_cast<double>(display_width(text));
    const double left = anchor == "end" ? px - w : anchor == "middle" ? px - w / 2 : px;
    return {left, py - kFont * 0.85, left + w, py + kFont * 0.3};
  }

 private:
  double x0_, x1_, y0_, y1_;
  std::vector<Box> taken_;
};

std::string label(double px, double py, const std::string& text, const std::string& anchor = "start",
                  const std::string& more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", px, py, anchor, more,
                     escaped(text));
}

std::string line(double ax, double ay, double bx, double by, const std::string& style) {
  return fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" fill=\"none\" {}/>\n", ax, ay, bx, by, style);
}

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

Plot make_plot(const Picture& picture) {
  const Device& device = picture.device;
  const double ridge = device.ridge(picture.element_bytes), top = device.flops(picture.element_bytes);
  double x0 = ridge / 16, x1 = ridge * 8, y0 = x0 * device.hbm, y1 = top;
  const auto see = [&](double intensity, double flops) {
    x0 = std::min(x0, intensity / 1.5), x1 = std::max(x1, intensity * 1.5);
    y0 = std::min(y0, flops / 1.5), y1 = std::max(y1, flops);
  };
  for (const Case& one : picture.cases) {
    see(one.work.intensity(), one.work.flop / bound(device, one.work).least);
    if (device.l2 > 0) x0 = std::min(x0, one.work.l2_intensity() / 1.5);
    if (one.work.exps > 0) y1 = std::max(y1, std::min(4 * top, device.exps * one.work.flop / one.work.exps));
  }
  for (const Point& p : picture.points) see(p.intensity, p.flops);
  return {x0, x1, std::max(y0, y1 * 1e-6), y1 * 2};
}

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
  std::map<int, double> exps;  // by flop an exponential, 2 (d + d_v)
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

/// A slope: bandwidth times intensity, up to where it meets the products' roof. The label stands below or above.
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
  for (double t = 0; t < 1; t += 0.01) {  // no number of a dot shall stand on the line
    const double at = from * std::pow(to / from, t), px = plot->x(at), py = plot->y(at * rate);
    plot->take({px - 2, py - 2, px + 2, py + 2});
  }
  return out;
}

struct Spot {
  double x, y;
};
Spot spot_of(const Picture& picture, const Case& one, const Plot& plot) {
  return {plot.x(one.work.intensity()), plot.y(one.work.flop / bound(picture.device, one.work).least)};
}

/// Does the L2 move other bytes than memory?
bool ringed(const Device& device, const Case& one) {
  return device.l2 > 0 && std::abs(one.work.l2_intensity() / one.work.intensity() - 1) > 0.05;
}
std::string ring(double px, double py) {
  return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#fff\" stroke=\"#222\"/>\n", px, py);
}

/// The number of a dot: as near as there is room, with a leader.
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
      return std::hypot(other.first.x - at.x, other.first.y - at.y) < 4;
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

/// What the numbers and the markers mean. height: how far down it reaches.
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
  for (std::size_t i = 0; i < series.size(); ++i, y += 19)
    out += marker(i, kPanel + 8, y - 4) + label(kPanel + 22, y, series[i]);
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
             width, height, kFont, escaped(picture.title), kLeft,
             escaped(fmt::format("Left of {:.0f} FLOP/B memory is the limit, right of it the {}.",
                                 device.ridge(picture.element_bytes), device.math_name))) +
         body + "</svg>\n";
}

}  // namespace falchion::tools::roofline
