// tools/ladder/sample.hpp: the part of a ladder's problem that is compared with the definition, which would take too
// long for all of it.
#pragma once

#include <cstdint>
#include <string>

#include "ladder/attention/step.hpp"
#include "ladder/ladder.hpp"
#include "problem/tensors.hpp"

namespace falchion::tools {

/// Some heads, rows and keys of a problem, evenly spread, including the first and the last. They form a smaller
/// problem, where each head is a batch entry. Its band is given as a mask, since its rows and keys are not adjacent.
struct Sample {
  ladder::Problem of;
  std::int64_t heads, rows, keys;

  Attention attention(DType dtype) const;
  HostTensor mask() const;                              ///< (1, 1, rows, keys)
  HostTensor rows_of(const HostTensor& x) const;        ///< of (b, s_q, h, d): (heads, rows, 1, d)
  HostTensor keys_of(const HostTensor& x) const;        ///< of (b, s_k, h, d): (heads, keys, 1, d)
  HostTensor statistics_of(const HostTensor& x) const;  ///< of (b, h, s_q, 1): (heads, 1, rows, 1)

  std::string text_of_rows() const;  ///< "128 of the 2048 rows in 4 of the 128 heads"
  std::string text_of_keys() const;

 private:
  HostTensor lines_of(const HostTensor& x, std::int64_t lines) const;
};

/// The heads of a sample.
inline std::int64_t sampled_heads(const ladder::Problem& p) { return p.b * p.h < 4 ? std::int64_t{p.b} * p.h : 4; }

/// The sizes in the options of a ladder of attention, forward or backward.
ladder::Problem attention_sizes(const LadderOptions& options, Side side);
/// The problem for the library, whose own scale is 1 / sqrt(d) too.
Attention attention_of(const ladder::Problem& p, DType dtype);

/// How many elements of a dense tensor are not finite. Inputs are finite, so every result is; poison is not.
std::int64_t count_not_finite(const HostTensor& x);

}  // namespace falchion::tools
