// src/policy/rotary.hpp: rotary embedding: which columns turn together, and by which row of the table. This is the
// definition; every path asks it.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"

namespace falchion {

/// The table (1, positions, 2, dim / 2): of each position the cosines of its angles, then the sines.
struct RotaryTable {
  const float* data = nullptr;
  std::int64_t stride_position = 0, stride_sine = 0, stride_pair = 0;  // in elements
  std::int64_t positions = 0;
  std::int64_t dim = 0;  // columns that turn; 0: none does
  bool pairs = false;    // column 2 i turns with 2 i + 1, else i with i + dim / 2

  struct Turn {
    float cosine, sine;
    template <class Real>
    FALCHION_HD Real first(Real x, Real y) const {
      return x * static_cast<Real>(cosine) - y * static_cast<Real>(sine);
    }
    template <class Real>
    FALCHION_HD Real second(Real x, Real y) const {
      return y * static_cast<Real>(cosine) + x * static_cast<Real>(sine);
    }
  };
  /// Where the cosine of pair `i` is, at a position. One outside the table is clamped.
  FALCHION_HD const float* cosine(std::int64_t position, std::int64_t i) const {
    const std::int64_t row = position < 0 ? 0 : position >= positions ? positions - 1 : position;
    return data + row * stride_position + i * stride_pair;
  }
  FALCHION_HD Turn at(std::int64_t position, std::int64_t i) const {
    const float* x = cosine(position, i);
    return {x[0], x[stride_sine]};
  }
  FALCHION_HD std::int64_t first_column(std::int64_t i) const { return pairs ? 2 * i : i; }
  FALCHION_HD std::int64_t second_column(std::int64_t i) const { return pairs ? 2 * i + 1 : i + dim / 2; }
};

}  // namespace falchion
