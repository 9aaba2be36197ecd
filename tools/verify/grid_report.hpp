// tools/verify/grid_report.hpp: prints the results of `falchion verify`'s tables of problems.
#pragma once

#include <cstddef>
#include <vector>

#include "verify/grid.hpp"

namespace falchion::tools {

void print_rows(const std::vector<Row>& rows);
/// One line an operation, back end and type: its worst case.
void print_summary(const std::vector<Row>& rows);
void print_rows_as_json(const std::vector<Row>& rows, std::size_t failures);

}  // namespace falchion::tools
