// src/args/quantise_call.hpp: one run of Quantise as a kernel sees it. It is plain data for the reason that
// attention_call.hpp gives.
#pragma once

#include <cstdint>

#include "args/view.hpp"

namespace falchion {

struct QuantiseCall {
  View x, mean, scale, y;  // mean is null where nothing is subtracted
  std::int64_t b = 0, s = 0, h = 0, d = 0;
  std::int64_t rows = 1, blocks = 0;  // rows of a block, and blocks of a sequence
  bool e4m3 = true, scale_given = false, powers_of_two = false, mean_given = false, rotate = false;
};

}  // namespace falchion
