// src/plan/text.hpp: names of enum values, and text out of parts: text("h_q = ", 7, " is odd").
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "falchion/falchion.hpp"

namespace falchion {

constexpr const char* name(DType x) {
  switch (x) {
    case DType::as_q: return "as_q";
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::boolean: return "boolean";
    case DType::e4m3: return "e4m3";
    case DType::e5m2: return "e5m2";
    case DType::i8: return "i8";
  }
  return "unknown";
}
constexpr const char* name(Backend x) {
  switch (x) {
    case Backend::best: return "best";
    case Backend::ref: return "ref";
    case Backend::cpu: return "cpu";
    case Backend::sm80: return "sm80";
    case Backend::sm90: return "sm90";
  }
  return "unknown";
}
constexpr const char* name(Align x) {
  switch (x) {
    case Align::unset: return "unset";
    case Align::bottom_right: return "bottom_right";
    case Align::top_left: return "top_left";
  }
  return "unknown";
}
constexpr const char* name(Pass x) {
  switch (x) {
    case Pass::forward: return "forward";
    case Pass::backward: return "backward";
  }
  return "unknown";
}
constexpr const char* name(Code x) {
  switch (x) {
    case Code::ok: return "ok";
    case Code::invalid: return "invalid";
    case Code::unsupported: return "unsupported";
    case Code::workspace: return "workspace";
    case Code::device: return "device";
  }
  return "unknown";
}

constexpr const char* name(FeatureMap x) {
  switch (x) {
    case FeatureMap::identity: return "identity";
    case FeatureMap::elu_plus_one: return "elu_plus_one";
  }
  return "unknown";
}
constexpr const char* name(Decay x) {
  switch (x) {
    case Decay::none: return "none";
    case Decay::head: return "head";
    case Decay::token: return "token";
  }
  return "unknown";
}

constexpr std::int64_t size_of(DType x) {
  switch (x) {
    case DType::f32: return 4;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::as_q:
    case DType::boolean:
    case DType::e4m3:
    case DType::e5m2:
    case DType::i8: return 1;
  }
  return 1;
}

inline void append(std::string& out, std::string_view part) { out += part; }
inline void append(std::string& out, std::integral auto part) { out += std::to_string(part); }
inline void append(std::string& out, std::floating_point auto part) {
  char digits[32];  // the locale of the process has no say
  const auto end = std::to_chars(digits, digits + sizeof digits, part, std::chars_format::general, 6).ptr;
  out.append(digits, end);
}

/// "bf16"; of a number that is no DType the number.
inline void append(std::string& out, DType x) {
  if (x <= DType::i8) return static_cast<void>(out += name(x));
  out += std::to_string(static_cast<int>(x));
}
template <class T>
concept Address = std::same_as<T, void*> || std::same_as<T, const void*>;  // no text: a const char* would convert
/// "0x7f3c": where something lies.
inline void append(std::string& out, Address auto address) {
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof digits, reinterpret_cast<std::uintptr_t>(address), 16).ptr;
  (out += "0x").append(digits, end);
}
/// "(2, 8, 4, 64)": a shape, strides.
inline void append(std::string& out, const std::array<std::int64_t, 4>& x) {
  for (std::size_t i = 0; i < 4; ++i) (out += i == 0 ? "(" : ", ") += std::to_string(x[i]);
  out += ")";
}

template <class... Parts>
std::string text(const Parts&... parts) {
  std::string out;
  (append(out, parts), ...);
  return out;
}

/// 33638400 -> "33.6 MB"; decimal units, three digits.
std::string bytes_text(double bytes);
/// 4294967296 -> "4.29 G" + unit.
std::string scaled_text(double value, std::string_view unit);

}  // namespace falchion
