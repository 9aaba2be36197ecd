// tools/ladder/report.cpp: the rows of a ladder as a table with its paragraphs, or as JSON.
#include <fmt/core.h>

#include <algorithm>

#include "command/print_json.hpp"
#include "command/table.hpp"
#include "ladder/ladder.hpp"
#include "measure/machine.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

double ratio(const LadderRow& before, const LadderRow& now) { return before.time.median() / now.time.median(); }

void print_table(const LadderReport& report, const std::vector<LadderRow>& rows) {
  Table table(
      {"<step", "<what", "before", "time", "faster", "in all", "rate", report.error_title, "of limit", "<result"});
  const LadderRow* before = nullptr;
  for (const LadderRow& row : rows) {
    if (!row.not_built.empty()) {
      table.row({row.name, row.title, "", "-", "-", "-", "-", "-", "-", row.passed() ? "not built" : "FAIL"});
      continue;
    }
    const double seconds = row.time.median();
    table.row({row.name, row.title, before != nullptr ? format_seconds(before->time.median()) : "",
               format_seconds(seconds), before != nullptr ? fmt::format("{:.2f} x", ratio(*before, row)) : "",
               before != nullptr ? fmt::format("{:.1f} x", ratio(rows.front(), row)) : "",
               format_rate(row.work / seconds, report.unit), format_error(row.error),
               format_percent(std::min(row.share, 99.99)), row.passed() ? "ok" : "FAIL"});
    before = &row;
  }
  fmt::print("{}\n", table.text());
}

/// Whether each step is faster than the one before it; if not, which.
std::string slower_steps(const std::vector<LadderRow>& rows) {
  std::string out;
  for (std::size_t i = 1; i < rows.size(); ++i)
    if (rows[i].not_built.empty() && ratio(rows[i - 1], rows[i]) < 1) out += (out.empty() ? "" : ", ") + rows[i].name;
  return out;
}

std::string wrapped(const std::string& text, std::size_t width) {
  std::string out;
  std::size_t begin = 0;
  while (text.size() - begin > width) {
    const std::size_t end = text.rfind(' ', begin + width);
    out += "  " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return out + "  " + text.substr(begin) + "\n";
}

void print_text(const LadderOptions& options, const LadderReport& report, const std::vector<LadderRow>& rows) {
  fmt::print("{}, {} {}: {}\n\n", device_name(report.side), report.dtype, report.problem,
             report.side == Side::gpu ? "by events, median" : fmt::format("{} threads, median", thread_count()));
  print_table(report, rows);
  for (const std::string& note : report.notes) fmt::print("{}.\n", note);
  const std::string slower = slower_steps(rows);
  if (rows.size() > 1)
    fmt::print("{}.\n", slower.empty() ? "Each step is faster than the one before it"
                                       : "Slower than the step before: " + slower);
  for (const LadderRow& row : rows) {
    if (!row.not_built.empty() && row.passed()) fmt::print("{}: not built: {}\n", row.name, row.not_built);
    if (!row.passed()) fmt::print("FAIL {}: {}\n", row.name, row.wrong);
  }
  if (options.brief) return;
  for (const LadderRow& row : rows)
    fmt::print("\n{}: {} ({})\n{}", row.name, row.title, row.file, wrapped(row.why, 110));
  fmt::print("\nThe walk through them, with pictures: docs/ladder.md. The files: {}.\n", report.folder);
}

Json to_json(const LadderReport& report, const LadderRow& row) {
  Json out = Json::object({{"step", row.name}, {"title", row.title}, {"file", row.file}, {"not_built", row.not_built}});
  if (!row.not_built.empty()) return out;
  out = out.with("seconds", row.time.median())
            .with("spread", row.time.spread())
            .with("runs", row.time.seconds.size())
            .with(report.unit_json, row.work / row.time.median());
  for (const auto& [result, error] : row.errors) out = out.with(result, error);
  return out;
}

Json to_json(const LadderReport& report, const std::vector<LadderRow>& rows) {
  std::vector<Json> steps;
  for (const LadderRow& row : rows) steps.push_back(to_json(report, row));
  return result_facts(report.side == Side::gpu ? device_name(report.side) : "")
      .with("problem", report.problem_json)
      .with("monotone", slower_steps(rows).empty())
      .with("steps", Json::array(steps));
}

}  // namespace

int tell(const LadderOptions& options, const LadderReport& report, const std::vector<LadderRow>& rows) {
  if (options.as_json) {
    print_json(to_json(report, rows));
  } else {
    print_text(options, report, rows);
  }
  return std::all_of(rows.begin(), rows.end(), [](const LadderRow& row) { return row.passed(); }) ? exit_ok
                                                                                                  : exit_failed;
}

}  // namespace falchion::tools
