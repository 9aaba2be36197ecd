// src/layout/parse.cpp: a recursive-descent parser of layouts as CuTe prints them.
#include "layout/parse.hpp"

#include <utility>

#include "layout/parse_reader.hpp"

namespace falchion::layout {

namespace {

/// A layout that was parsed. It remembers if it is a shape without a stride, since a tiler of shapes is not a layout.
struct Parsed {
  Layout layout;
  bool has_stride = false;
};

/// One of the terms that " o " separates.
struct Term {
  enum class Kind { swizzle, offset, pointer, layout, composed } kind;
  std::size_t position;
  Composed value;  // for a swizzle, a pointer or an offset only that field is set
};

/// Runs an operation of the algebra. If it throws an Error, the error gets the position at which the term begins.
template <class Operation>
auto placed(std::size_t position, Operation operation) {
  try {
    return operation();
  } catch (const Error& error) {
    throw Error(error.what(), error.position < 0 ? static_cast<std::int64_t>(position) : error.position);
  }
}

class Parser : ParseReader {
 public:
  Parser(std::string_view text, const Names& names, bool as_static) : ParseReader(text, as_static), names_(names) {}

  Composed expression() {
    std::vector<Term> terms{term()};
    while (at_separator()) {
      ++at_;
      skip();
      terms.push_back(term());
    }
    Composed out = compose(terms);
    end();
    check_bounds(out.layout);
    return out;
  }

  IntTuple coordinate() {
    IntTuple out = tuple(true, 0);
    end();
    return out;
  }

  Tiler tiler() {
    Tiler out;
    if (accept('<')) {
      out.is_tuple = true;
      do {
        const std::size_t begin = at_;
        const Parsed mode = shape_and_stride();
        if (!mode.has_stride && mode.layout.shape.is_tuple()) {
          fail("a nested shape " + to_string(mode.layout.shape) + " in a tiler: write its stride too", begin);
        }
        out.modes.push_back(mode.layout);
        out.integers.push_back(!mode.has_stride);
      } while (accept(','));
      expect('>', "after the layouts of a tiler");
    } else {
      const std::size_t begin = at_;
      const Parsed parsed = shape_and_stride();
      out = parsed.has_stride ? Tiler{false, {parsed.layout}, {}}
                              : placed(begin, [&] { return make_tiler(parsed.layout.shape); });
    }
    end();
    return out;
  }

 private:
  IntTuple tuple(bool underscores, std::size_t level) {
    if (level > kMostDepth) fail("tuples nested deeper than " + std::to_string(kMostDepth), at_);
    if (at_integer()) return integer();
    if (underscores && accept('_')) return IntTuple::underscore();
    if (!accept('(')) {
      fail(std::string("expected an integer or '('") + (underscores ? " or '_'" : "") + ", found " + found(), at_);
    }
    std::vector<IntTuple> modes;
    do modes.push_back(tuple(underscores, level + 1));
    while (accept(','));
    if (peek() == '@') fail("basis strides such as 1@0 are not supported", at_);
    expect(')', "or ',' in a tuple");
    return modes;
  }

  static void check_extents(const IntTuple& shape, std::size_t position) {
    if (shape.is_int() && shape.value() < 1) {
      fail("an extent of " + std::to_string(shape.value()) + " in shape: at least 1 is needed", position);
    }
    for (const IntTuple& mode : shape.modes()) check_extents(mode, position);
  }

  /// What is computed (the strides of a shape alone, or a composition) has the same bounds as what is read, so that it
  /// can be read back.
  static void check_bounds(const Layout& a) {
    for (const Int stride : flatten(a.stride)) {
      if (stride.value <= -kMostValue || stride.value >= kMostValue) {
        fail("the layout has a stride of " + std::to_string(stride.value) + "; 2^40 is the limit", 0);
      }
    }
    if (depth(a.shape) > kMostDepth) fail("the layout is nested deeper than " + std::to_string(kMostDepth), 0);
  }

  Parsed shape_and_stride() {
    const std::size_t begin = at_;
    Parsed out;
    out.layout.shape = tuple(false, 0);
    check_extents(out.layout.shape, begin);
    out.has_stride = accept(':');
    const std::size_t stride = at_;
    placed(begin, [&] {
      if (!out.has_stride || accept('L')) {
        out.layout = make_layout(out.layout.shape);
      } else if (accept('R')) {
        out.layout = make_layout_right(out.layout.shape);
      } else {
        out.layout.stride = tuple(false, 0);
      }
      if (!congruent(out.layout.shape, out.layout.stride)) {
        fail("stride " + to_string(out.layout.stride) + " is not congruent with shape " + to_string(out.layout.shape),
             stride);
      }
      out.layout.cosize();
      out.layout.size();
    });
    return out;
  }

  Swizzle swizzle(std::size_t position) {
    Swizzle out;
    int* const fields[] = {&out.bits, &out.base, &out.shift};
    for (int i = 0; i < 3; ++i) {
      const std::size_t field = at_;
      const std::int64_t value = digits();
      if (value < (i == 2 ? -31 : 0) || value > 31) {
        fail("Sw<bits,base,shift>: " + std::to_string(value) + " is outside 0 to 31", field);
      }
      *fields[i] = static_cast<int>(value);
      if (i < 2) expect(',', "in Sw<bits,base,shift>");
    }
    expect('>', "after Sw<bits,base,shift");
    const int shift = out.shift < 0 ? -out.shift : out.shift;
    if (shift < out.bits) fail(to_string(out) + ": the shift must be at least the number of bits", position);
    if (out.bits + out.base + shift > 31) fail(to_string(out) + " reaches beyond bit 31", position);
    return out;
  }

  /// smem_ptr[16b](unset)
  int pointer() {
    const std::size_t position = at_;
    const std::int64_t bits = digits();
    if (bits < 1 || bits > 1024 || (bits & (bits - 1)) != 0) {
      fail("elements of " + std::to_string(bits) + " bits: a power of two up to 1024 is needed", position);
    }
    if (!accept("b](unset)")) fail("expected smem_ptr[" + std::to_string(bits) + "b](unset), found " + found(), at_);
    return static_cast<int>(bits);
  }

  Term term() {
    const std::size_t begin = at_;
    Term out{Term::Kind::layout, begin, {}};
    if (accept("Sw<")) {
      out.kind = Term::Kind::swizzle;
      out.value.has_swizzle = true;
      out.value.swizzle = swizzle(begin);
    } else if (accept("smem_ptr[")) {
      out.kind = Term::Kind::pointer;
      out.value.element_bits = pointer();
    } else if (is_letter(peek()) && !at_integer()) {
      out.kind = Term::Kind::composed;
      out.value = named();
    } else if (at_integer()) {
      integer_or_layout(&out);
    } else {
      out.value.layout = shape_and_stride().layout;
    }
    return out;
  }

  /// An integer that another term follows is an offset. 8:1 and an integer in the last place are layouts.
  void integer_or_layout(Term* out) {
    const std::size_t begin = at_;
    const Int value = integer();
    if (at_separator()) {
      out->kind = Term::Kind::offset;
      out->value.offset = value;
    } else {
      at_ = begin;
      out->value.layout = shape_and_stride().layout;
    }
  }

  Composed named() {
    const std::size_t begin = at_;
    std::size_t end = at_;
    while (end < text_.size() &&
           (is_name(text_[end]) || (text_[end] == ':' && end + 1 < text_.size() && is_letter(text_[end + 1]))))
      ++end;
    const std::string_view name = text_.substr(begin, end - begin);
    const auto it = names_.find(name);
    if (it == names_.end()) fail("'" + std::string(name) + "' names no layout", begin);
    at_ = end;
    skip();
    return it->second;
  }

  /// Puts the terms together from right to left: layouts are composed, and before
  /// them may come one offset and one swizzle.
  static Composed compose(const std::vector<Term>& terms) {
    const Term& last = terms.back();
    if (last.kind != Term::Kind::layout && last.kind != Term::Kind::composed) {
      fail("an expression must end in a layout", last.position);
    }
    Composed out = last.value;
    bool has_offset = out.has_swizzle || out.element_bits > 0 || out.offset.value != 0;
    for (std::size_t i = terms.size() - 1; i-- > 0;) {
      const Term& term = terms[i];
      if (out.has_swizzle) fail("nothing may stand before a swizzle", term.position);
      if (term.kind == Term::Kind::swizzle) {
        out.has_swizzle = true;
        out.swizzle = term.value.swizzle;
      } else if (has_offset) {
        fail("only a swizzle may stand before an offset", term.position);
      } else if (term.kind == Term::Kind::offset || term.kind == Term::Kind::pointer) {
        out.offset = term.value.offset;
        out.element_bits = term.value.element_bits;
        has_offset = true;
      } else {
        compose(term, &out, &has_offset);
      }
    }
    return out;
  }

  static void compose(const Term& term, Composed* out, bool* has_offset) {
    Composed left = term.value;
    left.layout = placed(term.position, [&] { return composition(left.layout, out->layout); });
    *out = left;
    *has_offset = left.has_swizzle || left.element_bits > 0 || left.offset.value != 0;
  }

  const Names& names_;
};

}  // namespace

Composed parse_layout(std::string_view text, const Names& names, bool as_static) {
  return Parser(text, names, as_static).expression();
}

IntTuple parse_int_tuple(std::string_view text, bool as_static) {
  const Names none;
  return Parser(text, none, as_static).coordinate();
}

Tiler parse_tiler(std::string_view text, bool as_static) {
  const Names none;
  return Parser(text, none, as_static).tiler();
}

}  // namespace falchion::layout
