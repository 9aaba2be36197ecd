// src/layout/print.cpp: what CuTe's print, print_layout and print_tensor write, byte for byte.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "layout/algebra.hpp"
#include "layout/checked.hpp"

namespace falchion::layout {

namespace {

std::string right_aligned(std::int64_t value, int width) {
  std::string out = std::to_string(value);
  if (out.size() < static_cast<std::size_t>(width)) out.insert(0, static_cast<std::size_t>(width) - out.size(), ' ');
  return out;
}

/// Throws if the text would be too long, before anything is written. `bytes` is an upper bound of its length.
void refuse_large(const Layout& layout, std::int64_t bytes) {
  if (bytes <= kMostText) return;
  throw Error(to_string(layout) + ": about " + std::to_string(bytes) + " bytes of text, more than " +
              std::to_string(kMostText));
}

/// An upper bound of the number of characters of the longest offset, with its sign.
std::int64_t widest(const Composed& a) {
  const auto below_zero = [](Int stride) { return stride.value < 0; };
  const bool negative = a.offset.value < 0 || std::ranges::any_of(flatten(a.layout.stride), below_zero);
  std::int64_t most = add(a.layout.cosize(), std::abs(a.offset.value));
  // A swizzle sets no bit above the last one that it reads or writes.
  if (a.has_swizzle) most = add(most, std::int64_t{1} << (a.swizzle.bits + a.swizzle.base + std::abs(a.swizzle.shift)));
  return static_cast<std::int64_t>(std::to_string(most).size()) + (negative ? 1 : 0);
}

/// The length of all rows with the rules above them: the cells with " | " between them, the row's number and the ends
/// of the box.
std::int64_t bytes_of_layout(const Composed& a, std::int64_t rows, std::int64_t columns, std::int64_t width) {
  return multiply(add(multiply(2, rows), 2), add(multiply(columns, std::max(width, widest(a)) + 3), 12));
}

/// The length of all cells, with a line feed for each row and a line between two slices.
std::int64_t bytes_of_tensor(const Composed& a) {
  const Layout& layout = a.layout;
  const std::int64_t columns = layout.rank() > 1 ? layout.mode(1).size() : 1, rows = layout.mode(0).size();
  const std::int64_t lines = layout.size() / columns;
  const std::int64_t slices = lines / rows;
  const std::int64_t cells = multiply(layout.size(), std::max<std::int64_t>(5, widest(a)));
  return add(add(cells, lines), multiply(slices, add(multiply(columns, 5), 1)));
}

/// CuTe's num_digits, which stops at 10.
int digits(std::int64_t value) {
  return value < 10 ? 1 : std::min<int>(10, static_cast<int>(std::to_string(value).size()));
}

/// What print_layout shows of a layout that has no pointer yet: its swizzle in elements, with offset 0.
Composed without_pointer(Composed layout) {
  if (layout.element_bits == 0) return layout;
  if (layout.has_swizzle) layout.swizzle = in_elements(layout.swizzle, layout.element_bits);
  layout.has_swizzle = layout.has_swizzle && layout.swizzle.bits > 0;
  layout.element_bits = 0;
  return layout;
}

IntTuple index(std::int64_t value) { return Int{value, false}; }

void print_matrix(const Composed& a, std::int64_t base, std::string* out) {
  const Layout rows = a.layout.mode(0), columns = a.layout.mode(1);
  for (std::int64_t m = 0; m < rows.size(); ++m) {
    for (std::int64_t n = 0; n < columns.size(); ++n) {
      *out += right_aligned(a.of_offset(base + rows(m) + columns(n)), 5);
    }
    *out += '\n';
  }
}

/// Prints modes 2 and 3, slice after slice, with a line between them.
void print_slices(const Composed& a, std::size_t rank, std::int64_t base, std::string* out) {
  if (rank == 2) return print_matrix(a, base, out);
  const Layout slices = a.layout.mode(rank - 1);
  const std::size_t width = 5 * static_cast<std::size_t>(a.layout.mode(1).size());
  for (std::int64_t i = 0; i < slices.size(); ++i) {
    if (i > 0) *out += std::string(width, rank == 3 ? '-' : '=') + '\n';
    print_slices(a, rank - 1, base + slices(i), out);
  }
}

}  // namespace

std::string to_string(const Layout& layout) { return to_string(layout.shape) + ":" + to_string(layout.stride); }

std::string to_string(const Swizzle& s) {
  return "Sw<" + std::to_string(s.bits) + "," + std::to_string(s.base) + "," + std::to_string(s.shift) + ">";
}

std::string to_string(const Composed& a) {
  std::string out;
  if (a.has_swizzle) out = to_string(a.swizzle) + " o ";
  if (a.element_bits > 0) {
    out += "smem_ptr[" + std::to_string(a.element_bits) + "b](unset) o ";
  } else if (a.has_swizzle || a.offset.value != 0) {
    out += to_string(IntTuple(a.offset)) + " o ";
  }
  return out + to_string(a.layout);
}

std::string print_layout(const Composed& with_pointer) {
  const Composed a = without_pointer(with_pointer);
  if (a.layout.rank() != 2) {
    throw Error("print_layout needs rank 2; " + to_string(a.layout) + " has rank " + std::to_string(a.layout.rank()));
  }
  const std::int64_t rows = a.layout.mode(0).size(), columns = a.layout.mode(1).size();
  const int width = digits(a.layout.cosize());
  refuse_large(a.layout, bytes_of_layout(a, rows, columns, width));
  std::string rule = "    ", out = to_string(a) + "\n    ";
  for (std::int64_t n = 0; n < columns; ++n) {
    out += "  " + right_aligned(n, width) + " ";
    rule += "+" + std::string(static_cast<std::size_t>(width) + 2, '-');
  }
  out += '\n';
  rule += "+\n";
  for (std::int64_t m = 0; m < rows; ++m) {
    out += rule + right_aligned(m, 2) + "  ";
    for (std::int64_t n = 0; n < columns; ++n) {
      out += "| " + right_aligned(a(IntTuple({index(m), index(n)})), width) + " ";
    }
    out += "|\n";
  }
  return out + rule;
}

std::string print_tensor(const Composed& a, int element_bits) {
  refuse_large(a.layout, bytes_of_tensor(a));
  const std::string pointer = "ptr[" + std::to_string(element_bits) + "b](0x...) o ";
  std::string out;
  if (a.element_bits > 0) {
    out = (a.has_swizzle && a.swizzle.bits > 0 ? to_string(a.swizzle) + "_" : "") + "smem_" + pointer +
          to_string(a.layout);
  } else {
    out = pointer + to_string(a);
  }
  out += ":\n";
  const std::size_t rank = a.layout.rank();
  if (rank == 1) {
    for (std::int64_t i = 0; i < a.layout.size(); ++i) out += right_aligned(a(i), 5) + "\n";
  } else if (rank <= 4) {
    print_slices(a, rank, 0, &out);
  }
  return out;
}

}  // namespace falchion::layout
