// tests/support/far_rows.cpp: implements far_rows.hpp.
#include "support/far_rows.hpp"

#include <sys/mman.h>

#include <cstring>

#include "base/size.hpp"

namespace falchion::testing {

FarRows::FarRows(std::int64_t rows, std::int64_t step, DType dtype)
    : step_(step),
      bytes_(static_cast<std::size_t>(rows * step * size_of(dtype))),
      memory_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}

FarRows::~FarRows() {
  if (memory_ != MAP_FAILED) munmap(memory_, bytes_);
}

std::string FarRows::why_not(const Path& path) const {
  if (!has_room(path, bytes_)) return text("this device has no room for ", bytes_, " bytes");
  if (memory_ == MAP_FAILED) return text("this system maps no ", bytes_, " sparse bytes");
  return "";
}

void FarRows::move(Tensor* tensor) {
  const Tensor from = *tensor;
  tensor->data = static_cast<std::byte*>(memory_) + used_ * size_of(from.dtype);
  tensor->stride[1] = step_;
  used_ += 64;
  copy_rows(from, *tensor);
}

void copy_rows(const Tensor& from, const Tensor& to) {
  const std::int64_t size = size_of(from.dtype);
  for (std::int64_t i = 0; i < from.shape[1]; ++i) {
    std::memcpy(static_cast<std::byte*>(to.data) + i * to.stride[1] * size,
                static_cast<std::byte*>(from.data) + i * from.stride[1] * size,
                static_cast<std::size_t>(from.shape[3] * size));
  }
}

}  // namespace falchion::testing
