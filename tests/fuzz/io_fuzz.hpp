/// io_fuzz.hpp: what the fuzzers of src/io require of every array and of every refusal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "io/array.hpp"

namespace falchion::io {

/// An unmet requirement is a crash, which the fuzzer reports with its input.
inline void require(bool demand) {
  if (!demand) __builtin_trap();
}

/// Returns true if `status` is ok. A refusal must name the file, be short and be printable.
inline bool must_explain(const Status& status) {
  if (status) return true;
  require(status.why.starts_with("fuzz: ") && status.why.size() < 4096);
  require(std::ranges::all_of(status.why, [](char c) { return c >= 0x20 && c < 0x7f; }));
  return false;
}

/// Reads every byte, so that the address sanitizer sees a view that is out of bounds, and checks the promises.
inline void touch(const Array& array) {
  std::int64_t size = -1;
  require(static_cast<bool>(dense_bytes(array.shape, array.kind, &size)));
  require(static_cast<std::uint64_t>(size) == array.bytes.size());
  require(reinterpret_cast<std::uintptr_t>(array.bytes.data()) % static_cast<std::uintptr_t>(kind_bytes(array.kind)) ==
          0);
  volatile unsigned sum = 0;
  for (const std::byte b : array.bytes) sum = sum + std::to_integer<unsigned>(b);
  Tensor tensor;
  if (to_tensor(array, &tensor)) {
    require(tensor.shape[0] * tensor.shape[1] * tensor.shape[2] * tensor.shape[3] == array.elements());
  }
}

inline void append(const Array& array, std::string* file) {
  file->append(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
}

inline bool same(const Array& a, const Array& b) {
  return a.name == b.name && a.kind == b.kind && a.shape == b.shape && std::ranges::equal(a.bytes, b.bytes);
}

}  // namespace falchion::io
