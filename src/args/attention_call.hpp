// src/args/attention_call.hpp: one call of attention as every kernel sees it. Plain data: a kernel is compiled once for
// each CPU level and GPU, and nothing with an out-of-line inline function (std::string, std::vector) may be seen by two
// of them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace falchion {

/// Axes (b, s, h, d), or (b, h, s_q, s_k) for bias, mask, probabilities, (b, h, s_q, 1) for lse, row_max.
struct View {
  void* data = nullptr;         // null: absent
  std::int64_t stride[4] = {};  // elements
};

struct AttentionCall {
  View q, k, v, o, lse, row_max, probabilities, bias, mask;
  bool bias_f32 = false;                                                      // else the input type
  const float* alibi = nullptr;                                               // (h_q) or null
  std::int64_t b = 0, s_q = 0, s_k = 0, h_q = 0, h_k = 0, d_qk = 0, d_v = 0;  // s: capacity of one sequence
  bool packed = false;                                                        // q, k, v, o are (1, total, h, d)
  const std::int32_t *cu_q = nullptr, *cu_k = nullptr;                        // (b + 1) when packed
  std::int64_t total_q = 0, total_k = 0;                                      // packed: rows there are
  const std::int32_t *used_q = nullptr, *used_k = nullptr;                    // (b) or null
  std::int64_t left = -1, right = -1;                                         // band; below 0 unbounded
  bool top_left = false;
  float scale = 1, softcap = 0;  // scale is final
  float dropout = 0;
  std::uint64_t seed = 0, offset = 0;
};

}  // namespace falchion
