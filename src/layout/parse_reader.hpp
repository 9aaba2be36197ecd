// src/layout/parse_reader.hpp: what the parser of layouts reads first: characters, words and integers, and where in the
// text it stands, so that an error can name the position. The grammar on top of it is in parse.cpp.
#pragma once

#include <string>
#include <string_view>

#include "layout/layout.hpp"

namespace falchion::layout {

inline constexpr std::size_t kMostCharacters = 4096;
inline constexpr std::size_t kMostDepth = 32;
inline constexpr std::int64_t kMostValue = std::int64_t{1} << 40;

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
inline bool is_name(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '.'; }

class ParseReader {
 protected:
  ParseReader(std::string_view text, bool as_static) : text_(text), as_static_(as_static) {
    if (text.size() > kMostCharacters) {
      fail("the expression has " + std::to_string(text.size()) + " characters; at most " +
               std::to_string(kMostCharacters) + " are read",
           kMostCharacters);
    }
    skip();
  }

  [[noreturn]] static void fail(const std::string& what, std::size_t position) {
    throw Error(what, static_cast<std::int64_t>(position));
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char peek(std::size_t ahead) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    skip();
    return true;
  }
  bool accept(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    skip();
    return true;
  }
  std::string found() const {
    if (at_ >= text_.size()) return "the end";
    const char c = text_[at_];
    return c >= ' ' && c < '\x7f' ? std::string("'") + c + "'" : "a byte that is not text";
  }
  void expect(char c, const std::string& where) {
    if (!accept(c)) fail(std::string("expected '") + c + "' " + where + ", found " + found(), at_);
  }
  void end() {
    if (at_ != text_.size()) fail("expected the end, found " + found(), at_);
  }
  bool at_separator() const { return peek() == 'o' && !is_name(peek(1)); }

  std::int64_t digits() {
    const std::size_t begin = at_;
    const bool negative = peek() == '-';
    if (negative) ++at_;
    if (!is_digit(peek())) fail("expected a number, found " + found(), at_);
    std::int64_t value = 0;
    for (; is_digit(peek()); ++at_) {
      value = 10 * value + (peek() - '0');
      if (value >= kMostValue) fail("an integer of 2^40 or more", begin);
    }
    skip();
    return negative ? -value : value;
  }

  bool at_integer() const {
    const std::size_t sign = peek() == '_' ? 1 : 0;
    const std::size_t first = peek(sign) == '-' ? sign + 1 : sign;
    return is_digit(peek(first)) || text_.substr(at_).starts_with("Int<");
  }

  /// 8, _8, _8{}, Int<8>, Int<8>{}
  Int integer() {
    Int out{0, as_static_};
    if (accept("Int<")) {
      out = {digits(), true};
      expect('>', "after Int<" + std::to_string(out.value));
    } else {
      if (peek() == '_') {
        ++at_;
        out.is_static = true;
      }
      out.value = digits();
    }
    if (out.is_static && peek() == '{' && peek(1) == '}') {
      at_ += 2;
      skip();
    }
    return out;
  }

  std::string_view text_;
  std::size_t at_ = 0;

 private:
  bool as_static_;
};

}  // namespace falchion::layout
