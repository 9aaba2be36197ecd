// tools/layout/svg.cpp: a figure of layouts as SVG.
#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "layout/picture.hpp"
#include "picture/xml.hpp"

namespace falchion::tools {
namespace {

constexpr int kMargin = 32, kTop = 64, kCell = 34, kSmall = 4;  // pixels
constexpr const char* kUnused = "#f7f7f7";
constexpr const char* kInk = "#222";

/// How large a cell of the figure is: small ones have no text.
int cell_size(const Figure& figure) {
  if (figure.compact) return kSmall;
  for (const Picture& picture : figure.pictures)
    if (picture.is_heat_map()) return kSmall;
  return kCell;
}

/// The colour of an offset: light at the first, dark at the last. It is one hue, so that every eye sees the order.
std::string heat(std::int64_t offset, std::int64_t most) {
  const int step = static_cast<int>(std::clamp<std::int64_t>(most > 0 ? offset * 63 / most : 0, 0, 63));
  return fmt::format("#{:02x}{:02x}{:02x}", 247 - 239 * step / 63, 251 - 203 * step / 63, 255 - 148 * step / 63);
}

/// A row of cells is one line of the file.
void rects(const Picture& picture, int size, std::string* out) {
  std::int64_t most = 0;
  for (const Cell& cell : picture.cells) most = std::max(most, cell.offset);
  const bool by_offset = picture.is_heat_map() && picture.kind == Picture::Kind::offsets;
  std::size_t at = 0;
  for (std::int64_t i = 0; i < picture.shown_rows; ++i) {
    for (std::int64_t j = 0; j < picture.shown_columns; ++j, ++at) {
      const int pastel = pastel_of(picture, picture.cells[at]);
      const bool asleep = picture.kind == Picture::Kind::banks && picture.cells[at].thread < 0;
      const std::string fill = by_offset    ? heat(picture.cells[at].offset, most)
                               : pastel < 0 ? kUnused
                                            : kPastels[pastel];
      *out += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"{}/>", j * size, i * size,
                          size, size, fill, asleep ? " fill-opacity=\".3\"" : "");
    }
    *out += '\n';
  }
}

void labels(const Picture& picture, std::string* out) {
  std::size_t at = 0;
  for (std::int64_t i = 0; i < picture.shown_rows; ++i) {
    for (std::int64_t j = 0; j < picture.shown_columns; ++j, ++at) {
      const std::string label = label_of(picture, picture.cells[at]);
      const std::int64_t x = j * kCell + kCell / 2, y = i * kCell + kCell / 2;
      const std::size_t feed = label.find('\n');
      if (feed == std::string::npos)
        *out += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>", x, y + 4, label);
      else
        *out += fmt::format("<text x=\"{0}\" y=\"{1}\">{2}<tspan x=\"{0}\" dy=\"13\">{3}</tspan></text>", x, y - 3,
                            label.substr(0, feed), label.substr(feed + 1));
    }
    *out += '\n';
  }
}

/// The numbers of rows and columns, and the outlines of conflicting cells above everything.
void rim(const Picture& picture, int size, std::string* out) {
  const std::int64_t width = picture.shown_columns * size, height = picture.shown_rows * size;
  if (size == kCell) {
    *out += "<g fill=\"#666\">\n";
    for (std::int64_t i = 0; i < picture.shown_rows; ++i)
      *out += fmt::format("<text x=\"-12\" y=\"{}\">{}</text>", i * size + size / 2 + 4, i);
    *out += '\n';
    for (std::int64_t j = 0; j < picture.shown_columns; ++j)
      *out += fmt::format("<text x=\"{}\" y=\"-6\">{}</text>", j * size + size / 2, j);
    *out += "\n</g>\n";
  }
  *out += fmt::format("<rect width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"{}\"/>\n", width, height, kInk);
  std::string outlines;
  for (std::size_t at = 0; at < picture.cells.size(); ++at)
    if (picture.cells[at].conflict) {
      const auto columns = static_cast<std::size_t>(picture.shown_columns);
      outlines += fmt::format("M{} {}h{}v{}h-{}z", at % columns * static_cast<std::size_t>(size) + 2,
                              at / columns * static_cast<std::size_t>(size) + 2, size - 4, size - 4, size - 4);
    }
  if (!outlines.empty())
    *out += fmt::format("<path class=\"conflicts\" d=\"{}\" fill=\"none\" stroke=\"#a00000\" stroke-width=\"3\"/>\n",
                        outlines);
}

/// The corner of the whole figure, in cells, since operands may stand left of the accumulator and above it.
struct Frame {
  std::int64_t top = 0, left = 0, bottom = 0, right = 0;
};
Frame frame_of(const Figure& figure) {
  Frame frame;
  for (const Picture& picture : figure.pictures) {
    frame.top = std::min(frame.top, picture.top);
    frame.left = std::min(frame.left, picture.left);
    frame.bottom = std::max(frame.bottom, picture.top + picture.shown_rows);
    frame.right = std::max(frame.right, picture.left + picture.shown_columns);
  }
  return frame;
}

void draw(const Picture& picture, int size, const Frame& frame, std::string* out) {
  *out += fmt::format("<g class=\"picture\" transform=\"translate({},{})\">\n",
                      kMargin + (picture.left - frame.left) * size, kTop + kMargin + (picture.top - frame.top) * size);
  if (!picture.name.empty())
    *out += fmt::format("<text y=\"-{}\" font-size=\"15\" font-weight=\"600\" text-anchor=\"start\">{}</text>\n",
                        size == kCell ? 20 : 6, xml_text(picture.name));
  *out +=
      fmt::format("<g class=\"cells\"{}>\n", size == kCell ? " stroke=\"#fff\"" : " shape-rendering=\"crispEdges\"");
  rects(picture, size, out);
  *out += "</g>\n";
  if (size == kCell) {
    *out += "<g class=\"labels\" pointer-events=\"none\">\n";
    labels(picture, out);
    *out += "</g>\n";
  }
  rim(picture, size, out);
  *out += "</g>\n";
}

}  // namespace

std::string figure_svg(const Figure& figure) {
  const int size = cell_size(figure);
  const Frame frame = frame_of(figure);
  std::int64_t width = (frame.right - frame.left) * size, height = (frame.bottom - frame.top) * size;
  const auto text_width = static_cast<std::int64_t>(std::max(figure.title.size() * 10, figure.subtitle.size() * 7));
  width = std::max(width, text_width) + 2 * kMargin;
  height += kTop + 2 * kMargin;
  std::string out;
  out += fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"system-ui,sans-serif\" font-size=\"11\" fill=\"{2}\" text-anchor=\"middle\" role=\"img\">\n"
      "<title>{3}</title>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n"
      "<g text-anchor=\"start\"><text x=\"{4}\" y=\"28\" font-size=\"16\" font-weight=\"600\">{3}</text>\n"
      "<text x=\"{4}\" y=\"48\" font-size=\"12\" fill=\"#555\">{5}</text></g>\n",
      width, height, kInk, xml_text(figure.title), kMargin, xml_text(figure.subtitle));
  for (const Picture& picture : figure.pictures) draw(picture, size, frame, &out);
  return out + "</svg>\n";
}

}  // namespace falchion::tools
