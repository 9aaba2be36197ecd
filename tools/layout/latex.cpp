// tools/layout/latex.cpp: a figure as TikZ, line for line as CuTe's print_latex writes it.
#include <fmt/core.h>

#include <iterator>

#include "layout/picture.hpp"

namespace falchion::tools {
namespace {

std::string colour_of(const Picture& picture, const Cell& cell) {
  if (picture.kind == Picture::Kind::offsets) {  // CuTe's eight greys
    constexpr const char* kGreys[8] = {"black!00", "black!40", "black!20", "black!60",
                                       "black!10", "black!50", "black!30", "black!70"};
    return kGreys[(cell.offset % 8 + 8) % 8];
  }
  const int pastel = pastel_of(picture, cell);
  if (pastel < 0) return "white";
  const unsigned long rgb = std::stoul(kPastels[pastel] + 1, nullptr, 16);
  return fmt::format("{{rgb,255:red,{};green,{};blue,{}}}", rgb >> 16, rgb >> 8 & 255, rgb & 255);
}

std::string label(const Picture& picture, const Cell& cell) {
  const std::string text = label_of(picture, cell);
  const std::size_t feed = text.find('\n');
  return feed == std::string::npos
             ? text
             : fmt::format("\\shortstack{{{} \\\\ {}}}", text.substr(0, feed), text.substr(feed + 1));
}

void draw(const Picture& picture, std::string* out) {
  std::size_t at = 0;
  for (std::int64_t i = 0; i < picture.shown_rows; ++i)
    for (std::int64_t j = 0; j < picture.shown_columns; ++j, ++at) {
      const Cell& cell = picture.cells[at];
      if (picture.kind == Picture::Kind::thread_values && cell.thread < 0) continue;
      *out += fmt::format("\\node[fill={}] at ({},{}) {{{}}};\n", colour_of(picture, cell), picture.top + i,
                          picture.left + j, label(picture, cell));
    }
  *out += fmt::format("\\draw[color=black,thick,shift={{(-0.5,-0.5)}}] ({},{}) grid ({},{});\n\n", picture.top,
                      picture.left, picture.top + picture.shown_rows, picture.left + picture.shown_columns);
  for (std::int64_t i = 0; i < picture.shown_rows; ++i)
    *out += fmt::format("\\node at ({},{}) {{\\Large{{\\texttt{{{}}}}}}};\n", picture.top + i, picture.left - 1,
                        i * picture.row_step);
  for (std::int64_t j = 0; j < picture.shown_columns; ++j)
    *out += fmt::format("\\node at ({},{}) {{\\Large{{\\texttt{{{}}}}}}};\n", picture.top - 1, picture.left + j,
                        j * picture.column_step);
}

}  // namespace

std::string figure_latex(const Figure& figure) {
  std::string out;
  for (const Picture& picture : figure.pictures)
    out += fmt::format("% Layout{}{}: {}\n", picture.name.empty() ? "" : " ",
                       picture.name + (picture.kind == Picture::Kind::thread_values ? " TV" : ""), picture.expression);
  out +=
      "\\documentclass[convert]{standalone}\n\\usepackage{tikz}\n\n\\begin{document}\n"
      "\\begin{tikzpicture}[x={(0cm,-1cm)},y={(1cm,0cm)},every node/.style={minimum size=1cm, outer sep=0pt}]\n\n";
  for (const Picture& picture : figure.pictures) draw(picture, &out);
  return out + "\\end{tikzpicture}\n\\end{document}\n";
}

}  // namespace falchion::tools
