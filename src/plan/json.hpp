// src/plan/json.hpp: JSON (RFC 8259) as the library writes it: into one line, never read back.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace falchion {

/// One JSON value, kept as the text that it is written as. Every way to make one makes valid JSON, whatever the bytes
/// of a string or the value of a number.
class Json {
 public:
  using Member = std::pair<std::string_view, Json>;

  // NOLINTBEGIN(google-explicit-constructor): a value of C++ is a value of JSON
  Json(std::nullptr_t) : text_("null") {}
  Json(std::same_as<bool> auto value) : text_(value ? "true" : "false") {}
  Json(std::integral auto value) requires(!std::same_as<decltype(value), bool>) : text_(std::to_string(value)) {}
  /// With the fewest digits that give the same double again. NaN and infinities, which JSON has not, are null.
  Json(double value);
  Json(float value) : Json(static_cast<double>(value)) {}
  /// A byte that is not UTF-8 becomes the replacement character U+FFFD.
  Json(std::string_view value);
  Json(const std::string& value) : Json(std::string_view(value)) {}
  Json(const char* value) : Json(std::string_view(value)) {}
  // NOLINTEND(google-explicit-constructor)

  static Json array(std::span<const Json> values);
  /// In the order given. Keys are the caller's to keep apart.
  static Json object(std::span<const Member> members);
  static Json object(std::initializer_list<Member> members) {
    return object(std::span(members.begin(), members.end()));
  }

  /// An object with one member more, at its end.
  Json with(std::string_view key, const Json& value) const;

  const std::string& text() const { return text_; }

 private:
  Json() = default;

  std::string text_;
};

}  // namespace falchion
