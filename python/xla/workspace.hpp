// python/xla/workspace.hpp: the workspace of one run. On a GPU XLA's scratch allocator gives it. On the host that
// allocator gives nothing (tried with jaxlib 0.6.2, 0.8.1 and 0.10.2), so there it is one of ours, which is kept for
// the next run: as many are kept as there were runs at the same time.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "xla/ffi/api/ffi.h"

namespace falchion::xla_ffi {

inline constexpr std::size_t kWorkspaceAlign = 64;

struct FreeWorkspace {
  void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{kWorkspaceAlign}); }
};
using WorkspaceMemory = std::unique_ptr<std::byte, FreeWorkspace>;

class Workspace {
 public:
  /// scratch: null on the host.
  Workspace(xla::ffi::ScratchAllocator* scratch, std::size_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  void* data() const { return data_; }
  /// Whether there was memory.
  bool ok() const { return data_ != nullptr || bytes_ == 0; }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
  WorkspaceMemory ours_;
  std::size_t ours_bytes_ = 0;
};

}  // namespace falchion::xla_ffi
