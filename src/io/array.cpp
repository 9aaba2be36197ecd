/// array.cpp: the table of element types, and sizes, alignment and views of arrays.
#include "io/array.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <new>

#include "io/text.hpp"

namespace falchion::io {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little endian and their bytes are used in place");

constexpr std::size_t kAlignment = 64;

constexpr std::array<KindFacts, 15> kFacts{{
    {Kind::boolean, 1, "bool", "b1", "BOOL", DType::boolean},
    {Kind::i8, 1, "int8", "i1", "I8", {}},
    {Kind::u8, 1, "uint8", "u1", "U8", {}},
    {Kind::e4m3, 1, "float8_e4m3", "u1", "F8_E4M3", DType::e4m3},
    {Kind::e5m2, 1, "float8_e5m2", "u1", "F8_E5M2", {}},
    {Kind::i16, 2, "int16", "i2", "I16", {}},
    {Kind::u16, 2, "uint16", "u2", "U16", {}},
    {Kind::f16, 2, "float16", "f2", "F16", DType::f16},
    {Kind::bf16, 2, "bfloat16", "u2", "BF16", DType::bf16},
    {Kind::i32, 4, "int32", "i4", "I32", {}},
    {Kind::u32, 4, "uint32", "u4", "U32", {}},
    {Kind::f32, 4, "float32", "f4", "F32", DType::f32},
    {Kind::i64, 8, "int64", "i8", "I64", {}},
    {Kind::u64, 8, "uint64", "u8", "U64", {}},
    {Kind::f64, 8, "float64", "f8", "F64", {}},
}};

constexpr bool rows_match_enum() {
  for (std::size_t i = 0; i < kFacts.size(); ++i) {
    if (kFacts[i].kind != static_cast<Kind>(i)) return false;
  }
  return true;
}
static_assert(rows_match_enum());

std::shared_ptr<std::byte> aligned_block(std::size_t size) {
  const auto alignment = std::align_val_t{kAlignment};
  auto* memory = static_cast<std::byte*>(::operator new(std::max<std::size_t>(size, 1), alignment));
  return {memory, [](std::byte* old) { ::operator delete (old, std::align_val_t{kAlignment}); }};
}

}  // namespace

std::span<const KindFacts> kinds() noexcept { return kFacts; }

const KindFacts& facts(Kind kind) noexcept { return kFacts[static_cast<std::size_t>(kind)]; }

Kind kind_of(DType dtype) noexcept {
  for (const KindFacts& row : kFacts) {
    if (row.dtype == dtype) return row.kind;
  }
  switch (dtype) {  // types that are written, but that no array is read as
    case DType::e5m2: return Kind::e5m2;
    case DType::i8: return Kind::i8;
    case DType::i32: return Kind::i32;
    default: return Kind::f32;
  }
}

Status dense_bytes(const std::vector<std::int64_t>& shape, Kind kind, std::int64_t* out) noexcept {
  return guarded([&]() -> Status {
    if (shape.size() > kMaxAxes) {
      return {Code::invalid, std::to_string(shape.size()) + " axes are above the limit of " + std::to_string(kMaxAxes)};
    }
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    std::int64_t size = kind_bytes(kind);
    bool empty = false;
    for (const std::int64_t extent : shape) {
      if (extent < 0) return {Code::invalid, "shape " + shape_text(shape) + " has a negative extent"};
      empty = empty || extent == 0;
      if (extent > 0 && size > kMost / extent) {
        return {Code::invalid,
                "shape " + shape_text(shape) + " of " + kind_name(kind) + " takes more than 2^63 - 1 bytes"};
      }
      size *= std::max<std::int64_t>(extent, 1);
    }
    *out = empty ? 0 : size;
    return {};
  });
}

Status make_array(std::string_view name, Kind kind, const std::vector<std::int64_t>& shape, Array* out,
                  std::span<std::byte>* writable) noexcept {
  return guarded([&]() -> Status {
    std::int64_t size = 0;
    if (Status status = dense_bytes(shape, kind, &size); !status) return refuse(name, status.why);
    if (static_cast<std::uint64_t>(size) > std::numeric_limits<std::size_t>::max() / 2) throw std::bad_alloc();
    const std::shared_ptr<std::byte> block = aligned_block(static_cast<std::size_t>(size));
    const std::span<std::byte> all(block.get(), static_cast<std::size_t>(size));
    std::ranges::fill(all, std::byte{0});
    *out = {std::string(name), kind, shape, all, block};
    if (writable != nullptr) *writable = all;
    return {};
  });
}

Status view_as(Kind kind, Array* array) noexcept {
  return guarded([&]() -> Status {
    if (kind_bytes(kind) != kind_bytes(array->kind)) {
      return refuse(array->name, std::string(kind_name(array->kind)) + " of " +
                                     std::to_string(kind_bytes(array->kind)) + " bytes cannot be seen as " +
                                     kind_name(kind) + " of " + std::to_string(kind_bytes(kind)));
    }
    array->kind = kind;
    return {};
  });
}

Status align_to(std::size_t alignment, Array* array) noexcept {
  return guarded([&]() -> Status {
    if (!std::has_single_bit(alignment) || alignment > kAlignment) {
      return refuse(array->name, "alignment " + std::to_string(alignment) + " is not a power of two up to 64");
    }
    if (reinterpret_cast<std::uintptr_t>(array->bytes.data()) % alignment == 0) return {};
    const std::shared_ptr<std::byte> block = aligned_block(array->bytes.size());
    std::memcpy(block.get(), array->bytes.data(), array->bytes.size());
    array->bytes = {block.get(), array->bytes.size()};
    array->owner = block;
    return {};
  });
}

Status to_tensor(const Array& array, Tensor* out) noexcept {
  return guarded([&]() -> Status {
    std::int64_t size = 0;
    if (Status status = dense_bytes(array.shape, array.kind, &size); !status) return refuse(array.name, status.why);
    const std::string shape = shape_text(array.shape);
    if (static_cast<std::uint64_t>(size) != array.bytes.size()) {
      return refuse(array.name, "shape " + shape + " takes " + std::to_string(size) + " bytes, the array has " +
                                    std::to_string(array.bytes.size()));
    }
    if (!engine_dtype(array.kind)) {
      return unsupported(array.name,
                         std::string(kind_name(array.kind)) +
                             " is no type of the engine; it has float32, float16, bfloat16, float8_e4m3, bool");
    }
    const std::vector<std::int64_t>& s = array.shape;
    std::array<std::int64_t, 4> four{};
    switch (s.size()) {
      case 2: four = {1, s[0], 1, s[1]}; break;
      case 3: four = {1, s[0], s[1], s[2]}; break;
      case 4: four = {s[0], s[1], s[2], s[3]}; break;
      default: return refuse(array.name, "shape " + shape + " is none of (b, s, h, d), (s, h, d), (s, d)");
    }
    *out = Tensor::dense(const_cast<std::byte*>(array.bytes.data()), *engine_dtype(array.kind), four);
    return {};
  });
}

}  // namespace falchion::io
