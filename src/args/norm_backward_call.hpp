// src/args/norm_backward_call.hpp: one sweep of the backward pass of a norm over its rows, as every kernel sees it. It
// is plain data for the reason that attention_call.hpp gives.
#pragma once

#include <cstdint>

#include "args/norm_call.hpp"

namespace falchion {

/// A gradient that is summed over the rows of a group: (b, s, h, d), with a stride of 0 along the axes of its rows.
struct NormSum {
  View to;  // null: not wanted
  Number type{};
};

/// The axes of the rows are ordered so that the rows of a group, which share an element of grad_weight and grad_bias,
/// follow each other: group g has the rows [g group, (g + 1) group). Where the two are shared along different axes, a
/// run is two sweeps with a grouping each. Each group is cut into `parts` parts of part_rows rows. One part: its sums
/// go to grad_weight and grad_bias; else each part has its own sums in the workspace, which are added in their order.
struct NormBackwardCall : NormRows {
  View x, weight, grad_y, grad_residual_out;  // null: absent
  View grad_x;                                // null: not wanted
  NormSum grad_weight, grad_bias;
  Number weight_type{}, grad_y_type{}, residual_type{};  // that of x and grad_x is the variant's
  std::int64_t groups = 1, group = 0;                    // how many there are; the rows of one
  std::int64_t parts = 1, part_rows = 0;                 // of a group

  FALCHION_HD bool has_sums() const { return grad_weight.to.data != nullptr || grad_bias.to.data != nullptr; }
  // A part's sums in the workspace: d of grad_weight, then d of grad_bias, of those that are wanted.
  FALCHION_HD std::int64_t sums_of_part() const {
    return d * ((grad_weight.to.data != nullptr ? 1 : 0) + (grad_bias.to.data != nullptr ? 1 : 0));
  }
  FALCHION_HD std::int64_t begin_of_bias() const { return grad_weight.to.data != nullptr ? d : 0; }
};

}  // namespace falchion
