// tools/verify/device_arena.cpp: see device_arena.hpp.
#include "device_arena.hpp"

#include <algorithm>
#include <array>

namespace falchion::tools::storm {

Status DeviceArena::reserve(std::size_t bytes) {
  if (memory_.size() >= bytes) return {};
  memory_ = cuda::Memory();
  return cuda::Memory::make(std::max(bytes + bytes / 2, std::size_t{64} << 20), &memory_);
}

Status DeviceArena::run(const std::byte* block, std::size_t size, std::size_t workspace_bytes, std::uint8_t fill,
                        std::byte* back, bool* whole,
                        const std::function<Status(std::byte* base, void* workspace)>& run) {
  const std::lock_guard lock(mutex_);
  const std::size_t at = (size + 4095) / 4096 * 4096;
  if (Status status = reserve(at + workspace_bytes + kGuard); !status) return status;
  std::byte* workspace = memory_.data() + at;
  if (Status status = cuda::copy(memory_.data(), block, size); !status) return status;
  if (Status status = cuda::fill(workspace, fill, workspace_bytes + kGuard); !status) return status;
  if (Status status = cuda::synchronize(); !status) return status;
  const Status ran = run(memory_.data(), workspace_bytes > 0 ? workspace : nullptr);
  if (Status status = cuda::synchronize(); !status) return status;
  std::array<std::byte, kGuard> guard{};
  if (Status status = cuda::copy(guard.data(), workspace + workspace_bytes, kGuard); !status) return status;
  *whole = std::all_of(guard.begin(), guard.end(), [&](std::byte x) { return x == std::byte{fill}; });
  if (Status status = cuda::copy(back, memory_.data(), size); !status) return status;
  return ran;
}

}  // namespace falchion::tools::storm
