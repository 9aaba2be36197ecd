// tools/verify/attention/inputs.hpp: the inputs of both passes of attention: their places in the image, and their
// numbers.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/fields.hpp"
#include "falchion/falchion.hpp"
#include "problem/page_table.hpp"
#include "verify/contents.hpp"
#include "verify/draw.hpp"
#include "verify/image.hpp"
#include "verify/problem.hpp"

namespace falchion::tools::storm {

class AttentionInputs {
 public:
  explicit AttentionInputs(const Problem& problem);

  /// Adds the inputs to the image, which is not yet allocated.
  void lay_out(Image* image);
  /// Makes the numbers.
  void fill();
  /// Writes the numbers into the image, which is allocated.
  void write(std::byte* base) const;

  /// The inputs in a copy of the image. The other operands stay empty.
  Operands operands(const std::byte* base) const;
  /// The same numbers for the definition, dense and in f32. `base` is the image, for masks and lengths.
  Operands reference_operands(const std::byte* base) const;

  /// Puts NaN into the rows of x outside of all sequences. They are those of the axis `rows`, where the axis 0 is the
  /// batch. Rows that share memory are left alone.
  void spoil(Contents* x, const Storage& storage, bool of_queries, std::size_t rows = 1,
             bool with_new_keys = false) const;
  /// The numbers of stream n of this problem.
  std::uint64_t stream(std::uint64_t n) const { return random_bits(p_.data.seed, n); }
  /// Of q and o: 1 when packed, where all sequences lie in one batch entry.
  std::int64_t batch() const { return q_.batch; }
  std::int64_t q_rows() const { return q_.rows; }
  std::int64_t k_rows() const { return k_.rows; }
  /// The shape (b, h_q, s_q, s_k) with extents of 1 along the axes of the broadcast.
  Contents::Shape scores(const Broadcast& broadcast) const;

 private:
  /// Of a tensor.
  struct Extents {
    std::int64_t batch, rows;
  };
  struct Array {
    const char* name;
    std::size_t offset = 0;
    std::vector<std::int32_t> data{};
  };
  /// f(array) for each; `self` is one of us, const or not.
  template <class Self, class F>
  static void each_array(Self& self, const F& f) {
    f(self.cu_q_);
    f(self.cu_k_);
    f(self.starts_);
#define FALCHION_LENGTHS(key, ...) f(self.key##_);
#include "base/fields.def"
  }

  /// f(operand, its input) for each that the problem has; `self` is one of us, const or not.
  template <class Self, class F>
  static void each_input(Self& self, const F& f) {
    each_operand(self.a_, Pass::forward, self.in_, [&](const OperandField& of, auto& input, bool wanted) {
      if (of.forward == OperandField::reads && wanted) f(of, input);
    });
  }
  /// The axes with extent 1.
  unsigned ones_of(const OperandField& of) const;

  Extents extents_of_k() const;
  std::int64_t queries_of(std::int64_t b) const;
  KeyRange keys_of_cache(std::int64_t b, bool with_new_keys) const;
  bool is_written(std::string_view name) const;
  /// f(entry of the batch, row) for each row that belongs to a sequence.
  template <class F>
  void each_row_in_use(bool of_queries, bool with_new_keys, const F& f) const;
  void write_table(std::byte* base) const;
  void fill_scores();
  void fill_rotary();
  static float deviation_of(bool scaled, DType dtype, float wanted);
  void fill_scales(Contents* data, DType dtype, float wanted, std::uint64_t draws);
  void fill_codes(Contents* data, DType dtype, std::uint64_t draws);
  void spoil_blocks();
  void fill_bias();
  void fill_mask();
  void fill_head_numbers(Contents* data, bool any_sign) const;
  void fill_sinks(Contents* data) const;
  void plant();

  const Problem p_;
  const Attention a_;
  const PageTable table_;  // of a cache with pages
  const Extents q_, k_;
  struct Input {
    Image::Place place;
    Contents data;
  };
  struct Inputs {  // those that no pass reads stay empty
#define FALCHION_OPERAND(name, ...) Input name;
#include "base/fields.def"
  } in_;
  std::size_t rng_at_ = 0;
  Array cu_q_{"cu_seqlens_q"}, cu_k_{"cu_seqlens_k"}, starts_{"page_starts"};
#define FALCHION_LENGTHS(key, ...) Array key##_{#key};
#include "base/fields.def"
};

}  // namespace falchion::tools::storm
