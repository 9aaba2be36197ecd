// tools/files.cpp
#include "files.hpp"

#include <fmt/format.h>

#include <cstring>

#include "io/file.hpp"
#include "io/npy.hpp"
#include "policy/dtype.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

template <class T>
void append_numbers(const io::Array& array, std::vector<double>* out) {
  for (std::int64_t i = 0; i < array.elements(); ++i) {
    T x;
    std::memcpy(&x, array.bytes.data() + static_cast<std::size_t>(i) * sizeof x, sizeof x);
    out->push_back(static_cast<double>(x));
  }
}

}  // namespace

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

io::Array read_npy_array(const std::string& path) {
  io::Array array;
  require(io::read_npy(path, &array));
  return array;
}

io::Archive read_archive(const std::string& path) {
  io::Archive archive;
  require(io::read_safetensors(path, &archive));
  return archive;
}

std::vector<double> numbers(const io::Array& array) {
  std::vector<double> out;
  switch (array.kind) {
    case io::Kind::i32: append_numbers<std::int32_t>(array, &out); break;
    case io::Kind::u32: append_numbers<std::uint32_t>(array, &out); break;
    case io::Kind::i64: append_numbers<std::int64_t>(array, &out); break;
    case io::Kind::u64: append_numbers<std::uint64_t>(array, &out); break;
    case io::Kind::f32: append_numbers<float>(array, &out); break;
    case io::Kind::f64: append_numbers<double>(array, &out); break;
    default:
      throw UsageError{fmt::format("{}: numbers are read from 32 and 64 bit types, this is {}", array.name,
                                   io::kind_name(array.kind))};
  }
  return out;
}

void write_tensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
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
  const std::span<const std::byte> piece = std::as_bytes(std::span(text.data(), text.size()));
  require(io::write_file(path, {&piece, 1}));
}

}  // namespace falchion::tools
