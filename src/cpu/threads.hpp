// src/cpu/threads.hpp: the pool that is used if the caller provides none.
#pragma once

#include "args/pool.hpp"

namespace falchion::cpu {

/// It is OpenMP if the build has it, and otherwise the library's own threads (thread_pool.hpp). It may be used from any
/// thread, and from several at once. If no thread can be started the caller does all the work, so a pool never fails.
Pool default_pool(int threads);

/// How many threads this process may use: OMP_NUM_THREADS, or the number of CPUs it may run on.
int default_threads();

}  // namespace falchion::cpu
