// tools/command/start.hpp: common to the main functions of the command.
#pragma once

#include <span>

#include "tool.hpp"

namespace falchion::tools {

struct Subcommand {
  const char *name, *help;
  void (*add)(Command&);
};

/// Runs the subcommand that the command line names. Returns the exit code.
int start(std::span<const Subcommand> subcommands, int argc, char** argv);

}  // namespace falchion::tools
