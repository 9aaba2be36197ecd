// python/xla/threads.cpp: see threads.hpp.
#include "threads.hpp"

#include <algorithm>
#include <atomic>
#include <memory>

namespace falchion::xla_ffi {
namespace {

thread_local xla::ffi::ThreadPool* lent = nullptr;

/// n tasks that several threads draw from one counter. A helper that comes late finds none left and leaves, so the
/// caller waits only for tasks that somebody has begun: no number of busy threads can make it wait for ever.
struct Tasks {
  void (*task)(void* context, int i);
  void* context;
  int n;
  std::atomic<int> next{0}, done{0};

  void work() {
    int finished = 0;
    for (int i = next.fetch_add(1); i < n; i = next.fetch_add(1)) {
      task(context, i);
      ++finished;
    }
    if (finished > 0 && done.fetch_add(finished) + finished == n) done.notify_all();
  }
  void wait() {
    for (int seen = done.load(); seen != n; seen = done.load()) done.wait(seen);
  }
};

void parallel_for(void*, int n, void (*task)(void* context, int i), void* context) {
  if (lent == nullptr || n <= 1) {
    for (int i = 0; i < n; ++i) task(context, i);
    return;
  }
  const auto tasks = std::make_shared<Tasks>();
  tasks->task = task;
  tasks->context = context;
  tasks->n = n;
  const int helpers = std::min<int>(n, static_cast<int>(lent->num_threads())) - 1;
  for (int i = 0; i < helpers; ++i) lent->Schedule([tasks] { tasks->work(); });
  tasks->work();
  tasks->wait();
}

}  // namespace

LentThreads::LentThreads(xla::ffi::ThreadPool* pool) { lent = pool; }
LentThreads::~LentThreads() { lent = nullptr; }

fal_executor executor_with(int threads) {
  fal_executor executor{};
  executor.size = sizeof executor;
  executor.parallel_for = parallel_for;
  executor.threads = std::max(threads, 1);
  return executor;
}

}  // namespace falchion::xla_ffi
