// src/plan/explain.hpp: the parts of the story that every operation tells alike.
#pragma once

#include <string>
#include <string_view>

#include "plan/plan_data.hpp"

namespace falchion {

/// "cpu avx512"
std::string level_text(const PlanData& plan);
/// One line of the story: the heading in a column of its own.
void line(std::string* out, std::string_view heading, std::string_view body);
/// Of a plan for any build: that this one has not the row, or that no GPU is here. Nothing where it could run.
void explain_absence(const PlanData& plan, std::string* out);
/// Each path that was looked at, with its reason; taken: the last, or "".
void explain_paths(const PlanData& plan, const std::string& taken, std::string* out);

// Linear attention's own: explain_linear.cpp.
std::string describe_linear(const PlanData& plan);
void explain_linear_problem(const PlanData& plan, std::string* out);
void explain_linear(const PlanData& plan, std::string* out);

}  // namespace falchion
