// tools/command/completion.cpp: `falchion completion SHELL`. The script is made from the tree of options, so it is
// always up to date.
#include "command/completion.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <vector>

#include "command/command.hpp"

namespace falchion::tools {
namespace {

struct Flag {
  std::string name, help;  // "--causal"
  bool takes_value, is_list;
  std::vector<std::string> values;  // when only these are allowed
};

/// command.cpp writes the allowed values of an option as its type: "{ref,cpu}".
std::vector<std::string> allowed_values(const CLI::Option& option) {
  std::vector<std::string> out;
  const std::string type = option.get_type_name();
  const std::size_t open = type.find('{'), close = type.find('}', open);
  if (open == std::string::npos || close == std::string::npos) return out;
  for (const auto& value : CLI::detail::split(type.substr(open + 1, close - open - 1), ',')) out.push_back(value);
  return out;
}

std::vector<Flag> flags_of(const CLI::App& app) {
  std::vector<Flag> out;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      out.push_back({fmt::format("--{}", name), option->get_description(), option->get_items_expected_max() > 0,
                     option->get_type_name().ends_with(kListType), allowed_values(*option)});
  return out;
}

std::vector<std::string> positional_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    if (option->get_positional()) return allowed_values(*option);
  return {};
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", CLI::detail::join(words, " ")); }

std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4) text.replace(at, 1, "'\\''");
  return fmt::format("'{}'", text);
}

/// The values of one subcommand's options, as branches of a case: those of a single-value option follow the previous
/// word, those of a list the last option.
std::string bash_values(const CLI::App& sub) {
  std::string single, lists;
  for (const Flag& flag : flags_of(sub)) {
    if (flag.values.empty()) continue;
    if (flag.is_list) {
      lists += fmt::format("        {}) _falchion_list {}; return ;;\n", flag.name, joined(flag.values));
    } else {
      single += fmt::format("        {}) COMPREPLY=($(compgen -W '{}' -- \"$word\")); return ;;\n", flag.name,
                            joined(flag.values));
    }
  }
  if (!single.empty()) single = fmt::format("      case $before in\n{}      esac\n", single);
  if (!lists.empty()) lists = fmt::format("      [[ $word == -* ]] || case $option in\n{}      esac\n", lists);
  return single + lists;
}

std::string bash_script(const CLI::App& root) {
  std::string names, cases;
  for (const CLI::App* sub : root.get_subcommands(nullptr)) {
    names += (names.empty() ? "" : " ") + sub->get_name();
    std::string words = joined(positional_values(*sub));
    for (const Flag& flag : flags_of(*sub)) words += fmt::format(" {}", flag.name);
    cases += fmt::format("    {})\n{}      words='{}' ;;\n", sub->get_name(), bash_values(*sub), words);
  }
  return fmt::format(
      "# bash completion: falchion completion bash > /etc/bash_completion.d/falchion\n"
      "_falchion_list() {{  # the value behind the last comma\n"
      "  local begun=''\n"
      "  if [[ $word == *,* ]]; then begun=${{word%,*}},; compopt -o nospace 2>/dev/null; fi\n"
      "  COMPREPLY=($(compgen -P \"$begun\" -W \"$*\" -- \"${{word##*,}}\"))\n"
      "}}\n"
      "_falchion() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words='' option='' i\n"
      "  if ((COMP_CWORD == 1)); then COMPREPLY=($(compgen -W '{} --help --version' -- \"$word\")); return; fi\n"
      "  for ((i = 2; i < COMP_CWORD; i++)); do [[ ${{COMP_WORDS[i]}} == -* ]] && option=${{COMP_WORDS[i]}}; done\n"
      "  case ${{COMP_WORDS[1]}} in\n{}  esac\n"
      "  if [[ $word == -* || -z $word ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$word\"));\n"
      "  else COMPREPLY=($(compgen -W \"$words\" -- \"$word\") $(compgen -f -- \"$word\")); fi\n"
      "}}\n"
      "complete -o filenames -F _falchion falchion\n",
      names, cases);
}

/// Escapes a text for a zsh spec, where the help is in brackets and a colon ends a field.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_script(const CLI::App& root) {
  std::string list, cases;
  for (const CLI::App* sub : root.get_subcommands(nullptr)) {
    list += fmt::format("    {}\n", quoted(sub->get_name() + ":" + zsh_text(sub->get_description())));
    std::string specs;
    for (const Flag& flag : flags_of(*sub)) {
      std::string spec = fmt::format("{}[{}]", flag.name, zsh_text(flag.help));
      if (flag.takes_value)
        spec += flag.values.empty() ? ":value:_files"
                : flag.is_list      ? fmt::format(":value: _values -s , value {}", joined(flag.values))
                                    : fmt::format(":value:({})", joined(flag.values));
      specs += fmt::format(" {}", quoted(spec));
    }
    if (const auto values = positional_values(*sub); !values.empty())
      specs += fmt::format(" {}", quoted(fmt::format("1:value:({})", joined(values))));
    cases += fmt::format("    {}) _arguments{} ;;\n", sub->get_name(), specs);
  }
  return fmt::format(
      "#compdef falchion\n"
      "# zsh completion: falchion completion zsh > \"${{fpath[1]}}/_falchion\"\n"
      "_falchion() {{\n"
      "  local -a subcommands=(\n{}  )\n"
      "  if ((CURRENT == 2)); then _describe 'subcommand' subcommands; return; fi\n"
      "  local subcommand=$words[2]\n"
      "  shift words; ((CURRENT--))\n"
      "  case $subcommand in\n{}  esac\n"
      "}}\n"
      "_falchion \"$@\"\n",
      list, cases);
}

std::string fish_script(const CLI::App& root) {
  std::string out = "# fish completion: falchion completion fish > ~/.config/fish/completions/falchion.fish\n";
  for (const CLI::App* sub : root.get_subcommands(nullptr)) {
    out += fmt::format("complete -c falchion -f -n __fish_use_subcommand -a {} -d {}\n", sub->get_name(),
                       quoted(sub->get_description()));
    const std::string when = quoted("__fish_seen_subcommand_from " + sub->get_name());
    if (const auto values = positional_values(*sub); !values.empty())
      out += fmt::format("complete -c falchion -f -n {} -a {}\n", when, quoted(joined(values)));
    for (const Flag& flag : flags_of(*sub)) {
      std::string value = flag.takes_value ? " -r" : "";
      const std::string values = joined(flag.values);
      if (!values.empty())
        value = fmt::format(" -x -a {}", quoted(flag.is_list ? fmt::format("(__fish_append , {})", values) : values));
      out += fmt::format("complete -c falchion -n {} -l {} -d {}{}\n", when, flag.name.substr(2), quoted(flag.help),
                         value);
    }
  }
  return out;
}

}  // namespace

std::string completion_script(const CLI::App& root, const std::string& shell) {
  return shell == "bash" ? bash_script(root) : shell == "zsh" ? zsh_script(root) : fish_script(root);
}

}  // namespace falchion::tools
