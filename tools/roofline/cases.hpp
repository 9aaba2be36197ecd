// tools/roofline/cases.hpp: the shapes of `falchion roofline`, from its options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command/command.hpp"
#include "roofline/model.hpp"

namespace falchion::tools::roofline {

struct ShapeOptions {
  std::vector<std::int64_t> b, h_q, h_k, s, s_q, s_k, d, d_v, chunk, m, n, k;
  std::int64_t block_rows = 128;
  std::string dtype = "bf16";
  bool causal = false, lse = false, mla = false, spill = false;

  void add_to(Command& command);
  /// True if the user gave a size. cases() rejects options that its mode ignores.
  bool given() const;
  int element_bytes() const;
  /// Every combination of the sizes; the mode's usual shapes if none is given. Throws UsageError.
  std::vector<Case> cases(const std::string& mode) const;
};

}  // namespace falchion::tools::roofline
