// tools/roofline/plot.hpp: the plane of a roofline picture: coordinates, taken places, texts and lines.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "roofline/svg.hpp"

namespace falchion::tools::roofline {

inline constexpr double kLeft = 72, kTop = 76, kWidth = 600, kHeight = 430, kPanel = kLeft + kWidth + 26, kRight = 300;
/// kLetter is a letter's width as a share of the font's height, a little above the mean of system-ui.
inline constexpr double kFont = 12, kLetter = 0.58;

struct Box {
  double x0, y0, x1, y1;
  bool meets(const Box& o) const { return x0 < o.x1 && o.x0 < x1 && y0 < o.y1 && o.y0 < y1; }
};

/// Maps numbers to points of the picture, and remembers taken places.
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
  bool is_free(const Box& box) const;
  static Box text_box(double px, double py, const std::string& text, const std::string& anchor);

 private:
  double x0_, x1_, y0_, y1_;
  std::vector<Box> taken_;
};

/// Makes a plot whose axes reach far enough for all roofs, dots and points.
Plot make_plot(const Picture& picture);

/// Three digits of TFLOP/s, and never an exponent.
std::string tera(double flops);
std::string label(double px, double py, const std::string& text, const std::string& anchor = "start",
                  const std::string& more = "");
std::string line(double ax, double ay, double bx, double by, const std::string& style);

// The parts of the picture that are lines. Those with a Plot* take the places of their labels.
std::string axes(const Plot& plot, const Device& device);
std::string flat_roofs(const Picture& picture, Plot* plot);
/// A slope: bandwidth times intensity, up to where it meets the products' roof. The label stands below or above.
std::string slope(const Picture& picture, double rate, const std::string& name, bool below, const std::string& style,
                  Plot* plot);

}  // namespace falchion::tools::roofline
