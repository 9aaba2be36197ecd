// python/xla/workspace.cpp: see workspace.hpp.
#include "workspace.hpp"

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace falchion::xla_ffi {
namespace {

struct Spare {
  WorkspaceMemory memory;
  std::size_t bytes;
};
struct Spares {
  std::mutex mutex;
  std::vector<Spare> all;
};

Spares& spares() {
  static Spares* const of_process = new Spares;  // it outlives every thread of XLA
  return *of_process;
}

/// The spare that was given back last: its memory is the likeliest to be in a cache.
Spare take_spare() {
  Spares& kept = spares();
  const std::lock_guard lock(kept.mutex);
  if (kept.all.empty()) return {nullptr, 0};
  Spare last = std::move(kept.all.back());
  kept.all.pop_back();
  return last;
}

void* from_scratch(xla::ffi::ScratchAllocator* scratch, std::size_t bytes) {
  // XLA promises 16 bytes of alignment, so there is room to move the start.
  const auto memory = scratch->Allocate(bytes + kWorkspaceAlign, 16);
  if (!memory.has_value()) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(*memory);
  return reinterpret_cast<void*>((address + kWorkspaceAlign - 1) / kWorkspaceAlign * kWorkspaceAlign);
}

}  // namespace

Workspace::Workspace(xla::ffi::ScratchAllocator* scratch, std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  if (scratch != nullptr) {
    data_ = from_scratch(scratch, bytes);
    return;
  }
  Spare spare = take_spare();
  if (spare.bytes < bytes) {
    spare.memory.reset();
    auto* data = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kWorkspaceAlign}, std::nothrow));
    spare.memory.reset(data);
    spare.bytes = bytes;
  }
  data_ = spare.memory.get();
  ours_ = std::move(spare.memory);
  ours_bytes_ = spare.bytes;
}

Workspace::~Workspace() {
  if (!ours_) return;
  try {
    Spares& kept = spares();
    const std::lock_guard lock(kept.mutex);
    kept.all.push_back({std::move(ours_), ours_bytes_});
  } catch (...) {  // no memory for the list: the workspace is freed instead of kept
  }
}

}  // namespace falchion::xla_ffi
