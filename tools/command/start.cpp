// tools/command/start.cpp: reads the command line, runs its subcommand, and reports errors.
#include "command/start.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "command/completion.hpp"
#include "command/words.hpp"

namespace falchion::tools {

namespace {

/// An error quotes the input; control characters in it must not reach the terminal.
std::string printable(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n') || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

void complain(const std::string& text) { fmt::print(stderr, "falchion: {}\n", printable(text)); }

void add_completion(CLI::App& app, int* exit_code) {
  Command command(app.add_subcommand("completion", "Print a completion script for your shell"), exit_code);
  static std::string shell;
  command.positional("shell", &shell, {"bash", "zsh", "fish"}, true, "bash, zsh or fish");
  command.run([&app](const Given&) {
    fmt::print("{}", completion_script(app, shell));
    return exit_ok;
  });
}

std::vector<std::string> subcommand_names(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::App* sub : app.get_subcommands(nullptr)) out.push_back(sub->get_name());
  return out;
}

/// The closest existing option to the first unknown one on the command line, or "".
std::string unknown_option(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands(nullptr)) {
    if (sub->get_name() != argv[1]) continue;
    for (const CLI::Option* option : sub->get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (int i = 2; i < argc; ++i) {
    const std::string word(argv[i], std::strcspn(argv[i], "="));
    if (!word.starts_with("--") || std::find(names.begin(), names.end(), word) != names.end()) continue;
    return did_you_mean(word, names);
  }
  return "";
}

int parse_and_run(CLI::App& app, int argc, char** argv, const int& exit_code) {
  if (argc == 1) {
    fmt::print("{}", app.help());
    return exit_usage;
  }
  if (argv[1][0] != '-' && app.get_subcommands([&](CLI::App* sub) { return sub->get_name() == argv[1]; }).empty())
    throw UsageError{fmt::format("there is no subcommand \"{}\"; falchion --help lists them{}", argv[1],
                                 did_you_mean(argv[1], subcommand_names(app)))};
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    throw UsageError{
        fmt::format("{}{}\nRun with --help for more information.", error.what(), unknown_option(app, argc, argv))};
  }
  return exit_code;
}

/// Flushes stdout. Only then a full disk or a closed pipe shows.
int after_flush(int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  complain(fmt::format("standard output cannot be written{}{}", errno != 0 ? ": " : "",
                       errno != 0 ? std::strerror(errno) : ""));
  return exit_usage;
}

int run_command_line(std::span<const Subcommand> subcommands, int argc, char** argv) {
  int exit_code = exit_ok;
  try {
    CLI::App app{"falchion: exact attention for C and C++. Start with: falchion demo", "falchion"};
    app.require_subcommand(1);
    app.set_version_flag("--version", std::string("falchion ") + version());
    app.footer(
        "Exit codes: 0 done, 1 a check failed, 2 it could not be done: bad usage or input, a back end that is not "
        "here, "
        "an output that cannot be written, 130 Ctrl-C (bench, verify and ladder tell first what they have).\n"
        "Help on one: falchion SUBCOMMAND --help");
    for (const Subcommand& sub : subcommands) {
      Command command(app.add_subcommand(sub.name, sub.help), &exit_code);
      sub.add(command);
    }
    add_completion(app, &exit_code);
    for (CLI::App* sub : app.get_subcommands(nullptr)) sub->get_formatter()->column_width(34);
    return parse_and_run(app, argc, argv, exit_code);
  } catch (const UsageError& error) { complain(error.what); } catch (const std::bad_alloc&) {
    complain("this needs more memory than there is");
  } catch (const std::exception& error) {
    if (std::ferror(stdout) == 0) complain(error.what());  // otherwise after_flush reports it
  }
  return exit_usage;
}

}  // namespace

int start(std::span<const Subcommand> subcommands, int argc, char** argv) {
  return after_flush(run_command_line(subcommands, argc, argv));
}

}  // namespace falchion::tools
