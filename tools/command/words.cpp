// tools/command/words.cpp: see words.hpp.
#include "command/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <utility>

#include "tool.hpp"

namespace falchion::tools {
namespace {

/// Other names of types, after plain().
constexpr std::pair<const char*, const char*> kOtherNames[] = {
    {"float32", "f32"},       {"fp32", "f32"},    {"float", "f32"},     {"single", "f32"}, {"float16", "f16"},
    {"fp16", "f16"},          {"half", "f16"},    {"bfloat16", "bf16"}, {"fp8", "e4m3"},   {"fp8e4m3", "e4m3"},
    {"float8e4m3fn", "e4m3"}, {"e4m3fn", "e4m3"}, {"int8", "i8"},       {"int32", "i32"},
};

/// In small letters, without '-' and '_'.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c != '-' && c != '_') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

/// The normal form of all spellings of a word.
std::string normal(const std::string& text) {
  const std::string out = plain(text);
  for (const auto& [other, name] : kOtherNames)
    if (out == other) return name;
  return out;
}

/// The edit distance of two texts: letters inserted, removed, changed, or swapped with the next one.
std::size_t edits(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const std::size_t change = d[i - 1][j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

}  // namespace

std::string spelled(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (word == text) return word;
  for (const std::string& word : words)
    if (!text.empty() && normal(word) == normal(text)) return word;
  return "";
}

std::string word_of(const std::string& option, const std::string& text, const std::vector<std::string>& words) {
  std::string word = spelled(text, words);
  if (word.empty())
    throw UsageError{
        fmt::format("{}: \"{}\" is not one of {}{}", option, text, fmt::join(words, ", "), did_you_mean(text, words))};
  return word;
}

std::string did_you_mean(const std::string& text, const std::vector<std::string>& words) {
  constexpr std::size_t kFewest = 3, kMost = 64;  // one letter is near to every other, and a text is no word
  const std::string typed = plain(text);
  if (typed.size() < kFewest || typed.size() > kMost) return "";
  std::size_t least = typed.size() / 3 + 1;
  std::string nearest;
  for (const std::string& word : words) {
    const std::string candidate = plain(word);
    const std::size_t distance = candidate.starts_with(typed) ? 1 : edits(typed, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = word;
  }
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
}

}  // namespace falchion::tools
