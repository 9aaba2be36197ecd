/// safetensors_json.hpp: the JSON header of a safetensors file. Used by safetensors.cpp alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "falchion/falchion.hpp"
#include "io/safetensors.hpp"

namespace falchion::io {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as written
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // offsets in the data, which begins after the header
};

/// Parses the header's text, which begins at `file_offset` in `file`. Each name, field and metadata key may come only
/// once, and each entry has dtype, shape and data_offsets and nothing else. It does not check what the numbers mean.
/// Errors: invalid. May throw std::bad_alloc.
Status parse_safetensors_json(std::string_view text, std::size_t file_offset, const std::string& file,
                              std::vector<SafetensorsEntry>* entries, Metadata* metadata);

/// Writes `text` as a JSON string with its quotes. Returns false if it is not UTF-8.
bool to_json_string(const std::string& text, std::string* out);

}  // namespace falchion::io
