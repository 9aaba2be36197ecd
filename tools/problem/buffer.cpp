// tools/problem/buffer.cpp
#include "problem/buffer.hpp"

#include <fmt/core.h>
#include <sys/mman.h>

#include "command/table.hpp"
#include "measure/machine.hpp"
#include "tool.hpp"

namespace falchion::tools {

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  constexpr std::size_t huge = std::size_t{2} << 20;
  const std::size_t align = bytes >= huge ? huge : 64;
  const std::size_t rounded = (bytes + align) / align * align;  // never 0, so that data() is never null
  // The system would promise more memory than it has, and kill a process when the memory is written.
  const bool fits = static_cast<double>(bytes) <= memory_bytes();
  if (fits) data_.reset(static_cast<std::byte*>(std::aligned_alloc(align, rounded)));
  if (!data_)
    throw UsageError{fmt::format("a tensor or a workspace of {} does not fit into memory; this machine has {}",
                                 format_bytes(static_cast<double>(bytes)), format_bytes(memory_bytes()))};
  if (align == huge) madvise(data_.get(), rounded, MADV_HUGEPAGE);
}

}  // namespace falchion::tools
