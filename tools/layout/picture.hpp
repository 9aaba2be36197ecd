// tools/layout/picture.hpp: what SVG, HTML, LaTeX and JSON draw: grids of cells,
// each with its offset, thread and value.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "layout/layout.hpp"

namespace falchion::tools {

struct Cell {
  std::int64_t offset = 0, plain = 0;  // plain: without the swizzle
  int thread = -1, value = -1;         // -1: no thread
  bool conflict = false;
};

struct Picture {
  enum class Kind { offsets, thread_values, banks };
  Kind kind = Kind::offsets;
  std::string name;                // "A"; empty where there is one picture alone
  std::string expression;          // what it shows, in CuTe's print
  layout::IntTuple shape, stride;  // of the layout
  std::int64_t rows = 1, columns = 1;
  std::int64_t row_step = 1, column_step = 1;  // above 1: too large for a cell an element; a cell is its first element
  std::int64_t shown_rows = 1, shown_columns = 1;
  std::int64_t top = 0, left = 0;  // where it stands in the figure, in cells
  int element_bits = 16;
  bool swizzled = false;
  bool flipped = false;     // a coordinate is (column, row): operand B is (n, k), and drawn with k downwards
  std::vector<Cell> cells;  // shown_rows x shown_columns, row by row

  bool is_heat_map() const { return row_step > 1 || column_step > 1; }
  std::int64_t bank(std::int64_t offset) const {  // 1024 elements of whole bits begin where the banks do
    return (offset % 1024 + 1024) % 1024 * element_bits / 32 % 32;
  }
};

struct Figure {
  std::string title, subtitle;
  bool compact = false;  // small cells without text
  std::vector<Picture> pictures;
};

/// The most cells that a side of a picture has.
inline constexpr std::int64_t kMostCells = 128;

/// Mode 0 downwards, all others to the right; a layout of rank 1 is one row.
Picture draw_layout(const layout::Composed& layout, int element_bits, const std::string& name = "");
/// The picture of a thread-value layout, (thread, value) -> i + rows j. With `transposed` j goes downwards, as operand
/// B is drawn.
Picture draw_thread_values(const layout::Layout& tv, std::int64_t rows, std::int64_t columns, const std::string& name,
                           bool transposed = false);

/// The result of a verb: text as CuTe prints it, facts for JSON, and pictures if requested.
struct Answer {
  std::string text;
  std::vector<std::pair<std::string, std::string>> facts;
  Figure figure;
};

std::string figure_svg(const Figure& figure);
std::string figure_html(const Figure& figure);
std::string figure_latex(const Figure& figure);
std::string answer_json(const Answer& answer);

/// A JSON string with its quotes.
std::string json_text(const std::string& text);
std::string json_tuple(const layout::IntTuple& tuple);  ///< (8,(2,4)) -> [8,[2,4]]

/// Eight pastels that a reader with any kind of colour blindness can tell apart. They are Okabe and Ito's hues, mixed
/// with white. Each pair is at least 13 apart (CIE76) for normal, protan, deutan and tritan eyes, and their lightness
/// differs by at least 2.8, so they stay apart in grey print too.
inline constexpr const char* kPastels[8] = {"#85c2ed", "#f4eb91", "#dc896e", "#8cbea7",
                                            "#dddddd", "#cd7eaa", "#f0cba6", "#b6c5da"};
/// The colour of a cell, 0 to 7, or -1 for a cell of no thread. With `plain` it is the colour without the swizzle.
int pastel_of(const Picture& picture, const Cell& cell, bool plain = false);
/// The text of a cell: one line, or two with a line feed between them.
std::string label_of(const Picture& picture, const Cell& cell);

}  // namespace falchion::tools
