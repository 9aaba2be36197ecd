// tests/support/instance.hpp: a case of cases.def with its memory: problem, operands and outputs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fields.hpp"
#include "falchion/falchion.hpp"
#include "support/tensor.hpp"

namespace falchion::testing {

/// One line of cases.def: CASE(name, b, s_q, s_k, h_q, h_k, d_qk, d_v, .feature().feature()).
struct Case {
  const char* name;
  std::int64_t b, s_q, s_k, h_q, h_k, d_qk, d_v;
  Attention options{.lse = true};  // without sizes; of lengths, the flags follow from the lists
  enum class Bias { none, f32, same, broadcast } bias_ = Bias::none;
  // lengths are those of packed sequences.
  std::vector<std::int32_t> lengths_q{}, lengths_k{};
#define FALCHION_LENGTHS(key, ...) std::vector<std::int32_t> key##_{};
#include "base/fields.def"
  bool slopes_by_batch_ = false;
  Layout layout_ = Layout::dense;

  Case band(Band x) && {
    return with([&](Case& c) { c.options.band = x; });
  }
  Case causal(Align align = Align::bottom_right, std::int64_t offset = 0) && {
    return with([&](Case& c) { c.options.band = Band::causal(align, offset); });
  }
  Case window(std::int64_t left, std::int64_t right, Align align = Align::bottom_right, std::int64_t offset = 0) && {
    return with([&](Case& c) { c.options.band = Band::window(left, right, align, offset); });
  }
  Case bias(Bias kind) && {
    return with([&](Case& c) {
      c.bias_ = kind;
      c.options.bias = kind != Bias::none;
    });
  }
  Case no_lse() && {
    return with([](Case& c) { c.options.lse = false; });
  }
  Case packed(std::vector<std::int32_t> q, std::vector<std::int32_t> k) && {
    return with([&](Case& c) {
      c.lengths_q = std::move(q);
      c.lengths_k = std::move(k);
    });
  }
  /// Gives each sequence its own slopes, and its own sinks.
  Case alibi_by_batch() && {
    return with([](Case& c) { c.options.alibi = c.slopes_by_batch_ = true; });
  }
  Case sinks_by_batch() && {
    return with([](Case& c) { c.options.sinks = c.slopes_by_batch_ = true; });
  }
  Case layout(Layout x) && {
    return with([&](Case& c) { c.layout_ = x; });
  }

  // And by its name each number, operand, output and flag that the forward pass has:
  // .softcap(5).alibi().row_max().used_k({3}).
#define FALCHION_CASE_type(key, member)
#define FALCHION_CASE_size(key, member)
#define FALCHION_CASE_band(key, member)
#define FALCHION_CASE_packing(key, member)
#define FALCHION_CASE_number(key, member)                \
  Case key(float x)&& {                                  \
    return with([&](Case& c) { c.options.member = x; }); \
  }
#define FALCHION_CASE_tensor(key, member)                  \
  Case key()&& {                                           \
    return with([](Case& c) { c.options.member = true; }); \
  }
#define FALCHION_CASE_output FALCHION_CASE_tensor
#define FALCHION_CASE_flag FALCHION_CASE_tensor
#define FALCHION_FIELD(kind, key, member, option, text) FALCHION_CASE_##kind(key, member)
#define FALCHION_FORWARD_FIELD FALCHION_FIELD
#define FALCHION_LENGTHS(key, ...)                          \
  Case key(std::vector<std::int32_t> x)&& {                 \
    return with([&](Case& c) { c.key##_ = std::move(x); }); \
  }
#include "base/fields.def"

 private:
  template <class Change>
  Case with(const Change& change) {
    change(*this);
    return std::move(*this);
  }
};

/// Every case of cases.def.
const std::vector<Case>& cases();

/// What the forward pass reads and writes; gradients stay empty. Inputs are random normal numbers. Whatever lies beyond
/// a length, between rows or past the total is NaN. Outputs are filled with poison.
struct Instance {
  Attention problem;
#define FALCHION_OPERAND(name, ...) HostTensor name;
#define FALCHION_LENGTHS(key, ...) std::vector<std::int32_t> key;
#include "base/fields.def"
  std::vector<std::int32_t> cu_q, cu_k, page_starts;
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
