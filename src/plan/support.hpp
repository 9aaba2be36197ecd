// src/plan/support.hpp: the features and types of each back end, as the tables of docs/support.md.
#pragma once

#include <string>

namespace falchion {

/// A table in Markdown for each operation, of its types and features, from variants.def alone, so that it depends
/// neither on the build nor on the machine.
std::string support_tables();

}  // namespace falchion
