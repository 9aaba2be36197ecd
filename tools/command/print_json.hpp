// tools/command/print_json.hpp: how the command prints JSON. It uses the library's own writer (plan/json.hpp), because
// nlohmann's header would take two seconds more to compile in each file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/json.hpp"

namespace falchion::tools {

/// Lays out valid JSON with each member and element on a line of its own, indented by `indent` spaces more than what
/// contains it.
std::string pretty(std::string_view json, int indent = 1);
/// Prints a value on stdout in that form.
void print_json(const Json& json, int indent = 1);

}  // namespace falchion::tools
