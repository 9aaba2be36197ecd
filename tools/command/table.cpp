// tools/command/table.cpp
#include "command/table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace falchion::tools {

std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

Table::Table(std::vector<std::string> headers) {
  for (auto& header : headers) {
    const bool left = !header.empty() && header[0] == '<';
    columns_.push_back({left ? header.substr(1) : header, left});
  }
}

void Table::row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

void Table::rule() { rows_.emplace_back(); }

std::string Table::text() const {
  std::vector<std::size_t> width;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t w = display_width(columns_[c].title);
    for (const auto& cells : rows_)
      if (!cells.empty()) w = std::max(w, display_width(cells[c]));
    width.push_back(w);
  }
  const auto line = [&](auto cell) {
    std::string out;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string text = cell(c);
      const std::string pad(width[c] - display_width(text), ' ');
      out += (c ? "  " : "") + (columns_[c].left ? text + pad : pad + text);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out + "\n";
  };
  std::size_t total = 2 * (columns_.size() - 1);
  for (const std::size_t w : width) total += w;
  std::string rule;
  for (std::size_t i = 0; i < total; ++i) rule += "─";
  rule += "\n";

  std::string out = line([&](std::size_t c) { return columns_[c].title; }) + rule;
  for (const auto& cells : rows_) out += cells.empty() ? rule : line([&](std::size_t c) { return cells[c]; });
  return out;
}

namespace {
std::string four_digits(double x) {
  const double a = std::abs(x);
  return fmt::format("{:.{}f}", x, a >= 999.5 ? 0 : a >= 99.95 ? 1 : a >= 9.995 ? 2 : 3);
}
}  // namespace

std::string format_seconds(double seconds) {
  if (seconds >= 1) return four_digits(seconds) + " s";
  if (seconds >= 1e-3) return four_digits(seconds * 1e3) + " ms";
  return four_digits(seconds * 1e6) + " µs";
}

std::string format_rate(double per_second, const char* unit) {
  if (per_second >= 1e12) return four_digits(per_second * 1e-12) + " T" + unit;
  if (per_second >= 1e9 || per_second == 0) return four_digits(per_second * 1e-9) + " G" + unit;
  return four_digits(per_second * 1e-6) + " M" + unit;
}

std::string format_bytes(double bytes) {
  if (bytes >= 1024.0 * 1024 * 1024) return four_digits(bytes / (1024.0 * 1024 * 1024)) + " GiB";
  if (bytes >= 1024.0 * 1024) return four_digits(bytes / (1024.0 * 1024)) + " MiB";
  if (bytes >= 1024) return four_digits(bytes / 1024) + " KiB";
  return fmt::format("{:.0f} B", bytes);
}

std::string format_percent(double share) { return std::isfinite(share) ? fmt::format("{:.1f} %", share * 100) : "-"; }

std::string Marks::share(double share) {
  const bool doubtful = std::isfinite(share) && share > 1;
  share_ = share_ || doubtful;
  return format_percent(share) + (doubtful ? " !" : "");
}

std::string Marks::spread(double spread) {
  constexpr double kMost = 0.1;
  const bool doubtful = std::isfinite(spread) && spread > kMost;
  spread_ = spread_ || doubtful;
  return format_percent(spread) + (doubtful ? " !" : "");
}

std::string Marks::text() const {
  std::string out;
  if (share_) out += "! a share above 100 %: the limit was measured too low, or the data came from a cache\n";
  if (spread_) out += "! a spread above 10 %: something disturbed the runs; measure again on a quiet machine\n";
  return out;
}

std::string format_error(double error) {
  if (std::isnan(error)) return "NaN";
  return error == 0 ? "0" : fmt::format("{:.1e}", error);
}

}  // namespace falchion::tools
