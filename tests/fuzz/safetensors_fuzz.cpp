/// safetensors_fuzz.cpp: reads any bytes as a safetensors file. What is read must be in bounds, and must be the same
/// after it was written and read back.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "io/safetensors.hpp"
#include "io_fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace falchion;
  using namespace falchion::io;
  Archive first, second;
  if (!must_explain(parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz", &first))) return 0;
  for (const Array& array : first.arrays) touch(array);
  std::string file;
  std::vector<std::size_t> order;
  require(static_cast<bool>(safetensors_header(first.arrays, first.metadata, &file, &order)));
  require(file.size() % 64 == 0);
  for (const std::size_t i : order) append(first.arrays[i], &file);
  require(static_cast<bool>(parse_safetensors(std::as_bytes(std::span(file)), "again", &second)));
  require(first.metadata == second.metadata && first.arrays.size() == second.arrays.size());
  for (std::size_t i = 0; i < first.arrays.size(); ++i) {
    require(same(first.arrays[i], second.arrays[i]));
    require(second.find(first.arrays[i].name) == &second.arrays[i]);
  }
  return 0;
}
