/// text.hpp: how src/io words its refusals, and how it turns exceptions into a Status.
#pragma once

#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "falchion/falchion.hpp"

namespace falchion::io {

/// `text` in single quotes, cut at 60 bytes. Everything but printable ASCII is written as \xNN, because bytes of a
/// hostile file must not reach a terminal as they are.
std::string in_quotes(std::string_view text);

/// A shape as text, such as "(1, 509, 9, 64)", or "()" for a scalar.
std::string shape_text(const std::vector<std::int64_t>& shape);

/// The Status for a broken file or argument, with the text "q.npy: <why>".
inline Status refuse(std::string_view file, std::string_view why) {
  return {Code::invalid, std::string(file).append(": ").append(why)};
}

/// The Status for a sound file whose type this reader does not have.
inline Status unsupported(std::string_view file, std::string_view why) {
  return {Code::unsupported, std::string(file).append(": ").append(why)};
}

/// Runs `body`, which returns a Status. If it throws, that becomes a Status too.
template <class Body>
Status guarded(Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return {Code::workspace, "out of memory"};  // 13 characters: held in the string itself, so no allocation
  } catch (...) { return {Code::invalid, "internal error"}; }
}

}  // namespace falchion::io
