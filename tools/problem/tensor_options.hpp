// tools/problem/tensor_options.hpp: the options that name tensors in files, the same for run, verify and map.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "command/file_names.hpp"
#include "io/safetensors.hpp"
#include "problem/instance.hpp"
#include "problem/problem_options.hpp"

namespace falchion::tools {

struct TensorOptions {
  std::string q, k, v, qkv, layer, axes = "bshd", dtype, as, bias, mask, cu_q, cu_k;
#define FALCHION_LENGTHS(key, ...) std::string key;
#include "base/fields.def"

  void add_to(Command& command);
  bool given() const { return !qkv.empty() || !q.empty() || !k.empty() || !v.empty(); }
  Layout layout() const { return axes == "bhsd" ? Layout::bhsd : Layout::bshd; }

  /// Refuses options about tensors where there are no tensors.
  void check(const Given& given) const;
  void name_files(FileNames* files) const;

  /// Reads the tensors that are named and makes the problem that fits them. Throws UsageError with the file, the tensor
  /// and the reason.
  Instance load(const FeatureOptions& features) const;
  /// Another tensor (b, s, h, d) from a .npy file, read as q, k and v are.
  HostTensor read(const std::string& path) const;
  /// The same of a tensor with other axes, of which change() makes four.
  HostTensor read(const std::string& path, const std::function<void(std::vector<std::int64_t>* shape)>& change) const;
  /// A number for each row, such as the LSE: a .npy file (b, h, s) of f32, as (b, h, s, 1).
  HostTensor read_row_numbers(const std::string& path) const;
};

/// Refuses where one of the options that go together is not given, and names those: "--v is missing: give --q, --k and
/// --v HOW", or "no WHAT: give ..." where none is.
void require_all(const char* what, std::initializer_list<std::pair<const char*, std::string>> options, const char* how);

/// The <layer> of each <layer>.q in a safetensors file, sorted.
std::vector<std::string> layers_of(const io::Archive& archive);

}  // namespace falchion::tools
