/// npy_dict.cpp: the parser of npy_dict.hpp. It knows the three keys of .npy and nothing else of Python.
#include "io/npy_dict.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "io/array.hpp"
#include "io/text.hpp"

namespace falchion::io {
namespace {

/// The keys seen so far.
struct Header {
  std::optional<std::string_view> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::int64_t>> shape;
};

/// Parses {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }. On false, `why` says what is wrong and where.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::size_t file_offset) : text_(text), file_offset_(file_offset) {}

  bool parse(Header* out) {
    if (!take('{')) return expected("'{'");
    while (!take('}')) {
      if (!entry(out)) return false;
      if (!take(',') && peek() != '}') return expected("',' or '}'");
    }
    peek();
    if (at_ < text_.size()) return expected("nothing after '}'");
    if (!out->descr) return fail("the header has no 'descr'", file_offset_);
    if (!out->fortran_order) return fail("the header has no 'fortran_order'", file_offset_);
    if (!out->shape) return fail("the header has no 'shape'", file_offset_);
    return true;
  }

  std::string why;

 private:
  bool entry(Header* out) {
    std::string_view key;
    if (!string("a key in quotes", &key)) return false;
    const std::size_t key_at = at_ - key.size() - 2;
    if (!take(':')) return expected("':'");
    if (key == "descr") {
      if (out->descr) return fail("a second 'descr'", file_offset_ + key_at);
      return string("a type as '<f4' (structured types are not read)", &out->descr.emplace());
    }
    if (key == "fortran_order") {
      if (out->fortran_order) return fail("a second 'fortran_order'", file_offset_ + key_at);
      return boolean(&out->fortran_order.emplace());
    }
    if (key == "shape") {
      if (out->shape) return fail("a second 'shape'", file_offset_ + key_at);
      return tuple(&out->shape.emplace());
    }
    return fail("unknown key " + in_quotes(key), file_offset_ + key_at);
  }

  bool string(const char* what, std::string_view* out) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return expected(what);
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return fail("a string without its closing quote", file_offset_ + at_);
    *out = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return true;
  }

  bool boolean(bool* out) {
    peek();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      *out = value;
      return true;
    }
    return expected("True or False");
  }

  bool tuple(std::vector<std::int64_t>* out) {
    if (!take('(')) return expected("'('");
    while (!take(')')) {
      if (out->size() == kMaxAxes) return fail("more than " + std::to_string(kMaxAxes) + " axes", file_offset_ + at_);
      if (!extent(&out->emplace_back())) return false;
      if (!take(',')) {
        if (peek() != ')') return expected("',' or ')'");
        if (out->size() == 1) return expected("','");  // (3) is a number in Python, (3,) a tuple
      }
    }
    return true;
  }

  bool extent(std::int64_t* out) {
    if (peek() < '0' || peek() > '9') return expected("an extent, a whole number from 0");
    const char* first = text_.data() + at_;
    const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), *out);
    if (error != std::errc{}) {
      return fail("extent " + in_quotes({first, end}) + " is above 2^63 - 1", file_offset_ + at_);
    }
    at_ = static_cast<std::size_t>(end - text_.data());
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote long integers so
    return true;
  }

  // The next character that is no white space; '\0' at the end.
  char peek() {
    at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool take(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }

  bool expected(const char* what) {
    const bool end = at_ >= text_.size();
    return fail(std::string("expected ") + what + ", found " + (end ? "the end" : in_quotes(text_.substr(at_, 12))),
                file_offset_ + at_);
  }

  bool fail(std::string what, std::size_t offset) {
    why = std::move(what) + " at offset " + std::to_string(offset);
    return false;
  }

  std::string_view text_;
  std::size_t file_offset_, at_ = 0;
};

}  // namespace

bool parse_npy_dict(std::string_view text, std::size_t file_offset, NpyDict* out, std::string* why) {
  Header header;
  HeaderParser parser(text, file_offset);
  if (!parser.parse(&header)) {
    *why = std::move(parser.why);
    return false;
  }
  *out = {*header.descr, *header.fortran_order, *std::move(header.shape)};
  return true;
}

}  // namespace falchion::io
