// tools/problem/files.hpp: reads tensors from files and writes them. A failure is a UsageError with the file and the
// reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/safetensors.hpp"
#include "problem/tensors.hpp"

namespace falchion::tools {

io::Array read_npy_array(const std::string& path);
io::Archive read_archive(const std::string& path);

/// Reads a list of numbers from a .npy file of one axis, of any integer or float type of 32 or 64 bits. A value that
/// the requested integer or finite float cannot hold exactly, such as a length of 2.7, is refused with its position.
std::vector<std::int64_t> read_integers(const std::string& path);
std::vector<float> read_floats(const std::string& path);

/// Throws UsageError where the array is not of f32, f16 or bf16. Where `may_convert` is set, numbers of another type,
/// such as NumPy's float64, become f32 instead.
void require_computed(bool may_convert, io::Array* array);

/// The bytes of a dense tensor with its axes in memory order.
struct NamedTensor {
  std::string name;
  const HostTensor* tensor;
  std::vector<std::int64_t> shape;
};
/// .npy takes exactly one, .safetensors any number.
void write_tensors(const std::string& path, const std::vector<NamedTensor>& tensors);

void write_text(const std::string& path, const std::string& text);

bool ends_with(const std::string& text, const std::string& end);

}  // namespace falchion::tools
