// tools/command.cpp
#include "command.hpp"

#include <CLI/CLI.hpp>

namespace falchion::tools {
namespace {

// CLI11 puts a validator's description behind the type: the type alone says it better, and completion reads it there.
CLI::Validator member_of(const std::vector<std::string>& allowed) {
  CLI::Validator validator = CLI::IsMember(allowed);
  return validator.description("");
}
std::string in_braces(const std::vector<std::string>& allowed) { return "{" + CLI::detail::join(allowed, ",") + "}"; }

}  // namespace

void Command::flag(const std::string& name, bool* target, const std::string& help) {
  app_->add_flag(name, *target, help)->group(group_);
}

void Command::text(const std::string& name, std::string* target, const std::string& help, const std::string& type) {
  CLI::Option* option = app_->add_option(name, *target, help)->type_name(type)->group(group_);
  if (!target->empty()) option->capture_default_str();
}

void Command::choice(const std::string& name, std::string* target, const std::vector<std::string>& allowed,
                     const std::string& help) {
  CLI::Option* option = app_->add_option(name, *target, help)->check(member_of(allowed))->group(group_);
  option->type_name(in_braces(allowed));
  if (!target->empty()) option->capture_default_str();
}

void Command::number(const std::string& name, float* target, const std::string& help) {
  app_->add_option(name, *target, help)->type_name("NUMBER")->group(group_);
}

void Command::number(const std::string& name, std::optional<float>* target, const std::string& help) {
  app_->add_option(name, *target, help)->type_name("NUMBER")->group(group_);
}

void Command::integer(const std::string& name, std::int64_t* target, std::int64_t least, std::int64_t most,
                      const std::string& help) {
  CLI::Validator range = CLI::Range(least, most);
  app_->add_option(name, *target, help)
      ->capture_default_str()
      ->check(range.description(""))
      ->type_name("N")
      ->group(group_);
}

void Command::list(const std::string& name, std::vector<std::int64_t>* target, const std::string& help) {
  app_->add_option(name, *target, help)->delimiter(',')->type_name("LIST")->group(group_);
}

void Command::list(const std::string& name, std::vector<std::string>* target, const std::string& help) {
  app_->add_option(name, *target, help)->delimiter(',')->type_name("LIST")->group(group_);
}

void Command::optional(const std::string& name, std::string* target, bool* given, const std::string& help,
                       const std::string& type) {
  const auto set = [target, given](const CLI::results_t& values) {
    *given = true;
    *target = values.empty() || values.front() == "{}" || values.front() == "true" ? "" : values.front();
    return true;
  };
  app_->add_option(name, set, help)->expected(0, 1)->type_name("[" + type + "]")->group(group_);
}

void Command::positional(const std::string& name, std::string* target, const std::vector<std::string>& allowed,
                         bool required, const std::string& help) {
  CLI::Option* option = app_->add_option(name, *target, help)->required(required)->type_name("FILE");
  if (!allowed.empty()) option->check(member_of(allowed))->type_name(in_braces(allowed));
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

void Command::run(std::function<int()> body) {
  app_->callback([exit_code = exit_code_, body = std::move(body)] { *exit_code = body(); });
}

}  // namespace falchion::tools
