// tools/command/print_json.hpp: how the command prints JSON. The library's own writer (plan/json.hpp) makes it, since a
// parser that only writes takes the compiler two seconds in each file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/json.hpp"

namespace falchion::tools {

/// Valid JSON with one member or element a line, each `indent` spaces further in than what it is in.
std::string pretty(std::string_view json, int indent = 1);
/// The same of a value, on stdout.
void print_json(const Json& json, int indent = 1);

}  // namespace falchion::tools
