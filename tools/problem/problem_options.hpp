// tools/problem/problem_options.hpp: the options that say what to compute and where, the same in every subcommand.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.hpp"
#include "base/names.hpp"
#include "command/command.hpp"
#include "command/file_names.hpp"
#include "command/words.hpp"
#include "falchion/falchion.hpp"
#include "problem/work.hpp"

namespace falchion::tools {

std::vector<std::string> split(const std::string& text);  // at commas
DType parse_dtype(const std::string& name);
Backend parse_backend(const std::string& name);
/// The types that problems are computed in, as options name them.
inline const std::vector<std::string> kTypes = {"f32", "f16", "bf16", "e4m3", "i8"};
template <class T>
std::vector<std::string> names_of(std::span<const T> all) {
  std::vector<std::string> out;
  for (const T x : all) out.emplace_back(name(x));
  return out;
}
/// The value of an enum that `text` names, of those in `all`. `what` is named in the error.
template <class T>
T named(const std::string& what, const std::string& text, std::span<const T> all) {
  const std::string word = word_of(what, text, names_of(all));
  for (const T x : all)
    if (word == name(x)) return x;
  return all.front();  // word_of has found one
}

/// "3,5,8" -> {3, 5, 8}; `option` is named in the error.
std::vector<std::int64_t> parse_integers(const std::string& text, const std::string& option);

/// Which query sees which key, and how a score is made.
struct FeatureOptions {
  bool causal_given = false;
  std::string causal, window, align_at, dropout;
  std::map<std::string_view, std::string> of_heads;  // by field, such as alibi: a file, or "auto"
  Attention numbers{};                               // its score

  /// Names of these options, and only of those that no other operation has where `alone` says so.
  static std::vector<const char*> names(bool alone = false);
  void add_to(Command& command);
  /// The field's number for each head: empty, "auto", or a file.
  std::string of_heads_of(const Field& field) const;
  void name_files(FileNames* files) const;
  /// Where no tensors are read the numbers of the heads do not matter, so their files are not read either.
  void refuse_files() const;
  /// Which random numbers --dropout asks for.
  Rng rng() const;
  /// Fills band, score, dropout and the flags of numbers a head of a problem whose sizes are set.
  void apply(Attention* problem) const;
};

/// The options that only attention's backward pass has.
struct BackwardOptions {
  Attention flags{};  // those of this pass
  std::string grads = "rounded", frozen = "none";

  void add_to(Command& command);
  bool given() const { return *this != BackwardOptions{}; }
  /// Those of `Attention` that belong to this pass.
  void apply(Attention* problem) const;
  bool operator==(const BackwardOptions&) const = default;

  static constexpr std::initializer_list<const char*> kNames = {
#define FALCHION_BACKWARD_FIELD(kind, key, member, option, text) option,
#include "base/fields.def"
  };
};

/// A KV cache, where no tensors are given.
struct CacheOptions {
  Attention fields;                               // of which only those of a cache count
  std::map<std::string_view, std::string> types;  // of K and V by the field's name

  void add_to(Command& command);
  bool given() const;
  /// Any of them says that there is a cache; its lengths in use are then part of the problem.
  void apply(Attention* problem) const;
  static std::vector<const char*> names();
};

/// The options that only linear attention has.
struct LinearOptions {
  std::string decay = "none";
  bool elu = false, normalise = false;

  void add_to(Command& command);
  /// The problem of these sizes, those of attention over as many keys as queries. Throws UsageError where they differ.
  LinearProblem problem(const Attention& sizes, Pass pass, float scale) const;
};

/// Lists of sizes. Every combination is one problem.
struct SizeOptions {
  std::vector<std::string> dtype;
  std::vector<std::int64_t> b, h, h_q, h_k, s, s_q, s_k, d, d_v;

  void add_to(Command& command);
  bool given() const;  ///< any length, head count or head dim was named
  std::vector<Attention> expand() const;
};

/// Where to run. Options that only the CPU has are refused together with another back end.
struct TargetOptions {
  std::string backend = "best", level;
  std::int64_t threads = 0, sms = 0;

  void add_to(Command& command, const std::string& level_help = "Force one CPU level: see falchion info");
  Target target() const;
};

}  // namespace falchion::tools
