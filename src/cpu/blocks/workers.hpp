// src/cpu/blocks/workers.hpp: workers that take their tasks from one counter.
#pragma once

#include "cpu/blocks/level.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// A counter that workers share. It uses a builtin and not std::atomic, because no inline
/// function may be shared between levels.
struct Counter {
  std::int64_t value = 0;
  FALCHION_INLINE std::int64_t take() { return __atomic_fetch_add(&value, 1, __ATOMIC_RELAXED); }
};

/// Calls body(worker, counter) on at most args.threads workers of args.pool. This is the only place that starts work on
/// other threads.
template <class Args, class Body>
void for_each_worker(const Args& a, std::int64_t items, const Body& body) {
  struct Shared {
    const Body* body;
    Counter next;
  } shared{&body, {}};
  const auto workers = static_cast<int>(min(a.threads, items));
  auto task = [](void* context, int worker) {
    auto& s = *static_cast<Shared*>(context);
    (*s.body)(worker, s.next);
  };
  if (workers <= 1) {
    if (items > 0) task(&shared, 0);
  } else {
    a.pool.parallel_for(a.pool.self, workers, task, &shared);
  }
}

}  // namespace falchion::cpu::FALCHION_LEVEL
