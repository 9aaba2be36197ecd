// tools/roofline/points.cpp
#include "roofline/points.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "command/json_value.hpp"
#include "roofline/model.hpp"
#include "tool.hpp"

namespace falchion::tools::roofline {
namespace {

constexpr std::size_t kMostPoints = 4096;

int element_bytes(const std::string& dtype) { return dtype == "f32" ? 4 : dtype.rfind("fp8", 0) == 0 ? 1 : 2; }

/// The parts of "burst/bf16/d:128/s:4096/full": sizes by their letters, and the words.
struct Name {
  std::map<std::string, double> sizes;
  std::vector<std::string> words;

  explicit Name(const std::string& text) {
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find('/', begin), text.size());
      const std::string part = text.substr(begin, end - begin);
      const std::size_t colon = part.find(':');
      double value = 0;
      if (colon == std::string::npos) {
        words.push_back(part);
      } else if (std::from_chars(part.data() + colon + 1, part.data() + part.size(), value).ec == std::errc()) {
        sizes[part.substr(0, colon)] = value;
      }
      begin = end + 1;
    }
  }
  bool has(const std::string& word) const { return std::find(words.begin(), words.end(), word) != words.end(); }
  double size(const char* letter, double fallback) const {
    const auto found = sizes.find(letter);
    return found == sizes.end() ? fallback : found->second;
  }
};

void check(const std::string& path, const Point& p) {
  if (!(p.flops > 0) || !(p.intensity > 0) || !std::isfinite(p.flops) || !std::isfinite(p.intensity))
    throw UsageError{fmt::format("{}: \"{}\" has no positive rate and intensity: {} FLOP/s at {} FLOP/B", path, p.name,
                                 p.flops, p.intensity)};
}

/// The problem of a row of bench/compare_torch.py. Batch and heads of prefill cancel in the intensity.
Attention problem_of(const std::string& section, const Name& name) {
  const bool decode = section == "decode";
  Attention a;
  a.b = name.size("b", 1);
  a.h_q = name.size("h", decode ? 32 : 1);
  a.h_k = decode ? 8 : a.h_q;
  a.s_q = decode ? 1 : name.size("s_q", name.size("s", 0));
  a.s_k = name.size("s_k", name.size("s", 0));
  a.d = a.d_v = name.size("d", decode ? 128 : 0);
  a.causal = name.has("causal");
  for (const std::string& word : name.words)
    if (word == "f32" || word.rfind("fp8", 0) == 0) a.element_bytes = element_bytes(word);
  return a;
}

std::string series_of(const std::string& section, const Name& name, const Attention& a) {
  if (section == "decode") return fmt::format("decode b {:.0f}", a.b);
  if (section == "chunked") return fmt::format("s_q {:.0f} s_k {:.0f}, h {:.0f}", a.s_q, a.s_k, a.h_q);
  std::string out = fmt::format("d {:.0f} {}", a.d, a.causal ? "causal" : "full");
  for (const char* mode : {"burst", "sustained"})
    if (name.has(mode)) out += fmt::format(", {}", mode);
  return section == "small" || section == "backward" ? section + " " + out : out;
}

void read_rows(const std::string& path, const JsonValue& rows, std::vector<Point>* points) {
  rows.each([&](const JsonValue& row) {
    const std::string section = row.at("section").text(), text = row.at("name").text();
    if (section == "varlen") return;
    const Name name(text);
    const Attention a = problem_of(section, name);
    const Work work = section == "backward" ? attention_backward(a) : attention(a);
    row.at("ms").each_member([&](const std::string& who, const JsonValue& ms) {
      // A rate in FLOP/s is used as it is: prefill's names leave out the batch.
      const bool rate = row.text_or("unit", "") == "TFLOP/s";
      const double flops = rate ? row.at("rate").at(who).number() * 1e12 : work.flop / (ms.number() * 1e-3);
      points->push_back({fmt::format("{} {}", who, text), fmt::format("{} {}", who, series_of(section, name, a)),
                         work.intensity(), flops, a.element_bytes});
      check(path, points->back());
    });
  });
}

void read_benchmarks(const std::string& path, const JsonValue& benchmarks, std::vector<Point>* points) {
  benchmarks.each([&](const JsonValue& row) {
    if (row.text_or("aggregate_name", "") != "median" || !row.has("problem")) return;
    const JsonValue problem = row.at("problem");
    const double flops = row.at("flops").number(), bytes = row.at("bytes_per_second").number();
    const std::string dtype = problem.at("dtype").text(), features = problem.at("features").text();
    const std::string kind = problem.has("s_q") && problem.at("s_q").number() == 1 ? "decode" : features;
    const std::string what = problem.has("d_qk") ? fmt::format("d {} {}", problem.at("d_qk").number(), kind) : features;
    points->push_back({"falchion " + row.at("run_name").text(), fmt::format("falchion {} {}", dtype, what),
                       flops / bytes, flops, element_bytes(dtype)});
    check(path, points->back());
  });
}

std::vector<Point> read_all(const std::string& path) {
  const JsonFile file(path);
  const JsonValue whole = file.whole();
  std::vector<Point> points;
  if (whole.has("rows")) {
    read_rows(path, whole.at("rows"), &points);
  } else if (whole.has("benchmarks")) {
    read_benchmarks(path, whole.at("benchmarks"), &points);
  }
  if (points.empty())
    throw UsageError{
        fmt::format("{}: has no measurements: it wants rows[] of bench/compare_torch.py or benchmarks[] of "
                    "falchion bench --json",
                    path)};
  if (points.size() > kMostPoints)
    throw UsageError{fmt::format("{}: {} points, at most {}", path, points.size(), kMostPoints)};
  return points;
}

}  // namespace

std::vector<Point> read_points(const std::string& path) {
  try {
    return read_all(path);
  } catch (const UsageError& error) { throw UsageError{"--points: " + error.what}; }
}

std::vector<Point> matching(const std::vector<Point>& points, const std::vector<std::string>& words) {
  std::vector<Point> out;
  for (const Point& p : points) {
    const std::string text = p.name + " " + p.series;
    const auto holds = [&](const std::string& word) { return text.find(word) != std::string::npos; };
    if (std::all_of(words.begin(), words.end(), holds)) out.push_back(p);
  }
  return out;
}

}  // namespace falchion::tools::roofline
