// python/xla/attributes.hpp: the attributes of a custom call. The first one that is missing or of another type is
// remembered, so that a handler reads all of them and looks once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "xla/ffi/api/ffi.h"

namespace falchion::xla_ffi {

class Attributes {
 public:
  explicit Attributes(xla::ffi::Dictionary all) : all_(all) {}

  template <class T>
  T get(std::string_view name) {
    xla::ffi::ErrorOr<T> value = all_.get<T>(name);
    if (value.has_value()) return value.value();
    if (why_.empty()) why_ = "attribute " + std::string(name) + ": " + value.error().message();
    return T{};
  }
  std::int64_t integer(std::string_view name) { return get<std::int64_t>(name); }
  std::uint8_t flag(std::string_view name) { return integer(name) != 0 ? 1 : 0; }
  std::int32_t code(std::string_view name) { return static_cast<std::int32_t>(integer(name)); }
  float number(std::string_view name) { return get<float>(name); }
  std::string_view text(std::string_view name) { return get<std::string_view>(name); }

  /// What was wrong, or "".
  const std::string& why() const { return why_; }

 private:
  xla::ffi::Dictionary all_;
  std::string why_;
};

}  // namespace falchion::xla_ffi
