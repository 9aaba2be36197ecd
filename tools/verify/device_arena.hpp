// tools/verify/device_arena.hpp: one block of GPU memory that all problems of a storm use, one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

#include "falchion/falchion.hpp"
#include "problem/device_copy.hpp"

namespace falchion::tools::storm {

class DeviceArena {
 public:
  /// Copies the block there, calls run(base, workspace), waits, and copies it back into `back`. The workspace is filled
  /// with `fill` before, and `whole` returns whether the guard behind it is still filled with it. Only one caller works
  /// at a time; the others wait.
  Status run(const std::byte* block, std::size_t size, std::size_t workspace_bytes, std::uint8_t fill, std::byte* back,
             bool* whole, const std::function<Status(std::byte* base, void* workspace)>& run);

 private:
  static constexpr std::size_t kGuard = 512;
  Status reserve(std::size_t bytes);

  std::mutex mutex_;
  cuda::Memory memory_;
};

}  // namespace falchion::tools::storm
