/// npy_dict.hpp: the Python dict that heads a .npy file. Used by npy.cpp alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace falchion::io {

struct NpyDict {
  std::string_view descr;  // points into the parsed text
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

/// Parses "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }": each key once, in any order, white space
/// anywhere. file_offset is where `text` begins in its file. On false, `why` says what is wrong and at which offset of
/// the file.
bool parse_npy_dict(std::string_view text, std::size_t file_offset, NpyDict* out, std::string* why);

}  // namespace falchion::io
