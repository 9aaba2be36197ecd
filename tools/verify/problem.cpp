// tools/verify/problem.cpp: parses problems, with the table of fields that writes them.
#include "problem.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "api/problem_fields.hpp"
#include "command/words.hpp"
#include "kind.hpp"
#include "plan/text.hpp"
#include "problem/problem_options.hpp"
#include "problem_limits.hpp"
#include "storage.hpp"
#include "tool.hpp"

namespace falchion::tools::storm {
namespace {

using line::write;

template <class T>
T parse_one_of(const std::string& text, std::initializer_list<T> all) {
  std::vector<std::string> names;
  for (const T x : all) names.push_back(write(x));
  const std::string word = word_of("--problem", text, names);
  return *(all.begin() + (std::find(names.begin(), names.end(), word) - names.begin()));
}
void read(const std::string& text, std::string* x) { *x = text; }
template <class T>
requires std::is_arithmetic_v<T>
void read(const std::string& text, T* x) {
  if constexpr (std::is_same_v<T, bool>) {
    *x = parse_one_of(text, {false, true});
  } else {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *x);
    if (error != std::errc() || end != text.data() + text.size())
      throw UsageError{fmt::format("--problem: \"{}\" is not a number that its key can take", text)};
  }
}
void read(const std::string& text, DType* x) { *x = parse_dtype(text); }
void read(const std::string& text, Backend* x) { *x = parse_backend(text); }
void read(const std::string& text, Align* x) {
  *x = parse_one_of(text, {Align::unset, Align::bottom_right, Align::top_left, Align::at});
}
void read(const std::string& text, FeatureMap* x) {
  *x = parse_one_of(text, {FeatureMap::identity, FeatureMap::elu_plus_one});
}
void read(const std::string& text, Activation* x) {
  using enum Activation;
  *x = parse_one_of(text, {none, relu, gelu_tanh, gelu_erf, silu, swiglu});
}
void read(const std::string& text, NormKind* x) { *x = parse_one_of(text, {NormKind::layer, NormKind::rms}); }
void read(const std::string& text, Scaling* x) {
  using enum Scaling;
  *x = parse_one_of(text, {none, tensor, row_col, block128});
}
void read(const std::string& text, Decay* x) { *x = parse_one_of(text, {Decay::none, Decay::head, Decay::token}); }
void read(const std::string& text, Grads* x) {
  *x = parse_one_of(text, {Grads::rounded, Grads::f32, Grads::accumulate});
}
void read(const std::string& text, Broadcast* x) { read(text, &x->one); }
template <class T>
void read(const std::string& text, std::vector<T>* list) {
  list->clear();
  if (text.empty()) return;
  for (const std::string& part : split(text)) read(part, &list->emplace_back());
}

}  // namespace

Problem parse_problem(const std::string& text) {
  std::map<std::string, std::string> given;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) throw UsageError{fmt::format("--problem: \"{}\" is not key=value", word)};
    const std::string key = word.substr(0, equals);
    if (!given.emplace(key, word.substr(equals + 1)).second)
      throw UsageError{fmt::format("--problem: {} is given twice", key)};
  }
  Problem out;
  if (const auto op = given.extract("op")) out.op = parse_op(op.mapped(), "op");
  std::vector<std::string> keys;
  line::for_each_field(out, [&](const char* key, auto& value) {
    keys.emplace_back(key);
    if (const auto found = given.extract(key)) read(found.mapped(), &value);
  });
  for (const auto& [key, value] : given) {
    if (!key.starts_with("layout_"))
      throw UsageError{fmt::format("--problem: there is no key \"{}\"{}", key, did_you_mean(key, keys))};
    out.storage[key.substr(7)] = parse_storage(value);
  }
  require_sound(out);
  return out;
}

std::string command_of(const Problem& problem) {
  return fmt::format("falchion verify --problem '{}'", to_text(problem));
}

void tidy(Problem* p) {
  if (!p->packed() || p->b() == 0) p->spare = 0;  // packed rows with b = 0 are refused: b then counts as unset
  storm_kind(*p).tidy(p);
  std::erase_if(p->storage, [](const auto& entry) { return entry.second == Storage{}; });
}

}  // namespace falchion::tools::storm
