// src/layout/int_tuple.hpp: CuTe's integers and nested tuples of them, at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace falchion::layout {

/// What is wrong with an expression or an operation, in words for whoever wrote it. `position` is the character of the
/// expression that it is about, counted from 0, or -1 where there is none.
struct Error : std::runtime_error {
  explicit Error(const std::string& what, std::int64_t position = -1) : std::runtime_error(what), position(position) {}
  std::int64_t position;
};

/// An integer as in CuTe. It is static, which means known when a program is compiled, and printed as _8; or it is
/// dynamic, known only when the program runs, and printed as 8. What is computed from static integers alone is static.
struct Int {
  std::int64_t value = 0;
  bool is_static = true;
};

/// An integer, a tuple of IntTuples, or (in a coordinate that slices) the underscore that keeps a whole mode.
class IntTuple {
 public:
  IntTuple() : IntTuple(Int{}) {}
  IntTuple(Int leaf) : kind_(Kind::integer), leaf_(leaf) {}
  IntTuple(std::vector<IntTuple> modes) : kind_(Kind::tuple), modes_(std::move(modes)) {}
  static IntTuple underscore();

  bool is_int() const { return kind_ == Kind::integer; }
  bool is_tuple() const { return kind_ == Kind::tuple; }
  bool is_underscore() const { return kind_ == Kind::underscore; }

  Int leaf() const { return leaf_; }                             ///< only for an integer
  std::int64_t value() const { return leaf_.value; }             ///< only for an integer
  const std::vector<IntTuple>& modes() const { return modes_; }  ///< only for a tuple
  std::size_t rank() const { return is_tuple() ? modes_.size() : 1; }
  const IntTuple& mode(std::size_t i) const;  ///< mode 0 of an integer is the integer itself

 private:
  enum class Kind { integer, tuple, underscore };
  Kind kind_;
  Int leaf_;
  std::vector<IntTuple> modes_;
};

Int operator+(Int a, Int b);
Int operator-(Int a, Int b);
Int operator*(Int a, Int b);
Int operator/(Int a, Int b);  ///< rounds towards 0
Int operator%(Int a, Int b);
Int ceil_div(Int a, Int b);

bool equal(const IntTuple& a, const IntTuple& b);       ///< equal in structure and value, static or not
bool congruent(const IntTuple& a, const IntTuple& b);   ///< equal in structure
bool compatible(const IntTuple& a, const IntTuple& b);  ///< every coordinate of a is one of b
std::size_t depth(const IntTuple& t);
Int product(const IntTuple& t);
std::vector<Int> flatten(const IntTuple& t);
std::string to_string(const IntTuple& t);  ///< as CuTe prints it: (_8,(2,_4))

}  // namespace falchion::layout
