// tools/problem/files.cpp
#include "problem/files.hpp"

#include <fmt/core.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "io/file.hpp"
#include "io/npy.hpp"
#include "policy/dtype.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

/// Adds the file's name to "out of memory" (as for a device that never ends), the
/// only error that a reader gives without it.
void require_read(const std::string& path, const Status& status) {
  require(status, status.code == Code::workspace ? path : "");
}

/// Calls take(x, place) with each element as it lies in the file.
template <class T, class Take>
void each_of(const io::Array& array, const Take& take) {
  for (std::int64_t i = 0; i < array.elements(); ++i) {
    T x;
    std::memcpy(&x, array.bytes.data() + static_cast<std::size_t>(i) * sizeof x, sizeof x);
    take(x, i);
  }
}

/// take(x, place) with each element of a type that C++ has.
template <class Take>
bool each_plain(const io::Array& array, const Take& take) {
  switch (array.kind) {
    case io::Kind::i8: each_of<std::int8_t>(array, take); return true;
    case io::Kind::u8: each_of<std::uint8_t>(array, take); return true;
    case io::Kind::i16: each_of<std::int16_t>(array, take); return true;
    case io::Kind::u16: each_of<std::uint16_t>(array, take); return true;
    case io::Kind::i32: each_of<std::int32_t>(array, take); return true;
    case io::Kind::u32: each_of<std::uint32_t>(array, take); return true;
    case io::Kind::i64: each_of<std::int64_t>(array, take); return true;
    case io::Kind::u64: each_of<std::uint64_t>(array, take); return true;
    case io::Kind::f32: each_of<float>(array, take); return true;
    case io::Kind::f64: each_of<double>(array, take); return true;
    default: return false;
  }
}

template <class Take>
void each_number(const std::string& path, const Take& take) {
  const io::Array array = read_npy_array(path);
  if (array.shape.size() != 1)
    throw UsageError{fmt::format("{}: {} axes; a list of numbers has one", path, array.shape.size())};
  if (io::kind_bytes(array.kind) < 4 || !each_plain(array, take))
    throw UsageError{
        fmt::format("{}: numbers are read from 32 and 64 bit types, this is {}", path, io::kind_name(array.kind))};
}

/// Whether T holds x, a number of the file, without loss.
template <class T, class X>
bool holds(X x) {
  if constexpr (std::is_integral_v<X>) {
    return std::in_range<T>(x);
  } else {
    constexpr X kBound = -static_cast<X>(std::numeric_limits<T>::min());  // a power of two, so it is exact
    return x >= -kBound && x < kBound && x == std::trunc(x);              // false for NaN
  }
}

}  // namespace

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

io::Array read_npy_array(const std::string& path) {
  io::Array array;
  require_read(path, io::read_npy(path, &array));
  array.name = path;  // as every message names it
  return array;
}

io::Archive read_archive(const std::string& path) {
  io::Archive archive;
  require_read(path, io::read_safetensors(path, &archive));
  return archive;
}

/// What a number should have been that std::int64_t does not hold.
template <class X>
std::string what_is_read(X x) {
  if (static_cast<long double>(x) != std::floor(static_cast<long double>(x))) return "a whole number";  // NaN too
  using Limits = std::numeric_limits<std::int64_t>;
  return fmt::format("between {} and {}", Limits::min(), Limits::max());
}

std::vector<std::int64_t> read_integers(const std::string& path) {
  std::vector<std::int64_t> out;
  each_number(path, [&](auto x, std::int64_t i) {
    if (!holds<std::int64_t>(x)) throw UsageError{fmt::format("{}: [{}] = {} is not {}", path, i, x, what_is_read(x))};
    out.push_back(static_cast<std::int64_t>(x));
  });
  return out;
}

std::vector<float> read_floats(const std::string& path) {
  std::vector<float> out;
  each_number(path, [&](auto x, std::int64_t i) {
    out.push_back(static_cast<float>(x));
    if (!std::isfinite(out.back()))
      throw UsageError{fmt::format("{}: [{}] = {} is not a number that f32 holds", path, i, x)};
  });
  return out;
}

void require_computed(bool may_convert, io::Array* array) {
  using io::Kind;
  if (array->kind == Kind::f32 || array->kind == Kind::f16 || array->kind == Kind::bf16) return;
  const auto refuse = [&](const char* hint) {
    throw UsageError{fmt::format("{}: {} is no type of the engine; it computes on float32, float16 and bfloat16{}",
                                 array->name, io::kind_name(array->kind), hint)};
  };
  if (!each_plain(*array, [](auto, std::int64_t) {})) refuse("");
  if (!may_convert) refuse(": --as f32 converts it");
  io::Array out;
  std::span<std::byte> bytes;
  require(io::make_array(array->name, io::Kind::f32, array->shape, &out, &bytes), array->name);
  each_plain(*array, [&](auto x, std::int64_t i) {
    const auto number = static_cast<float>(x);
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof number, &number, sizeof number);
  });
  *array = out;
}

void write_tensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  std::fflush(stdout);  // `path` may be the file that stdout goes to
  std::vector<io::Array> arrays;
  for (const NamedTensor& x : tensors) {
    const std::span<const std::byte> bytes{x.tensor->memory.data(), x.tensor->memory.size()};
    arrays.push_back({x.name, io::kind_of(x.tensor->view.dtype), x.shape, bytes, nullptr});
  }
  if (ends_with(path, ".safetensors")) {
    require(io::write_safetensors(path, arrays, {{"writer", std::string("falchion ") + version()}}));
  } else if (ends_with(path, ".npy") && arrays.size() == 1) {
    require(io::write_npy(path, arrays.front()));
  } else {
    throw UsageError{fmt::format("{}: outputs are written to .npy (one array a file) or .safetensors", path)};
  }
}

void write_text(const std::string& path, const std::string& text) {
  std::fflush(stdout);
  const std::span<const std::byte> piece = std::as_bytes(std::span(text.data(), text.size()));
  require(io::write_file(path, {&piece, 1}));
}

}  // namespace falchion::tools
