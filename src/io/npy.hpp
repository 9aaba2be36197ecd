/// npy.hpp: NumPy's .npy files, versions 1, 2 and 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "falchion/falchion.hpp"
#include "io/array.hpp"

namespace falchion::io {

inline constexpr std::uint32_t kMaxNpyHeader = 1u << 20;  // bytes. NumPy itself trusts 10,000 characters

/// Maps `path` and reads its array; the array is named after the file ("q" for "dir/q.npy").
/// Reads little-endian, C-order bool, i1 i2 i4 i8, u1 u2 u4 u8, f2 f4 f8. V1 and V2, which ml_dtypes writes for its 8
/// and 16 bit floats, are read as u8 and u16, and view_as can then give them their type. Errors: invalid (no such file,
/// a broken one, bytes after the array; the message gives value, limit and offset), unsupported (another version, big
/// endian, Fortran order with two extents above 1, structured and other types), workspace (out of memory).
Status read_npy(const std::string& path, Array* out) noexcept;

/// The same from memory. `file` names the bytes in messages. `owner` keeps them alive; where it is null, the caller
/// does. Bytes that are not aligned to the element are copied.
Status parse_npy(std::span<const std::byte> bytes, const std::string& file, Array* out,
                 std::shared_ptr<const void> owner = nullptr) noexcept;

/// Writes a version 1 file whose data begins on a 64-byte boundary. bf16 is written as <u2, e4m3 and e5m2 as |u1.
/// Errors: invalid (bytes that do not match the shape, a file that cannot be written), workspace.
Status write_npy(const std::string& path, const Array& array) noexcept;

/// The header that write_npy puts before the array's bytes.
Status npy_header(const Array& array, std::string* out) noexcept;

}  // namespace falchion::io
