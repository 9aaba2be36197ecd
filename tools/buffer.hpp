// tools/buffer.hpp: aligned memory for tensors and measurements.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace falchion::tools {

/// Bytes on a 64-byte boundary; 2 MiB and more lie on huge pages where the system gives them, so that a measurement
/// sees the memory and not the TLB. The content is indeterminate.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes) : bytes_(bytes) {
    constexpr std::size_t huge = std::size_t{2} << 20;
    const std::size_t align = bytes >= huge ? huge : 64;
    const std::size_t rounded = (bytes + align) / align * align;  // never 0, so that data() is never null
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(align, rounded)));
    if (!data_) throw std::bad_alloc();
    if (align == huge) madvise(data_.get(), rounded, MADV_HUGEPAGE);
  }
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_ = 0;
};

}  // namespace falchion::tools
