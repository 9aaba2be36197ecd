// tools/command/command.hpp: how a subcommand declares its options. CLI11 does the work, in one file, since its header
// alone takes four seconds to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace falchion::tools {

/// The options on the command line. A subcommand refuses options that it does not use, because with an ignored option
/// the answer would be to another question.
class Given {
 public:
  explicit Given(const CLI::App* app) : app_(app) {}
  bool operator()(const std::string& name) const;  // "--causal"
  /// Throws a UsageError "--causal: WHY" for the first of these that is given.
  void refuse(std::initializer_list<const char*> names, const std::string& why) const;
  void refuse(const std::vector<const char*>& names, const std::string& why) const;

 private:
  const CLI::App* app_;
};

/// The suffix of the allowed values in the type of an option that accepts several, separated by commas.
inline constexpr const char* kListType = "[,...]";

/// Every option that is not a flag needs a value, and an empty value is refused.
class Command {
 public:
  Command(CLI::App* app, int* exit_code) : app_(app), exit_code_(exit_code) {}

  /// Options that are added after this call are under this heading in the help.
  void group(const std::string& heading) { group_ = heading; }

  void flag(const std::string& name, bool* target, const std::string& help);
  void text(const std::string& name, std::string* target, const std::string& help, const std::string& type = "TEXT");
  void choice(const std::string& name, std::string* target, const std::vector<std::string>& allowed,
              const std::string& help);
  void number(const std::string& name, float* target, const std::string& help);
  void number(const std::string& name, std::optional<float>* target, const std::string& help);  // empty: not given
  void integer(const std::string& name, std::int64_t* target, std::int64_t least, std::int64_t most,
               const std::string& help);
  void list(const std::string& name, std::vector<std::int64_t>* target, const std::string& help);  // 1,2,3
  void list(const std::string& name, std::vector<std::string>* target, const std::string& help);
  /// A list of these words.
  void list(const std::string& name, std::vector<std::string>* target, const std::vector<std::string>& allowed,
            const std::string& help);
  /// A flag that may have a value. `given` is whether it is there, and `target` stays empty if it has no value.
  void optional(const std::string& name, std::string* target, bool* given, const std::string& help,
                const std::string& type);
  /// An argument without a name.
  void positional(const std::string& name, std::string* target, const std::vector<std::string>& allowed, bool required,
                  const std::string& help);
  /// Any number of arguments without a name, after the others.
  void positionals(const std::string& name, std::vector<std::string>* target, const std::string& help);
  /// An option that may be repeated. Unlike that of a list, its text is never cut at commas.
  void repeated(const std::string& name, std::vector<std::string>* target, const std::string& help,
                const std::string& type);
  void excludes(const std::string& a, const std::string& b);
  /// The text below the options in the help, line for line.
  void footer(const std::string& text);

  /// Sets what the subcommand runs. Its result is the exit code.
  void run(std::function<int(const Given&)> body);

 private:
  CLI::App* app_;
  int* exit_code_;
  std::string group_ = "Options";
};

}  // namespace falchion::tools
