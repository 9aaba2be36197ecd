// tests/support/instance.hpp: a case of cases.def with its memory: problem, operands and outputs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "falchion/falchion.hpp"
#include "support/tensor.hpp"

namespace falchion::testing {

/// One line of cases.def: CASE(name, b, s_q, s_k, h_q, h_k, d_qk, d_v, .feature().feature()).
struct Case {
  const char* name;
  std::int64_t b, s_q, s_k, h_q, h_k, d_qk, d_v;
  Band band_{};
  Score score_{};
  float dropout_ = 0;
  bool alibi_ = false, mask_ = false, lse_ = true, row_max_ = false, probabilities_ = false;
  enum class Bias { none, f32, same, broadcast } bias_ = Bias::none;
  // lengths are those of packed sequences.
  std::vector<std::int32_t> lengths_q{}, lengths_k{}, used_q_{}, used_k_{}, first_k_{};
  bool slopes_by_batch_ = false;
  Layout layout_ = Layout::dense;

  Case band(Band x) && {
    band_ = x;
    return std::move(*this);
  }
  Case causal(Align align = Align::bottom_right, std::int64_t offset = 0) && {
    band_ = Band::causal(align, offset);
    return std::move(*this);
  }
  Case window(std::int64_t left, std::int64_t right, Align align = Align::bottom_right, std::int64_t offset = 0) && {
    band_ = Band::window(left, right, align, offset);
    return std::move(*this);
  }
  Case scale(float x) && {
    score_.scale = x;
    return std::move(*this);
  }
  Case softcap(float x) && {
    score_.softcap = x;
    return std::move(*this);
  }
  Case dropout(float p) && {
    dropout_ = p;
    return std::move(*this);
  }
  Case alibi() && {
    alibi_ = true;
    return std::move(*this);
  }
  Case bias(Bias kind) && {
    bias_ = kind;
    return std::move(*this);
  }
  Case mask() && {
    mask_ = true;
    return std::move(*this);
  }
  Case no_lse() && {
    lse_ = false;
    return std::move(*this);
  }
  Case row_max() && {
    row_max_ = true;
    return std::move(*this);
  }
  Case probabilities() && {
    probabilities_ = true;
    return std::move(*this);
  }
  Case packed(std::vector<std::int32_t> q, std::vector<std::int32_t> k) && {
    lengths_q = std::move(q);
    lengths_k = std::move(k);
    return std::move(*this);
  }
  Case used_q(std::vector<std::int32_t> x) && {
    used_q_ = std::move(x);
    return std::move(*this);
  }
  Case used_k(std::vector<std::int32_t> x) && {
    used_k_ = std::move(x);
    return std::move(*this);
  }
  Case first_k(std::vector<std::int32_t> x) && {
    first_k_ = std::move(x);
    return std::move(*this);
  }
  /// Gives each sequence its own slopes.
  Case alibi_by_batch() && {
    alibi_ = slopes_by_batch_ = true;
    return std::move(*this);
  }
  Case layout(Layout x) && {
    layout_ = x;
    return std::move(*this);
  }
};

/// Every case of cases.def.
const std::vector<Case>& cases();

/// Inputs are random normal numbers. Whatever lies beyond a length, between rows or past the total is NaN. Outputs are
/// filled with poison.
struct Instance {
  Attention problem;
  HostTensor q, k, v, o, lse, row_max, probabilities, bias, mask;
  HostTensor alibi;
  std::vector<std::int32_t> cu_q, cu_k, used_q, used_k, first_k;
  Rng rng{0x123456789ABCDEFu, 0x100000002u, nullptr};
  /// run() sets this for tensor-core paths. There 0 x NaN may reach that column of the rows that share a tile with the
  /// key (docs/contract.md, "NaN or Inf in V of a masked key inside the valid length").
  bool shares_tiles = false;

  Operands operands() const;
  std::vector<const HostTensor*> tensors() const;
  void poison_outputs();
  /// Rows [0, length) of each sequence, as (batch index, first row, length) in q and in k.
  struct Rows {
    std::int64_t batch, begin, length;
  };
  Rows q_rows(std::int64_t b) const;
  Rows k_rows(std::int64_t b) const;
};

/// o_dtype is the type of the output tensor, when it should be wider than the problem's (for ref alone).
Instance make_instance(const Case& row, DType dtype, std::uint64_t seed = 1);

/// An instance with the same inputs and its own outputs, with o in f32.
Instance with_wide_output(const Instance& x);

}  // namespace falchion::testing
