// tools/layout/picture.cpp: layouts and thread-value layouts -> grids of cells.
#include "layout/picture.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/divide.hpp"

namespace falchion::tools {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 22;

/// Rows and columns, and how many elements a cell stands for so that no side has more than kMostCells.
void set_grid(Picture* picture, std::int64_t rows, std::int64_t columns) {
  picture->rows = rows;
  picture->columns = columns;
  picture->row_step = std::max<std::int64_t>(1, ceil_div(rows, kMostCells));
  picture->column_step = std::max<std::int64_t>(1, ceil_div(columns, kMostCells));
  picture->shown_rows = ceil_div(rows, picture->row_step);
  picture->shown_columns = ceil_div(columns, picture->column_step);
  picture->cells.assign(static_cast<std::size_t>(picture->shown_rows * picture->shown_columns), Cell{});
}

}  // namespace

Picture draw_layout(const layout::Composed& layout, int element_bits, const std::string& name) {
  Picture picture;
  picture.name = name;
  picture.expression = to_string(layout);
  picture.shape = layout.layout.shape;
  picture.stride = layout.layout.stride;
  picture.element_bits = layout.element_bits > 0 ? layout.element_bits : element_bits;
  picture.swizzled = layout.has_swizzle && layout.swizzle.bits > 0;
  const std::int64_t size = layout.layout.size();
  if (size < 1) throw layout::Error("a layout with no elements has no picture");
  const std::int64_t rows = layout.layout.rank() > 1 ? layout.layout.mode(0).size() : 1;
  set_grid(&picture, rows, size / rows);
  // Offsets of a column and of a row add up, swizzle apart: so a picture costs rows + columns evaluations, not their
  // product.
  std::vector<std::int64_t> down, right;
  for (std::int64_t i = 0; i < rows; i += picture.row_step) down.push_back(layout.layout(i));
  for (std::int64_t j = 0; j < picture.columns; j += picture.column_step) right.push_back(layout.layout(j * rows));
  layout::Composed plain = layout;
  plain.has_swizzle = false;
  auto cell = picture.cells.begin();
  for (const std::int64_t i : down)
    for (const std::int64_t j : right) {
      cell->plain = plain.of_offset(i + j);
      cell->offset = layout.has_swizzle ? layout.of_offset(i + j) : cell->plain;
      ++cell;
    }
  return picture;
}

Picture draw_thread_values(const layout::Layout& tv, std::int64_t rows, std::int64_t columns, const std::string& name,
                           bool transposed) {
  Picture picture;
  picture.kind = Picture::Kind::thread_values;
  picture.name = name;
  picture.expression = to_string(tv);
  picture.shape = tv.shape;
  picture.stride = tv.stride;
  if (tv.rank() != 2)
    throw layout::Error(
        fmt::format("{} has rank {}; a thread-value layout has two modes", picture.expression, tv.rank()));
  const std::int64_t threads = tv.mode(0).size(), values = tv.mode(1).size();
  if (threads > kMostElements || values > kMostElements || threads * values > kMostElements)
    throw layout::Error(fmt::format("{} has {} threads of {} values, more than {} in all", picture.expression, threads,
                                    values, kMostElements));
  set_grid(&picture, transposed ? columns : rows, transposed ? rows : columns);
  for (std::int64_t thread = 0; thread < threads; ++thread)
    for (std::int64_t value = 0; value < values; ++value) {
      const std::int64_t at = tv(thread + threads * value);
      std::int64_t i = at % rows, j = at / rows;
      if (j >= columns) continue;
      if (transposed) std::swap(i, j);
      if (i % picture.row_step != 0 || j % picture.column_step != 0) continue;
      Cell& cell =
          picture
              .cells[static_cast<std::size_t>(i / picture.row_step * picture.shown_columns + j / picture.column_step)];
      if (cell.thread >= 0) continue;  // several threads may hold one element: the first is shown, as CuTe does
      cell.thread = static_cast<int>(thread);
      cell.value = static_cast<int>(value);
      cell.offset = cell.plain = at;
    }
  return picture;
}

int pastel_of(const Picture& picture, const Cell& cell, bool plain) {
  if (picture.kind == Picture::Kind::thread_values) return cell.thread < 0 ? -1 : cell.thread % 8;
  return static_cast<int>(picture.bank(plain ? cell.plain : cell.offset) / 4);
}

std::string label_of(const Picture& picture, const Cell& cell) {
  if (picture.kind == Picture::Kind::offsets) return std::to_string(cell.offset);
  const auto number = [](std::int64_t i) { return std::to_string(i); };
  if (picture.kind == Picture::Kind::thread_values)
    return cell.thread < 0 ? "" : "T" + number(cell.thread) + "\nV" + number(cell.value);
  const std::string bank = number(picture.bank(cell.offset));
  return cell.thread < 0 ? bank : "T" + number(cell.thread) + "\n" + bank;
}

std::string json_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text)
    if (c == '"' || c == '\\')
      out += std::string("\\") + c;
    else if (static_cast<unsigned char>(c) < 0x20 || c == '<')  // '<': the text may stand in a script of a page
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      out += c;
  return out + '"';
}

std::string json_tuple(const layout::IntTuple& tuple) {
  if (tuple.is_int()) return std::to_string(tuple.value());
  std::string out = "[";
  for (const layout::IntTuple& mode : tuple.modes()) out += (out.size() > 1 ? "," : "") + json_tuple(mode);
  return out + "]";
}

}  // namespace falchion::tools
