// tests/fuzz/layout_fuzz.cpp: reads any bytes as a layout, a tiler or a coordinate. Whatever can be read must print as
// text that is read back as the same. Every operation on it must soon end in a result or an Error, and every Error must
// have a text.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "layout/parse.hpp"

namespace {

using namespace falchion::layout;

/// An unmet requirement is a crash, which the fuzzer reports with its input.
void require(bool demand) {
  if (!demand) __builtin_trap();
}

/// Both functions return whether there was an answer other than an Error. An Error of the parser must name a place in
/// the text. An Error of an operation has no place.
template <class F>
bool answers(F&& operation) {
  try {
    operation();
    return true;
  } catch (const Error& error) {
    require(error.what()[0] != '\0');
    require(error.position == -1);
    return false;
  }
}
template <class F>
bool reads(std::string_view text, F&& parse) {
  try {
    parse(text);
    return true;
  } catch (const Error& error) {
    require(error.what()[0] != '\0');
    require(error.position >= 0 && error.position <= static_cast<std::int64_t>(text.size()));
    return false;
  }
}

/// Checks that a result is a layout. It must be congruent and have coordinates. Where the parser's bounds allow it, it
/// must also be the same after it was printed and read back.
void check(const Layout& a) {
  require(congruent(a.shape, a.stride));
  for (const Int extent : flatten(a.shape)) require(extent.value >= 1);
}

void operate(const Layout& a, const Tiler& tiler) {
  const auto quietly = [](auto operation) { answers([&] { check(operation()); }); };
  const Layout& b = tiler.modes.at(0);
  quietly([&] { return coalesce(a); });
  quietly([&] { return coalesce_by_mode(a); });
  quietly([&] { return composition(a, tiler); });
  quietly([&] { return composition(b, a); });
  quietly([&] { return complement(a, Int{24}); });
  quietly([&] { return right_inverse(a); });
  quietly([&] { return left_inverse(a); });
  quietly([&] { return recast(a, 16, 8); });
  quietly([&] { return recast(a, 8, 32); });
  for (const auto kind : {DivideKind::logical, DivideKind::zipped, DivideKind::tiled, DivideKind::flat}) {
    quietly([&] { return divide(kind, a, tiler); });
  }
  for (const auto kind : {ProductKind::logical, ProductKind::flat, ProductKind::blocked, ProductKind::raked}) {
    quietly([&] { return product(kind, a, tiler); });
  }
}

void evaluate(const Composed& a, const IntTuple& coord) {
  const std::int64_t size = a.layout.size();
  for (const std::int64_t i : {std::int64_t{0}, size / 2, size - 1}) {
    require(crd2idx(idx2crd(i, a.layout.shape), a.layout.shape) == i);
    answers([&] { (void)a(i); });
  }
  answers([&] { (void)slice(a, coord); });
  answers([&] { (void)local_tile(a, coord, IntTuple(Int{0})); });
  answers([&] { (void)tile_to_shape(a, coord, IntTuple()); });
  answers([&] { (void)recast(a, 16, 32); });
  answers([&] { (void)contiguous_elements(a); });
  if (size > 4096) return;
  answers([&] { (void)print_layout(a); });
  answers([&] { (void)print_tensor(a, 16); });
  answers([&] { (void)is_injective(a.layout); });
}

}  // namespace

/// The input is a layout, which may be followed by "|" and a tiler, and then by "|" and a coordinate.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t bar = text.find('|'), second = bar == text.npos ? bar : text.find('|', bar + 1);
  const std::string_view first = text.substr(0, bar);
  Composed a;
  if (!reads(first, [&](std::string_view it) { a = parse_layout(it, {}, size % 2 == 0); })) return 0;
  const std::string printed = to_string(a);
  if (printed.size() <= 4096) require(to_string(parse_layout(printed)) == printed);
  check(a.layout);
  Tiler tiler{false, {a.layout}, {}};
  IntTuple coord = IntTuple::underscore();
  if (bar != text.npos) {
    const std::string_view rest = text.substr(bar + 1, second == text.npos ? second : second - bar - 1);
    if (!reads(rest, [&](std::string_view it) { tiler = parse_tiler(it); })) return 0;
  }
  if (second != text.npos) {
    const std::string_view rest = text.substr(second + 1);
    if (!reads(rest, [&](std::string_view it) { coord = parse_int_tuple(it); })) return 0;
  }
  operate(a.layout, tiler);
  answers([&] { evaluate(a, coord); });
  return 0;
}
