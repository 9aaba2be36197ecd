// tests/support/far_rows.hpp: memory in which the rows of tensors lie so far apart that offsets need more than 32 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "falchion/falchion.hpp"
#include "support/paths.hpp"

namespace falchion::testing {

/// Maps rows * step elements. The system gives memory only to the pages that are written.
class FarRows {
 public:
  FarRows(std::int64_t rows, std::int64_t step, DType dtype);
  ~FarRows();
  FarRows(const FarRows&) = delete;
  FarRows& operator=(const FarRows&) = delete;

  /// Returns why the test cannot run here on this path, or an empty string.
  std::string why_not(const Path& path) const;
  /// Copies a tensor (1, rows, 1, at most 64) to rows that lie `step` elements apart, and makes it the view of these.
  /// The rows of the next tensor lie 64 elements further on.
  void move(Tensor* tensor);

 private:
  std::int64_t step_, used_ = 0;  // in elements
  std::size_t bytes_;
  void* memory_;
};

/// Copies the rows of a tensor (1, rows, 1, d) to another of its shape. Rows have no gaps between their elements.
void copy_rows(const Tensor& from, const Tensor& to);

}  // namespace falchion::testing
