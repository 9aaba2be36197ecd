// src/cpu/thread_pool.hpp: the library's own threads, for builds without OpenMP and where OpenMP cannot be used.
#pragma once

namespace falchion::cpu {

/// Calls task(context, i) once for each i in [0, n), on this thread and at most threads - 1 helpers. Helpers are
/// started at the first need and then wait for the next call until the process ends. It may be called from several
/// threads at once and from within a task: the caller works itself, so it waits only for helpers that are in the middle
/// of one of its tasks, and without helpers it does everything. Helpers run on the CPUs that this caller may run on,
/// not on those of earlier callers. So the work of a pinned caller stays on its CPUs, and later callers are not bound
/// to them.
void run_on_thread_pool(int threads, int n, void (*task)(void* context, int i), void* context) noexcept;

/// How many helpers this process has started. A forked child has none, and starts its own when it needs them.
int thread_pool_helpers() noexcept;

/// How many CPUs the calling thread may run on.
int cpus_allowed() noexcept;

}  // namespace falchion::cpu
