// tools/tool.hpp: common to all subcommands of `falchion`: how they are added, and how they fail.
#pragma once

#include <string>

#include "command/command.hpp"
#include "falchion/falchion.hpp"

namespace falchion::tools {

/// The exit codes are the same for every subcommand, because scripts branch on them. exit_usage means that the work
/// could not be done because of the usage, the input, a missing back end or an output that cannot be written.
enum Exit : int { exit_ok = 0, exit_failed = 1, exit_usage = 2 };

/// Thrown for invalid usage or input. main prints `what` on stderr and ends with exit_usage.
struct UsageError {
  std::string what;
};

/// Turns a refusal of the library into a UsageError with the library's message.
inline void require(const Status& status, const std::string& during = "") {
  if (!status) throw UsageError{during.empty() ? status.why : during + ": " + status.why};
}

// Each subcommand's file has one of these functions, which declares the options and the function to run.
void add_run(Command& command);
void add_verify(Command& command);
void add_bench(Command& command);
void add_explain(Command& command);
void add_info(Command& command);
void add_map(Command& command);
void add_demo(Command& command);
void add_ladder(Command& command);
void add_layout(Command& command);
void add_roofline(Command& command);

}  // namespace falchion::tools
