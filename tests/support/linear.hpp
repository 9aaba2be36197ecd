// tests/support/linear.hpp: a case of linear_cases.def with its memory, and what its results are compared with.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "falchion/falchion.hpp"
#include "support/paths.hpp"
#include "support/tensor.hpp"

namespace falchion::testing {

/// One line of linear_cases.def: CASE(name, b, s, h_qk, h_v, d_qk, d_v, .feature().feature()).
struct LinearCase {
  const char* name;
  std::int64_t b, s, h_qk, h_v, d_qk, d_v;
  float scale_ = 0;
  bool elu_ = false, normalise_ = false, reverse_ = false, initial_ = false, final_ = false, in_place_ = false;
  // In the positive case all q and k are above 0, and a strong decay forgets within a few tokens.
  bool positive_ = false, strong_ = false;
  bool large_ = false;  // Products q k are past f16's 65504, and o is within it.
  // k and v double every 12 tokens, and q shrinks so that o stays in range. Such cases are for f32.
  bool growing_ = false;
  Decay decay_ = Decay::none;
  std::vector<std::int32_t> lengths{};  // The lengths of packed sequences.
  Layout layout_ = Layout::dense, state_layout_ = Layout::dense;
  int segments_ = 0;
  int spare_ = 3;  // So many rows lie behind the last packed sequence.

  LinearCase scale(float x) && {
    scale_ = x;
    return std::move(*this);
  }
  LinearCase elu() && {
    elu_ = true;
    return std::move(*this);
  }
  LinearCase normalise() && {
    normalise_ = true;
    return std::move(*this);
  }
  LinearCase reverse() && {
    reverse_ = true;
    return std::move(*this);
  }
  LinearCase initial() && {
    initial_ = true;
    return std::move(*this);
  }
  LinearCase final() && {
    final_ = true;
    return std::move(*this);
  }
  LinearCase states() && {
    initial_ = final_ = true;
    return std::move(*this);
  }
  LinearCase in_place() && {
    initial_ = final_ = in_place_ = true;
    return std::move(*this);
  }
  LinearCase positive() && {
    positive_ = true;
    return std::move(*this);
  }
  LinearCase large() && {
    positive_ = large_ = true;
    return std::move(*this);
  }
  LinearCase growing() && {
    growing_ = true;
    return std::move(*this);
  }
  LinearCase strong() && {
    strong_ = true;
    return std::move(*this);
  }
  LinearCase decay(Decay x) && {
    decay_ = x;
    return std::move(*this);
  }
  LinearCase packed(std::vector<std::int32_t> x) && {
    lengths = std::move(x);
    return std::move(*this);
  }
  LinearCase layout(Layout x) && {
    layout_ = x;
    return std::move(*this);
  }
  LinearCase state_layout(Layout x) && {
    state_layout_ = x;
    return std::move(*this);
  }
  LinearCase segments(int x) && {
    segments_ = x;
    return std::move(*this);
  }
  LinearCase spare(int x) && {
    spare_ = x;
    return std::move(*this);
  }
};

/// Every case of linear_cases.def.
const std::vector<LinearCase>& linear_cases();

/// Inputs are random. Whatever lies between rows or past the total is NaN. Outputs are filled with poison.
struct LinearInstance {
  LinearAttention problem;
  HostTensor q, k, v, o, decay, initial_state, initial_z, final_state, final_z;
  HostTensor grad_o, grad_final_state, grad_final_z;
  HostTensor grad_q, grad_k, grad_v, grad_decay, grad_initial_state, grad_initial_z;
  std::vector<std::int32_t> cu;
  int segments = 0;
  bool in_place = false;  // In the forward pass final_state has the memory of initial_state.

  LinearOperands operands(Pass pass) const;
  std::vector<const HostTensor*> tensors() const;
  void poison_outputs();
  /// Whether this row of this batch entry belongs to a sequence.
  bool is_row(std::int64_t batch, std::int64_t row) const;
};

LinearInstance make_linear_instance(const LinearCase& row, DType dtype, std::uint64_t seed = 1);

/// An instance with the same inputs and its own outputs, all in f32.
LinearInstance with_wide_outputs(const LinearInstance& x);

/// What the definition gives, without rounding.
LinearInstance linear_reference(const LinearInstance& x, Pass pass);

/// Makes a plan, fills the outputs with poison and runs. On a GPU it runs on copies of the whole allocations.
Status run(const Target& target, Pass pass, LinearInstance* x);

/// Checks that only elements of the outputs were written, and that they are right by the rule of src/judge. `exact` is
/// what linear_reference made of x.
::testing::AssertionResult matches(const LinearInstance& x, const LinearInstance& exact, Pass pass);

/// Returns RMS(a - b) / RMS(b), over the rows of sequences with row_axis 1, or over all rows with row_axis 0.
double rms_ratio(const LinearInstance& x, const HostTensor& a, const HostTensor& b, bool rows);

}  // namespace falchion::testing
