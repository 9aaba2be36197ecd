// tests/cuda/zeros.hpp: tensors of more than 2^31 elements. They are made on the device, and all their elements but a
// few rows are zero, so that the answer is known without a reference.
#pragma once

#include "base/size.hpp"
#include "device.hpp"

namespace falchion::testing {

/// A tensor (b, s, h, d) of zeros on the device.
struct Zeros {
  cuda::Memory memory;
  Tensor view;
  Status make(DType dtype, Shape shape) {
    const auto bytes = static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3] * size_of(dtype));
    if (Status status = cuda::Memory::make(bytes, &memory); !status) return status;
    view = Tensor::dense(memory.data(), dtype, shape);
    return cuda::fill(memory.data(), 0, bytes);
  }
  std::byte* row(std::int64_t s, std::int64_t h) const {
    return memory.data() + (s * view.stride[1] + h * view.stride[2]) * size_of(view.dtype);
  }
  /// Sets element d of one row to value(d), for all d.
  template <class F>
  Status set(std::int64_t s, std::int64_t h, const F& value) const {
    HostTensor one(view.dtype, {1, 1, 1, view.shape[3]});
    for (std::int64_t d = 0; d < view.shape[3]; ++d) one.set(0, 0, 0, d, value(d));
    return cuda::copy(row(s, h), one.memory(), one.memory_bytes());
  }
  Status get(std::int64_t s, std::int64_t h, HostTensor* out) const {
    *out = HostTensor(view.dtype, {1, 1, 1, view.shape[3]});
    return cuda::copy(out->memory(), row(s, h), out->memory_bytes());
  }
};

inline float number(std::int64_t d) {
  return static_cast<float>(d % 13) - 6;
}  // These numbers are exact in every type.

/// Calls f(path, dtype) for each path and the types of 16 bits where the device has that much memory.
template <class F>
void on_every_roomy_path(std::size_t gibibytes, const F& f, const char* operation = kAttention) {
  on_every_path(
      [&](const Path& path, DType dtype) {
        if (dtype == DType::f32) return;  // f32 has the same offsets and needs twice the memory.
        const std::size_t wanted = gibibytes << 30;
        if (cuda::current_device().memory < wanted) GTEST_SKIP() << "needs " << gibibytes << " GiB of device memory";
        f(path, dtype);
      },
      operation);
}

}  // namespace falchion::testing
