// tools/command/command.cpp
#include "command/command.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "command/numbers.hpp"
#include "command/words.hpp"
#include "problem/problem_options.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

// The type of an option shows its allowed values; completion reads them from it.
std::string in_braces(const std::vector<std::string>& allowed) { return "{" + CLI::detail::join(allowed, ",") + "}"; }

/// A list shows that it may have several: "{f32,f16}[,...]".
std::string several_of(const std::vector<std::string>& allowed) { return in_braces(allowed) + kListType; }

/// The only value of an option. Two kinds of value are refused: an empty one is most often an unset variable of a
/// script, and one that looks like an option means that the value was forgotten.
const std::string& only_value(const CLI::results_t& values, const std::string& name) {
  if (values.front().empty()) throw UsageError{name + ": the value is empty"};
  if (values.front().size() > 2 && values.front().compare(0, 2, "--") == 0)
    throw UsageError{fmt::format("{}: the value is missing; {} is an option", name, values.front())};
  return values.front();
}

/// Cuts "--s 1,2 3" into 1, 2, 3 and passes each to `take` with its argument.
template <class Take>
void for_each_part(const CLI::results_t& values, const std::string& name, const Take& take) {
  for (const std::string& whole : values)
    for (const std::string& part : split(whole)) {
      if (part.empty()) throw UsageError{fmt::format("{}: an empty value in \"{}\"", name, whole)};
      take(part, whole);
    }
}

}  // namespace

bool Given::operator()(const std::string& name) const { return app_->get_option(name)->count() > 0; }

void Given::refuse(std::initializer_list<const char*> names, const std::string& why) const {
  refuse(std::vector<const char*>(names), why);
}

void Given::refuse(const std::vector<const char*>& names, const std::string& why) const {
  for (const char* name : names)
    if ((*this)(name)) throw UsageError{fmt::format("{}: {}", name, why)};
}

void Command::flag(const std::string& name, bool* target, const std::string& help) {
  app_->add_flag(name, *target, help)->group(group_);
}

void Command::text(const std::string& name, std::string* target, const std::string& help, const std::string& type) {
  const auto set = [target, name](const CLI::results_t& values) {
    *target = only_value(values, name);
    return true;
  };
  app_->add_option(name, set, help)->type_name(type)->group(group_)->default_str(*target);
}

void Command::choice(const std::string& name, std::string* target, const std::vector<std::string>& allowed,
                     const std::string& help) {
  const auto set = [target, name, allowed](const CLI::results_t& values) {
    *target = word_of(name, values.front(), allowed);
    return true;
  };
  app_->add_option(name, set, help)->type_name(in_braces(allowed))->group(group_)->default_str(*target);
}

void Command::number(const std::string& name, float* target, const std::string& help) {
  const auto set = [target, name](const CLI::results_t& values) {
    *target = parse_number<float>(values.front(), name, values.front());
    return true;
  };
  app_->add_option(name, set, help)->type_name("NUMBER")->group(group_);
}

void Command::number(const std::string& name, std::optional<float>* target, const std::string& help) {
  const auto set = [target, name](const CLI::results_t& values) {
    *target = parse_number<float>(values.front(), name, values.front());
    return true;
  };
  app_->add_option(name, set, help)->type_name("NUMBER")->group(group_);
}

void Command::integer(const std::string& name, std::int64_t* target, std::int64_t least, std::int64_t most,
                      const std::string& help) {
  const auto set = [=](const CLI::results_t& values) {
    *target = parse_number<std::int64_t>(values.front(), name, values.front());
    if (*target < least || *target > most)
      throw UsageError{fmt::format("{}: {} is not between {} and {}", name, *target, least, most)};
    return true;
  };
  app_->add_option(name, set, help)->type_name("N")->group(group_)->default_str(std::to_string(*target));
}

void Command::list(const std::string& name, std::vector<std::int64_t>* target, const std::string& help) {
  const auto set = [target, name](const CLI::results_t& values) {
    for_each_part(values, name, [&](const std::string& part, const std::string& whole) {
      target->push_back(parse_number<std::int64_t>(part, name, whole));
    });
    return true;
  };
  app_->add_option(name, set, help)
      ->expected(1, CLI::detail::expected_max_vector_size)
      ->type_name("LIST")
      ->group(group_);
}

void Command::list(const std::string& name, std::vector<std::string>* target, const std::string& help) {
  const auto set = [target, name](const CLI::results_t& values) {
    for_each_part(values, name, [&](const std::string& part, const std::string&) { target->push_back(part); });
    return true;
  };
  app_->add_option(name, set, help)
      ->expected(1, CLI::detail::expected_max_vector_size)
      ->type_name("LIST")
      ->group(group_);
}

void Command::list(const std::string& name, std::vector<std::string>* target, const std::vector<std::string>& allowed,
                   const std::string& help) {
  const auto set = [target, name, allowed](const CLI::results_t& values) {
    for_each_part(values, name, [&](const std::string& part, const std::string&) {
      target->push_back(word_of(name, part, allowed));
    });
    return true;
  };
  app_->add_option(name, set, help)
      ->expected(1, CLI::detail::expected_max_vector_size)
      ->type_name(several_of(allowed))
      ->group(group_);
}

void Command::optional(const std::string& name, std::string* target, bool* given, const std::string& help,
                       const std::string& type) {
  const auto set = [target, given](const CLI::results_t& values) {
    *given = true;
    const bool alone = values.empty() || values.front() == "{}" || values.front() == "true";  // as CLI11 writes it
    *target = alone ? "" : values.front();
    return true;
  };
  app_->add_option(name, set, help)->expected(0, 1)->type_name("[" + type + "]")->group(group_);
}

void Command::positional(const std::string& name, std::string* target, const std::vector<std::string>& allowed,
                         bool required, const std::string& help) {
  const auto set = [target, name, allowed](const CLI::results_t& values) {
    *target = only_value(values, name);
    if (!allowed.empty()) *target = word_of(name, *target, allowed);
    return true;
  };
  const std::string type = allowed.empty() ? "FILE" : in_braces(allowed);
  app_->add_option(name, set, help)->required(required)->type_name(type);
}

void Command::positionals(const std::string& name, std::vector<std::string>* target, const std::string& help) {
  app_->add_option(name, *target, help)->type_name("TEXT");
}

void Command::repeated(const std::string& name, std::vector<std::string>* target, const std::string& help,
                       const std::string& type) {
  app_->add_option(name, *target, help)
      ->expected(1)
      ->allow_extra_args(false)
      ->type_name(type)
      ->group(group_)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Command::footer(const std::string& text) { app_->footer(text); }

void Command::excludes(const std::string& a, const std::string& b) {
  app_->get_option(a)->excludes(app_->get_option(b));
}

void Command::run(std::function<int(const Given&)> body) {
  app_->callback([app = app_, exit_code = exit_code_, body = std::move(body)] { *exit_code = body(Given(app)); });
}

}  // namespace falchion::tools
