// tools/ladder/report.cpp: the rows of a ladder as a table with its paragraphs, or as JSON.
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "command/print_json.hpp"
#include "command/table.hpp"
#include "ladder/ladder.hpp"
#include "measure/machine.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

/// The rival's time over ours.
double of_rival(const LadderRow& row) { return row.rival_seconds / row.time.median(); }

double ratio(const LadderRow& before, const LadderRow& now) { return before.time.median() / now.time.median(); }

/// Whether row i is the first of those with its problem. A row is compared with earlier rows of the same problem.
bool begins_problem(const std::vector<LadderRow>& rows, std::size_t i) {
  return i == 0 || rows[i].problem != rows[i - 1].problem;
}

/// The cells of a row. first and before: the first and the last earlier measured row of the same problem, or nullptr.
std::vector<std::string> cells(const LadderReport& report, const LadderRow* first, const LadderRow* before,
                               const LadderRow& row) {
  if (!row.not_built.empty()) {
    std::vector<std::string> out(report.rival.empty() ? 10 : 11, "-");
    out[0] = row.name;
    out[1] = row.title;
    out[2] = "";
    out.back() = row.passed() ? "not built" : "FAIL";
    return out;
  }
  const double seconds = row.time.median();
  std::vector<std::string> out = {row.name,
                                  row.title,
                                  before != nullptr ? format_seconds(before->time.median()) : "",
                                  format_seconds(seconds),
                                  before != nullptr ? fmt::format("{:.2f} x", ratio(*before, row)) : "",
                                  before != nullptr ? fmt::format("{:.1f} x", ratio(*first, row)) : "",
                                  format_rate(row.work / seconds, report.unit)};
  if (!report.rival.empty()) out.push_back(format_percent(of_rival(row)));
  out.insert(out.end(),
             {format_error(row.error), format_percent(std::min(row.share, 99.99)), row.passed() ? "ok" : "FAIL"});
  return out;
}

/// If rows have their own problems, a column names the problem, once for all rows that share it.
void print_table(const LadderReport& report, const std::vector<LadderRow>& rows) {
  const bool own = std::any_of(rows.begin(), rows.end(), [](const LadderRow& row) { return !row.problem.empty(); });
  std::vector<std::string> titles = {"<step", "<what", "before", "time", "faster", "in all", "rate"};
  if (!report.rival.empty()) titles.push_back("of " + report.rival);
  titles.insert(titles.end(), {report.error_title, "of limit", "<result"});
  if (own) titles.insert(titles.begin(), "<shape");
  Table table(titles);
  const LadderRow* first = nullptr;
  const LadderRow* before = nullptr;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const LadderRow& row = rows[i];
    const bool begins = begins_problem(rows, i);
    if (begins) {
      if (i > 0) table.rule();
      before = nullptr;
    }
    std::vector<std::string> line = cells(report, first, before, row);
    if (own) line.insert(line.begin(), begins ? row.problem : "");
    table.row(line);
    if (!row.not_built.empty()) continue;
    if (before == nullptr) first = &row;
    before = &row;
  }
  fmt::print("{}\n", table.text());
}

/// Whether each step is faster than the one before it; if not, which.
std::string slower_steps(const std::vector<LadderRow>& rows) {
  std::string out;
  const LadderRow* before = nullptr;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const LadderRow& row = rows[i];
    if (begins_problem(rows, i)) before = nullptr;
    if (!row.not_built.empty()) continue;
    if (before != nullptr && ratio(*before, row) < 1) out += (out.empty() ? "" : ", ") + row.name;
    before = &row;
  }
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
  if (report.climbs && rows.size() > 1)
    fmt::print("{}.\n", slower.empty() ? "Each step is faster than the one before it"
                                       : "Slower than the step before: " + slower);
  for (const LadderRow& row : rows) {
    if (!row.not_built.empty() && row.passed()) fmt::print("{}: not built: {}\n", row.name, row.not_built);
    if (!row.passed()) fmt::print("FAIL {}: {}\n", row.name, row.wrong);
  }
  if (options.brief) return;
  std::set<std::string> told;
  for (const LadderRow& row : rows)
    if (told.insert(row.name).second)
      fmt::print("\n{}: {} ({})\n{}", row.name, row.title, row.file, wrapped(row.why, 110));
  fmt::print("\nThe walk through them, with pictures: docs/ladder.md. The files: {}.\n", report.folder);
}

Json to_json(const LadderReport& report, const LadderRow& row) {
  Json out = Json::object({{"step", row.name}, {"title", row.title}, {"file", row.file}, {"not_built", row.not_built}});
  if (!row.problem.empty()) out = out.with("problem", row.problem_json);
  if (!row.not_built.empty()) return out;
  out = out.with("seconds", row.time.median())
            .with("spread", row.time.spread())
            .with("runs", row.time.seconds.size())
            .with(report.unit_json, row.work / row.time.median());
  if (row.rival_seconds > 0) out = out.with("rival_seconds", row.rival_seconds).with("of_rival", of_rival(row));
  for (const auto& [result, error] : row.errors) out = out.with(result, error);
  return out;
}

Json to_json(const LadderReport& report, const std::vector<LadderRow>& rows) {
  std::vector<Json> steps;
  for (const LadderRow& row : rows) steps.push_back(to_json(report, row));
  const Json facts = result_facts(report.side == Side::gpu ? device_name(report.side) : "");
  return (report.rival.empty() ? facts : facts.with("rival", report.rival))
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
