// tools/roofline/points.hpp: measured points for the roofline, read from the files that the benchmarks write.
#pragma once

#include <string>
#include <vector>

namespace falchion::tools::roofline {

struct Point {
  std::string name;                 // "falchion burst/bf16/d:128/s:4096/full"
  std::string series;               // "falchion d 128 full, burst": what shares a marker in a picture
  double intensity = 0, flops = 0;  // FLOP/B of the operands moved once, FLOP/s
  int element_bytes = 2;
};

/// rows[] of bench/compare_torch.py, or benchmarks[] of `falchion bench --json`. Rows without one length (varlen) have
/// no single intensity and are left out. Throws UsageError with the file's name if it has no usable rows.
std::vector<Point> read_points(const std::string& path);

/// The points whose name or series has every word. An empty list keeps all.
std::vector<Point> matching(const std::vector<Point>& points, const std::vector<std::string>& words);

}  // namespace falchion::tools::roofline
