/// safetensors.hpp: named arrays in one file, which has 8 bytes of length, a JSON header and the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "falchion/falchion.hpp"
#include "io/array.hpp"

namespace falchion::io {

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;  // bytes, the format's own limit

using Metadata = std::map<std::string, std::string>;

/// All that a file holds.
struct Archive {
  std::vector<Array> arrays;  // sorted by name
  Metadata metadata;

  /// The array of that name, or null.
  const Array* find(std::string_view name) const noexcept;
};

/// Maps `path` and lists its arrays. Only the header is read now. The arrays, in some order, must cover the data
/// without holes, overlaps or a rest, and each must be as long as its shape says. Errors: invalid (no such file, a
/// broken one, a name or field that comes twice; the message gives value, limit and offset), unsupported (an element
/// type that is not in array.hpp), workspace (out of memory).
Status read_safetensors(const std::string& path, Archive* out) noexcept;

/// The same from memory. `file` names the bytes in messages. `owner` keeps them alive; where it is null, the caller
/// does. Arrays whose bytes are not aligned to their elements are copied.
Status parse_safetensors(std::span<const std::byte> bytes, const std::string& file, Archive* out,
                         std::shared_ptr<const void> owner = nullptr) noexcept;

/// Writes the arrays, those with the longest elements first and then by name, so that each is aligned to its elements.
/// The data begins on a 64-byte boundary. Errors: invalid (bytes that do not match a shape, a name that comes twice or
/// is
/// "__metadata__", text that is not UTF-8, a header above the limit, a file that cannot be written), workspace.
Status write_safetensors(const std::string& path, std::span<const Array> arrays,
                         const Metadata& metadata = {}) noexcept;

/// The header that write_safetensors puts before the data, and the order in which the arrays' bytes follow.
Status safetensors_header(std::span<const Array> arrays, const Metadata& metadata, std::string* out,
                          std::vector<std::size_t>* order) noexcept;

}  // namespace falchion::io
