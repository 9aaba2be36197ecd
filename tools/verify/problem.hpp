// tools/verify/problem.hpp: a problem of a storm, and how its line is parsed (src/api/problem_line.hpp writes it).
#pragma once

#include <string>

#include "problem/operation.hpp"

namespace falchion::tools::storm {

using line::batch_of;
using line::Broadcast;
using line::Data;
using line::Lengths;
using line::Problem;
using line::resize;
using line::Storage;
using line::sum;
using line::to_text;

/// Parses a problem. Throws UsageError with the unknown key.
Problem parse_problem(const std::string& text);
/// The command that repeats the problem: falchion verify --problem '...'
std::string command_of(const Problem& problem);

/// Call it after changing a size or flag: resizes lists to b, and drops the fields of disabled features. The result is
/// exactly what the text has, so the text parses back to the same problem.
void tidy(Problem* problem);

}  // namespace falchion::tools::storm
