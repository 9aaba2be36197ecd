// tools/verify/grid_report.cpp: see grid_report.hpp.
#include "verify/grid_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "command/interrupt.hpp"
#include "command/print_json.hpp"
#include "command/table.hpp"
#include "plan/text.hpp"
#include "problem/work.hpp"

namespace falchion::tools {
namespace {

std::vector<std::string> error_cells(const ErrorReport& e) {
  return {format_error(e.error), format_error(e.naive_error),
          e.naive_error > 0 ? fmt::format("{:.2f}", e.error / e.naive_error) : "-", format_error(e.limit()),
          format_percent(std::min(e.share(), 99.99))};
}

Json row_json(const Row& row) {
  std::vector<Json::Member> out = {{"op", name(row.op)},
                                   {"case", row.name},
                                   {"problem", row.problem_json()},
                                   {"backend", name(row.path.backend)},
                                   {"level", row.path.level},
                                   {"passed", row.verdict.passed()},
                                   {"why", row.verdict.why}};
  for (const auto& [output, report] : row.verdict.outputs) out.emplace_back(output, to_json(report));
  return Json::object(out);
}

}  // namespace

void print_rows(const std::vector<Row>& rows) {
  Table table(
      {"<case", "<problem", "<type", "<backend", "max error", "naive", "ratio", "limit", "of limit", "<result"});
  for (const Row& row : rows) {
    std::vector<std::string> cells = {row.name, row.problem_text(), name(row.dtype()), row.path.name()};
    for (const auto& cell : error_cells(row.verdict.worst())) cells.push_back(cell);
    cells.emplace_back(row.verdict.passed() ? "ok" : "FAIL");
    table.row(cells);
  }
  fmt::print("{}", table.text());
}

void print_summary(const std::vector<Row>& rows) {
  using Key = std::tuple<Op, std::string, std::string>;
  std::map<Key, std::vector<const Row*>> groups;
  for (const Row& row : rows) groups[{row.op, row.path.name(), name(row.dtype())}].push_back(&row);
  Table table({"<operation", "<backend", "<type", "cases", "passed", "max error", "naive", "ratio", "limit", "of limit",
               "<worst case", "<result"});
  for (const auto& [key, group] : groups) {
    const auto& [op, backend, dtype] = key;
    const auto badness = [](const Row* row) {
      return std::pair<bool, double>{!row->verdict.passed(), row->verdict.worst().share()};
    };
    const auto better = [&](const Row* x, const Row* y) { return badness(x) < badness(y); };
    const Row* worst = *std::max_element(group.begin(), group.end(), better);
    const auto passed = static_cast<std::size_t>(
        std::count_if(group.begin(), group.end(), [](const Row* row) { return row->verdict.passed(); }));
    std::vector<std::string> cells = {name(op), backend, dtype, std::to_string(group.size()), std::to_string(passed)};
    for (const auto& cell : error_cells(worst->verdict.worst())) cells.push_back(cell);
    cells.push_back(worst->name);
    cells.emplace_back(passed == group.size() ? "ok" : "FAIL");
    table.row(cells);
  }
  fmt::print("{}", table.text());
}

void print_rows_as_json(const std::vector<Row>& rows, std::size_t failures) {
  std::vector<Json> list;
  for (const Row& row : rows) list.push_back(row_json(row));
  print_json(Json::object({{"failures", failures}, {"interrupted", interrupted()}, {"results", Json::array(list)}}));
}

}  // namespace falchion::tools
