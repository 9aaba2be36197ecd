// tools/command/table.hpp: one way to print a table: light rule under the header, numbers right aligned, two spaces
// between.
#pragma once

#include <string>
#include <vector>

namespace falchion::tools {

class Table {
 public:
  /// A header that begins with '<' makes its column left aligned; the others are right aligned, for numbers.
  explicit Table(std::vector<std::string> headers);

  void row(std::vector<std::string> cells);  ///< as many cells as headers
  void rule();                               ///< a light line between two groups of rows
  std::string text() const;

 private:
  struct Column {
    std::string title;
    bool left;
  };
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a rule
};

/// The columns that this UTF-8 text takes on a terminal: code points, since the tables use no wide characters.
std::size_t display_width(const std::string& text);

// Numbers with units, four significant digits, as the tables show them.
std::string format_seconds(double seconds);                    // "3.142 ms"
std::string format_rate(double per_second, const char* unit);  // "1.234 TFLOP/s"
std::string format_bytes(double bytes);                        // "12.50 MiB"
std::string format_percent(double share);                      // 0.834 -> "83.4 %"
std::string format_error(double error);                        // "1.9e-03", "0"

/// Marks doubtful numbers with "!": a share of a limit above 100 %, since then the limit is wrong, and a spread above
/// 10 %. Remembers which marks were used.
class Marks {
 public:
  std::string share(double share);    // "83.4 %", "104.0 % !"
  std::string spread(double spread);  // "1.2 %", "14.0 % !"
  std::string text() const;           // what the marks mean, a line each, or ""

 private:
  bool share_ = false, spread_ = false;
};

}  // namespace falchion::tools
