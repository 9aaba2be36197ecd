// tools/problem/fields.hpp: walks over the fields of attention's problem, which src/api/fields.def lists.
#pragma once

#include <string_view>

#include "falchion/falchion.hpp"

namespace falchion::tools {

enum class FieldKind { type, size, band, number, tensor, output, flag, word, lengths };
struct Field {
  FieldKind kind;
  std::string_view key;       // "any_order"
  const char *option, *text;  // "--any-order", a line of help
  bool forward, backward;     // which pass has it
  const char* word() const { return option + 2; }
};

/// f(field, member) for each field; `a` is an Attention, const or not. Of lengths the member is the flag.
template <class A, class F>
void each_field(A& a, const F& f) {
#define FALCHION_FIELD(kind, key, member, option, text) \
  f(Field{FieldKind::kind, #key, option, text, true, true}, a.member);
#define FALCHION_FORWARD_FIELD(kind, key, member, option, text) \
  f(Field{FieldKind::kind, #key, option, text, true, false}, a.member);
#define FALCHION_BACKWARD_FIELD(kind, key, member, option, text) \
  f(Field{FieldKind::kind, #key, option, text, false, true}, a.member);
#define FALCHION_LENGTHS(key, has, option, text) f(Field{FieldKind::lengths, #key, option, text, true, true}, a.key);
#include "api/fields.def"
}

/// Without what the field says. Of a band that is no bound, so it has none of these.
inline void reset(Attention* a, const Field& field) {
  each_field(*a, [&](const Field& other, auto& x) {
    if (other.kind != FieldKind::band && other.key == field.key) x = {};
  });
}

}  // namespace falchion::tools
