// tools/problem/buffer.hpp: aligned memory for tensors and measurements.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace falchion::tools {

/// Bytes on a 64-byte boundary. Buffers of 2 MiB and more use huge pages if the system has them, so that a measurement
/// measures the memory and not the TLB. The content is indeterminate.
class Buffer {
 public:
  Buffer() = default;
  /// Throws UsageError if this machine does not have that much memory.
  explicit Buffer(std::size_t bytes);
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
