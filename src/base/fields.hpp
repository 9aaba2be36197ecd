// src/base/fields.hpp: walks over the fields of attention's problem and over the operands of its runs, which
// base/fields.def lists.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/size.hpp"
#include "falchion/falchion.hpp"

namespace falchion {

enum class FieldKind : std::uint8_t { type, size, band, number, tensor, output, flag, word, packing, lengths };
struct Field {
  FieldKind kind;
  std::string_view key;       // "scale"
  std::string_view member;    // "score.scale"
  const char *option, *text;  // "--scale", a line of help
  bool forward, backward;     // which pass has it
  bool in(Pass pass) const { return pass == Pass::forward ? forward : backward; }
  const char* word() const { return option + 2; }
};

/// f(field, member) for each field; `a` is an Attention, const or not. Of lengths the member is the flag.
template <class A, class F>
void each_field(A&& a, const F& f) {
#define FALCHION_FIELD(kind, key, member, option, text) \
  f(Field{FieldKind::kind, #key, #member, option, text, true, true}, a.member);
#define FALCHION_FORWARD_FIELD(kind, key, member, option, text) \
  f(Field{FieldKind::kind, #key, #member, option, text, true, false}, a.member);
#define FALCHION_BACKWARD_FIELD(kind, key, member, option, text) \
  f(Field{FieldKind::kind, #key, #member, option, text, false, true}, a.member);
#define FALCHION_CACHE_FIELD(kind, key, member, option, text) \
  f(Field{FieldKind::kind, #key, #member, option, text, true, false}, a.member);
#define FALCHION_LENGTHS(key, side, usual, has, option, text) \
  f(Field{FieldKind::lengths, #key, #key, option, text, true, true}, a.key);
#include "base/fields.def"
}

/// Without what the field says. Of a band that is no bound, so it has none of these.
inline void reset(Attention* a, const Field& field) {
  each_field(*a, [&](const Field& other, auto& x) {
    if (other.kind != FieldKind::band && other.key == field.key) x = {};
  });
}

/// Has each sequence a number of its own: used lengths, first keys?
constexpr bool has_lengths(const Attention& a) {
  bool any = false;
#define FALCHION_LENGTHS(key, ...) any = any || a.key;
#include "base/fields.def"
  return any;
}

/// The types of k, v and o.
constexpr DType dtype_of_k(const Attention& a) { return a.dtype_k == DType::as_q ? a.dtype : a.dtype_k; }
constexpr DType dtype_of_v(const Attention& a) { return a.dtype_v == DType::as_q ? a.dtype : a.dtype_v; }
constexpr DType dtype_of_o(const Attention& a) {
  if (a.dtype_o != DType::as_q || !is_8bit(a.dtype)) return a.dtype_o == DType::as_q ? a.dtype : a.dtype_o;
  return is_8bit(dtype_of_v(a)) ? DType::bf16 : dtype_of_v(a);
}
/// The type of the CPU's kernels that take the problem, besides those of its own type.
constexpr DType dtype_on_cpu(const Attention& a) { return is_8bit(a.dtype) ? dtype_of_o(a) : a.dtype; }
constexpr DType dtype_on_cpu(const auto& problem) { return problem.dtype; }
/// How many keys share a scale of k, where they do not all.
constexpr std::int64_t rows_of_k_scale(const Attention& a) { return a.k_scale_rows > 1 ? a.k_scale_rows : 1; }

/// A tensor of a run: what a pass does with it, its axes, its type.
struct OperandField {
  enum Use : std::uint8_t { neither, reads, writes };
  /// q, k, v, o: (b, s, h, d) or packed rows, last axis contiguous. k_new, v_new: rows as q, heads as k and v. loose_o:
  /// as o, with any strides. row_numbers: (b, h, s_q, 1). pairs: (b, h, s_q, s_k); scores: the same, where an extent
  /// may be 1 instead. head_numbers: (b or 1, 1, h, 1). page_table: (b or 1, columns, 1, 1). rotary: (1, positions, 2,
  /// rotary_dim / 2). key_numbers: (b or pages, keys of one, h_k, 1), where an extent may be 1 instead; with q of 8
  /// bits they are fewer. query_numbers: (b, s_q, h_q, 1) in the same way.
  enum Shape : std::uint8_t {
    q,
    k,
    v,
    o,
    k_new,
    v_new,
    loose_o,
    row_numbers,
    pairs,
    scores,
    head_numbers,
    page_table,
    rotary,
    key_numbers,
    query_numbers
  };
  /// same: as q. as_k, as_v, as_o: as Attention::dtype_k, dtype_v and dtype_o say. gradient: as Attention::grads says.
  enum Type : std::uint8_t { same, as_k, as_v, as_o, f32, f32_or_same, boolean, gradient, i32 };

  const char *name, *flag;  // flag: what asks for it, "Attention::lse"
  Use forward, backward;
  Shape shape;
  Type type;
  constexpr Use in(Pass pass) const { return pass == Pass::forward ? forward : backward; }
  constexpr bool has_rows() const { return shape <= loose_o; }
};

inline constexpr OperandField kOperandFields[] = {
#define FALCHION_OPERAND(name, in_forward, in_backward, shape, type, wanted, flag) \
  {#name,                                                                          \
   "Attention::" flag,                                                             \
   OperandField::in_forward,                                                       \
   OperandField::in_backward,                                                      \
   OperandField::shape,                                                            \
   OperandField::type},
#include "base/fields.def"
};
/// Null where no operand has the name, which a field may have too.
constexpr const OperandField* operand_named(std::string_view name) {
  for (const OperandField& operand : kOperandFields)
    if (name == operand.name) return &operand;
  return nullptr;
}
/// Is the field a tensor of one number a head, which has its own file in the command?
constexpr bool is_of_heads(const Field& field) {
  const OperandField* operand = field.kind == FieldKind::tensor ? operand_named(field.key) : nullptr;
  return operand != nullptr && operand->shape == OperandField::head_numbers;
}

/// f(operand, tensor, wanted) for each; `x` is an Operands, or anything else whose members have its names. wanted: does
/// the problem have it in this pass?
template <class X, class F>
void each_operand(const Attention& a, Pass pass, X& x, const F& f) {
  const OperandField* of = kOperandFields;
#define FALCHION_OPERAND(name, in_forward, in_backward, shape, type, wanted, flag) \
  f(*of, x.name, of->in(pass) != OperandField::neither && (wanted));               \
  ++of;
#include "base/fields.def"
}

}  // namespace falchion
