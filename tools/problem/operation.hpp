// tools/problem/operation.hpp: the operations of the command. Whoever adds an operation adds its entry to
// src/api/problem_line.cpp, and --op of run, bench, explain and verify has it.
#pragma once

#include <string>
#include <vector>

#include "api/problem_line.hpp"

namespace falchion::tools {

using line::command_operations;
using line::CommandOperation;
using line::entry_of;
using line::Kind;
using line::kind_of;
using line::name;
using line::Op;
using line::pass_of;

/// Throws UsageError, which names the option that the text was given to.
Op parse_op(const std::string& text, const char* option = "--op");

std::vector<std::string> operation_names();
std::string operation_list();  // "attention, linear, linear-backward, ..."
std::vector<Op> operations_of(Kind kind);
std::string operation_list(const std::vector<Op>& ops);  // "linear and linear-backward"
inline std::string operation_list(Kind kind) { return operation_list(operations_of(kind)); }

}  // namespace falchion::tools
