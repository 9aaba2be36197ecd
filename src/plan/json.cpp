// src/plan/json.cpp: see json.hpp.
#include "plan/json.hpp"

#include <charconv>
#include <cmath>

namespace falchion {
namespace {

/// Bytes of the character that the text begins with, or 0 where they are not UTF-8: the table of well-formed sequences
/// in chapter 3 of the Unicode standard, which excludes overlong forms, surrogates and what lies beyond U+10FFFF.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [text](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (length == 0) return 0;
  const unsigned least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (second < least || second > most) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return length;
}

void append_character(std::string_view character, std::string* out) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto first = static_cast<unsigned char>(character[0]);
  if (first == '"' || first == '\\') {
    *out += '\\';
    *out += character;
  } else if (first == '\n') {
    *out += "\\n";
  } else if (first < 0x20) {
    *out += "\\u00";
    *out += kDigits[first >> 4];
    *out += kDigits[first & 15];
  } else {
    *out += character;
  }
}

}  // namespace

Json::Json(double value) {
  if (!std::isfinite(value)) {
    text_ = "null";
    return;
  }
  char digits[32];
  text_.assign(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

Json::Json(std::string_view value) : text_("\"") {
  while (!value.empty()) {
    const std::size_t length = utf8_length(value);
    append_character(length > 0 ? value.substr(0, length) : "\xEF\xBF\xBD", &text_);
    value.remove_prefix(length > 0 ? length : 1);
  }
  text_ += '"';
}

Json Json::array(std::span<const Json> values) {
  Json out;
  for (const Json& value : values) {
    out.text_ += out.text_.empty() ? '[' : ',';
    out.text_ += value.text_;
  }
  out.text_ += out.text_.empty() ? "[]" : "]";
  return out;
}

Json Json::object(std::span<const Member> members) {
  Json out;
  for (const auto& [key, value] : members) {
    out.text_ += out.text_.empty() ? '{' : ',';
    out.text_ += Json(key).text_;
    out.text_ += ':';
    out.text_ += value.text_;
  }
  out.text_ += out.text_.empty() ? "{}" : "}";
  return out;
}

Json Json::with(std::string_view key, const Json& value) const {
  Json out = *this;
  out.text_.pop_back();
  if (out.text_.size() > 1) out.text_ += ',';
  out.text_ += Json(key).text_;
  out.text_ += ':';
  out.text_ += value.text_;
  out.text_ += '}';
  return out;
}

}  // namespace falchion
