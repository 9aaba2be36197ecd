/// array.hpp: a named array of a file: its type, its shape, and a view of its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "falchion/falchion.hpp"

namespace falchion::io {

/// The element types of files; the engine computes on fewer (engine_dtype).
enum class Kind : std::uint8_t { boolean, i8, u8, e4m3, e5m2, i16, u16, f16, bf16, i32, u32, f32, i64, u64, f64 };

/// The table has one row for each Kind. bf16, e4m3 and e5m2 have no .npy type, so they are written as raw <u2 and |u1.
struct KindFacts {
  Kind kind;
  std::int64_t bytes;          // of one element
  const char* name;            // "float32"
  const char* npy;             // "f4", after the byte order
  const char* safetensors;     // "F32"
  std::optional<DType> dtype;  // the engine's type for it, if it has one
};
std::span<const KindFacts> kinds() noexcept;
const KindFacts& facts(Kind kind) noexcept;
inline std::int64_t kind_bytes(Kind kind) noexcept { return facts(kind).bytes; }
inline const char* kind_name(Kind kind) noexcept { return facts(kind).name; }

/// f32, f16, bf16, e4m3 and boolean have a type of the engine, and the others have none.
inline std::optional<DType> engine_dtype(Kind kind) noexcept { return facts(kind).dtype; }
Kind kind_of(DType dtype) noexcept;

inline constexpr std::size_t kMaxAxes = 64;  // NumPy's limit

/// Elements in C order, little endian, without gaps. Copies share the bytes.
struct Array {
  std::string name;
  Kind kind = Kind::f32;
  std::vector<std::int64_t> shape;    // () is a scalar; an extent may be 0
  std::span<const std::byte> bytes;   // read only, since it may be a mapped file; a reader aligns it to the element
  std::shared_ptr<const void> owner;  // what keeps the bytes alive; where it is null, the caller does

  std::int64_t elements() const { return static_cast<std::int64_t>(bytes.size()) / kind_bytes(kind); }
};

/// How many bytes a dense array takes. Errors: invalid (more than kMaxAxes axes; a negative extent; extents whose
/// product, without those that are 0, is more than 2^63 - 1 bytes, since its strides would not fit). The message names
/// the shape, not the file.
Status dense_bytes(const std::vector<std::int64_t>& shape, Kind kind, std::int64_t* out) noexcept;

/// A new array of zeros in memory of its own, 64-byte aligned. `writable` (may be null) gets its bytes, valid while any
/// copy of the array lives. Errors: invalid (shape), workspace (out of memory).
Status make_array(std::string_view name, Kind kind, const std::vector<std::int64_t>& shape, Array* out,
                  std::span<std::byte>* writable = nullptr) noexcept;

/// Reads the same bits as another type of the same size, for example u16 of a .npy file as bf16.
/// Errors: invalid (the sizes differ).
Status view_as(Kind kind, Array* array) noexcept;

/// Copies the bytes into aligned memory unless they are aligned already. `alignment` is a power of two up to 64.
/// Errors: invalid (alignment), workspace (out of memory).
Status align_to(std::size_t alignment, Array* array) noexcept;

/// The engine's view of an array. Shapes (b, s, h, d), (s, h, d) and (s, d) become (b, s, h, d), with 1 for each axis
/// that is missing. The view's data must only be read, and it lives as long as the array's owner.
/// Errors: invalid (a shape that has not 2 to 4 axes, bytes that do not match it), unsupported (a type that the engine
/// does not have).
Status to_tensor(const Array& array, Tensor* out) noexcept;

}  // namespace falchion::io
