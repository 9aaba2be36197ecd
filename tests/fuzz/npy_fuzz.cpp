/// npy_fuzz.cpp: reads any bytes as a .npy file. What is read must be in bounds, and must be the same after it was
/// written and read back.
#include <cstddef>
#include <cstdint>
#include <string>

#include "io/npy.hpp"
#include "io_fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace falchion;
  using namespace falchion::io;
  Array first, second;
  if (!must_explain(parse_npy(std::as_bytes(std::span(data, size)), "fuzz", &first))) return 0;
  touch(first);
  std::string file;
  require(static_cast<bool>(npy_header(first, &file)));
  require(file.size() % 64 == 0);
  append(first, &file);
  require(static_cast<bool>(parse_npy(std::as_bytes(std::span(file)), "again", &second)));
  second.name = first.name;
  require(same(first, second));
  return 0;
}
