// src/cpu/threads.cpp: implements threads.hpp with OpenMP or with the library's own threads.
#include "cpu/threads.hpp"

#include <algorithm>
#include <cstdint>

#include "cpu/thread_pool.hpp"

#if defined(FALCHION_OPENMP)
  #include <omp.h>
  #include <pthread.h>

  #include <atomic>
  #include <mutex>
  #include <vector>
#endif

namespace falchion::cpu {
namespace {

using Task = void (*)(void* context, int i);

#if defined(FALCHION_OPENMP)

/// libgomp ends the process if it cannot start a thread, and it hangs in a child that was forked after its parent used
/// it. So threads_can_start() first tries, once for each calling thread, whether that many threads can be started, and
/// a forked child uses the library's own threads.
std::atomic<bool> forked{false};

void* wait_for(void* gate) {
  const std::lock_guard wait(*static_cast<std::mutex*>(gate));
  return nullptr;
}

bool threads_can_start(int threads) noexcept {
  static const int watch_forks = pthread_atfork(nullptr, nullptr, [] { forked = true; });
  static_cast<void>(watch_forks);
  thread_local int proven = 1;
  std::vector<pthread_t> started;
  try {
    if (threads > proven) started.resize(static_cast<std::size_t>(threads - 1));
  } catch (...) { return false; }
  std::size_t count = 0;
  std::mutex gate;  // keeps the threads waiting until all of them exist at the same time
  gate.lock();
  while (count < started.size() && pthread_create(&started[count], nullptr, wait_for, &gate) == 0) ++count;
  gate.unlock();
  for (std::size_t i = 0; i < count; ++i) pthread_join(started[i], nullptr);
  if (count < started.size()) return false;
  proven = std::max(proven, threads);
  return true;
}

void parallel_for(void* self, int n, Task task, void* context) {
  const int threads = std::min(static_cast<int>(reinterpret_cast<std::intptr_t>(self)), n);
  if (threads > 1 && (!threads_can_start(threads) || forked)) return run_on_thread_pool(threads, n, task, context);
  #pragma omp parallel for num_threads(threads) schedule(dynamic, 1) if (threads > 1)
  for (int i = 0; i < n; ++i) task(context, i);
}

#else

void parallel_for(void* self, int n, Task task, void* context) {
  run_on_thread_pool(static_cast<int>(reinterpret_cast<std::intptr_t>(self)), n, task, context);
}

#endif

}  // namespace

Pool default_pool(int threads) { return {parallel_for, reinterpret_cast<void*>(static_cast<std::intptr_t>(threads))}; }

int default_threads() {
#if defined(FALCHION_OPENMP)
  return std::max(1, omp_get_max_threads());
#else
  return cpus_allowed();
#endif
}

}  // namespace falchion::cpu
