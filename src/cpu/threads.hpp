// src/cpu/threads.hpp: the pool used when the caller lends none.
#pragma once

#include "args/cpu_attention_args.hpp"

namespace falchion::cpu {

/// OpenMP where the build has it, else threads of our own (thread_pool.hpp). May be used from any thread, and from
/// several at once. Where no thread can be started the caller does all the work: a pool never fails.
Pool default_pool(int threads);

/// How many threads this process may use: OMP_NUM_THREADS, or the CPUs it may run on.
int default_threads();

}  // namespace falchion::cpu
