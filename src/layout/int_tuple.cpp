// src/layout/int_tuple.cpp: integers with CuTe's rules for what stays static, and nested tuples of them.
#include "layout/int_tuple.hpp"

#include <algorithm>

#include "layout/checked.hpp"

namespace falchion::layout {

IntTuple IntTuple::underscore() {
  IntTuple out;
  out.kind_ = Kind::underscore;
  return out;
}

const IntTuple& IntTuple::mode(std::size_t i) const {
  if (i >= rank()) {
    throw Error(to_string(*this) + " has no mode " + std::to_string(i) + ": its rank is " + std::to_string(rank()));
  }
  return is_tuple() ? modes_[i] : *this;
}

namespace {

bool is_static(Int a, std::int64_t value) { return a.is_static && a.value == value; }

void refuse_zero(Int a, Int b, const char* op) {
  if (b.value == 0) throw Error(std::to_string(a.value) + " " + op + " 0");
}

}  // namespace

// As in CuTe, a static 0 makes a product, a quotient or a remainder static, whatever the other operand is.
Int operator+(Int a, Int b) { return {add(a.value, b.value), a.is_static && b.is_static}; }
Int operator-(Int a, Int b) { return {subtract(a.value, b.value), a.is_static && b.is_static}; }

Int operator*(Int a, Int b) {
  const bool zero = is_static(a, 0) || is_static(b, 0);
  return {multiply(a.value, b.value), zero || (a.is_static && b.is_static)};
}

Int operator/(Int a, Int b) {
  refuse_zero(a, b, "/");
  return {b.value == -1 ? subtract(0, a.value) : a.value / b.value, is_static(a, 0) || (a.is_static && b.is_static)};
}

Int operator%(Int a, Int b) {
  refuse_zero(a, b, "%");
  const bool zero = is_static(a, 0) || is_static(b, 1) || is_static(b, -1);
  return {b.value == -1 ? 0 : a.value % b.value, zero || (a.is_static && b.is_static)};
}

Int ceil_div(Int a, Int b) { return (a + b - Int{1}) / b; }

bool equal(const IntTuple& a, const IntTuple& b) {
  if (a.is_int() && b.is_int()) return a.value() == b.value();
  if (a.is_underscore() || b.is_underscore()) return a.is_underscore() && b.is_underscore();
  return a.is_tuple() && b.is_tuple() && std::ranges::equal(a.modes(), b.modes(), equal);
}

bool congruent(const IntTuple& a, const IntTuple& b) {
  if (!a.is_tuple() || !b.is_tuple()) return !a.is_tuple() && !b.is_tuple();
  return std::ranges::equal(a.modes(), b.modes(), congruent);
}

bool compatible(const IntTuple& a, const IntTuple& b) {
  if (a.is_int()) return !b.is_underscore() && a.value() == product(b).value;
  return a.is_tuple() && b.is_tuple() && std::ranges::equal(a.modes(), b.modes(), compatible);
}

std::size_t depth(const IntTuple& t) {
  if (!t.is_tuple()) return 0;
  std::size_t deepest = 0;
  for (const IntTuple& mode : t.modes()) deepest = std::max(deepest, depth(mode));
  return 1 + deepest;
}

Int product(const IntTuple& t) {
  if (t.is_underscore()) throw Error("an underscore has no value");
  if (t.is_int()) return t.leaf();
  Int out{1};
  for (const IntTuple& mode : t.modes()) out = out * product(mode);
  return out;
}

namespace {

void append_leaves(const IntTuple& t, std::vector<Int>* out) {
  if (t.is_underscore()) throw Error("an underscore has no value");
  if (t.is_int()) out->push_back(t.leaf());
  for (const IntTuple& mode : t.modes()) append_leaves(mode, out);
}

void print(const IntTuple& t, std::string* out) {
  if (t.is_underscore()) {
    *out += '_';
  } else if (t.is_int()) {
    if (t.leaf().is_static) *out += '_';
    *out += std::to_string(t.value());
  } else {
    *out += '(';
    for (std::size_t i = 0; i < t.rank(); ++i) {
      if (i > 0) *out += ',';
      print(t.modes()[i], out);
    }
    *out += ')';
  }
}

}  // namespace

std::vector<Int> flatten(const IntTuple& t) {
  std::vector<Int> out;
  append_leaves(t, &out);
  return out;
}

std::string to_string(const IntTuple& t) {
  std::string out;
  print(t, &out);
  return out;
}

}  // namespace falchion::layout
