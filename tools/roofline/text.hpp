// tools/roofline/text.hpp: the output of `falchion roofline`: tables, crossovers, the answer as text, and JSON.
#pragma once

#include <string>
#include <vector>

#include "plan/json.hpp"
#include "roofline/model.hpp"
#include "roofline/points.hpp"

namespace falchion::tools::roofline {

/// The columns of docs/roofline.md's table side by side. mode: "" for all its rows.
std::string table_text(const std::vector<Device>& devices, const std::string& mode);
/// A line a shape: work, the time at each roof, the roof that binds.
std::string cases_text(const Device& device, const std::vector<Case>& cases);
/// A line a measured point, beside the roofs over it.
std::string points_text(const Device& device, const std::vector<Point>& points);
/// "Is attention memory bound or compute bound?", with numbers.
std::string answer_text(const std::vector<Device>& devices, const std::string& mode, int element_bytes);

/// The limit at an intensity, FLOP/s: memory's slope or the products' ceiling.
double ceiling(const Device& device, double intensity, int element_bytes);

/// Numbers of the table and the crossovers in full; seconds, bytes, FLOP. Infinite is null.
Json device_json(const Device& device, const std::string& mode, int element_bytes);
Json case_json(const Device& device, const Case& one);
Json point_json(const Device& device, const Point& point);

}  // namespace falchion::tools::roofline
