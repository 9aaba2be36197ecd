// python/xla/threads.hpp: XLA's thread pool as Falchion's executor, so that a run on the CPU uses the threads that XLA
// has, and no second team beside them.
#pragma once

#include "falchion/falchion.h"
#include "xla/ffi/api/ffi.h"

namespace falchion::xla_ffi {

/// Lends the pool of one custom call to the runs that this thread makes as long as the object lives.
class LentThreads {
 public:
  explicit LentThreads(xla::ffi::ThreadPool* pool);
  ~LentThreads();
  LentThreads(const LentThreads&) = delete;
  LentThreads& operator=(const LentThreads&) = delete;
};

/// The executor that uses the pool which the calling thread was lent. A plan that has it serves all calls.
fal_executor executor_with(int threads);

}  // namespace falchion::xla_ffi
