// src/cpu/thread_pool.cpp: implements thread_pool.hpp with one list of open jobs, one lock, and one condition variable
// that idle helpers wait on.
#include "cpu/thread_pool.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#if defined(__linux__)
  #include <sched.h>
#endif

namespace falchion::cpu {
namespace {

/// The CPUs that a thread may run on. On systems other than Linux the set is empty and has no effect.
class CpuSet {
 public:
  static CpuSet of_this_thread() {
    CpuSet cpus;
#if defined(__linux__)
    if (sched_getaffinity(0, sizeof cpus.set_, &cpus.set_) != 0)
      CPU_ZERO(&cpus.set_);  // more CPUs than cpu_set_t can hold
#endif
    return cpus;
  }
#if defined(__linux__)
  CpuSet() { CPU_ZERO(&set_); }
  int count() const { return CPU_COUNT(&set_); }
  bool operator==(const CpuSet& other) const { return CPU_EQUAL(&set_, &other.set_) != 0; }
  void take_for_this_thread() const {
    if (count() > 0) sched_setaffinity(0, sizeof set_, &set_);
  }

 private:
  cpu_set_t set_;
#else
  int count() const { return 0; }
  bool operator==(const CpuSet&) const { return true; }
  void take_for_this_thread() const {}
#endif
};

/// One call of run_on_thread_pool. It lies on the caller's stack, so the caller returns only when no helper uses it.
struct Job {
  void (*task)(void* context, int i);
  void* context;
  int n;
  CpuSet cpus;     // the CPUs that the caller may run on
  int wanted;      // how many helpers may still join; the pool's lock guards this and the next two
  int inside = 0;  // how many helpers work on it now
  Job* later = nullptr;
  std::atomic<int> next{0};
  std::condition_variable left{};  // the last helper that leaves the job notifies its caller

  void work() {
    for (int i = next++; i < n; i = next++) task(context, i);
  }
};

/// Threads that are started while this object lives get none of the signals that are sent to the
/// process, since the process's handlers are meant for its own threads. Signals that a thread causes
/// itself (SIGSEGV and the like) still reach it.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t most;
    sigfillset(&most);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&most, own);
    pthread_sigmask(SIG_SETMASK, &most, &before_);
  }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

class ThreadPool {
 public:
  void run(Job* job) {
    const int wanted = job->wanted;
    {
      const std::lock_guard lock(mutex_);
      if (!closed_) add(job);
    }
    for (int i = 0; i < wanted; ++i) work_to_do_.notify_one();
    job->work();
    std::unique_lock lock(mutex_);
    remove(job);
    job->left.wait(lock, [job] { return job->inside == 0; });
  }
  int helpers() {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(threads_.size());
  }
  /// Ends all helpers. Later calls of run() do without them.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    work_to_do_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  ThreadPool* older = nullptr;  // the next one in the list of pools that forget_threads() keeps

 private:
  void add(Job* job) {
    Job** end = &jobs_;
    while (*end != nullptr) end = &(*end)->later;
    *end = job;
    wanted_ += job->wanted;
    start_helpers(job->wanted);
  }
  void remove(Job* job) {
    Job** at = &jobs_;
    while (*at != nullptr && *at != job) at = &(*at)->later;
    if (*at == nullptr) return;
    *at = job->later;
    wanted_ -= job->wanted;
  }
  /// Starts as many helpers as are missing beside those at work. Once there is a helper for each CPU no more are
  /// started, and several callers share them.
  void start_helpers(int of_this_job) {
    const auto idle = [this] { return static_cast<int>(threads_.size()) - at_work_; };
    if (idle() >= wanted_) return;
    const int most = std::max(of_this_job, cpus_allowed() - 1);
    const WithoutSignals block;
    try {
      while (idle() < wanted_ && static_cast<int>(threads_.size()) < most) threads_.emplace_back([this] { help(); });
    } catch (...) {  // without a thread or memory for one there are fewer helpers, and the caller does more of the work
    }
  }
  void help() {
    CpuSet cpus = CpuSet::of_this_thread();
    std::unique_lock lock(mutex_);
    for (;;) {
      work_to_do_.wait(lock, [this] { return jobs_ != nullptr || closed_; });
      if (jobs_ == nullptr) return;
      Job* const job = jobs_;
      ++at_work_;
      ++job->inside;
      --wanted_;
      if (--job->wanted == 0) remove(job);
      lock.unlock();
      if (!(cpus == job->cpus)) {
        cpus = job->cpus;
        cpus.take_for_this_thread();
      }
      job->work();
      lock.lock();
      --at_work_;
      if (--job->inside == 0) job->left.notify_one();  // under the lock, since the caller may end the job at once
    }
  }

  std::mutex mutex_;
  std::condition_variable work_to_do_;
  std::vector<std::thread> threads_;
  Job* jobs_ = nullptr;  // the jobs that still want helpers, the oldest first
  int wanted_ = 0;       // how many helpers all of them want
  int at_work_ = 0;      // how many helpers are at work
  bool closed_ = false;
};

/// The pool is never destroyed, because threads and callers may outlive any static object.
std::atomic<ThreadPool*> the_pool{nullptr};
ThreadPool* forgotten = nullptr;  // kept reachable, so that no leak checker complains

/// Runs in a forked child on its only thread. The helpers do not exist there, and one of them may have held the lock.
void forget_threads() {
  ThreadPool* const pool = the_pool.exchange(nullptr);
  if (pool != nullptr) {
    pool->older = forgotten;
    forgotten = pool;
  }
}

/// Returns null when there is no memory for it.
ThreadPool* thread_pool() noexcept {
  ThreadPool* pool = the_pool.load();
  if (pool != nullptr) return pool;
  static std::atomic<bool> watched{false};
  if (!watched.exchange(true)) pthread_atfork(nullptr, nullptr, forget_threads);
  auto* const fresh = new (std::nothrow) ThreadPool;
  if (fresh == nullptr || the_pool.compare_exchange_strong(pool, fresh)) return fresh;
  delete fresh;  // another thread was first
  return pool;
}

/// Closes the pool when the process ends or the library is unloaded, so that no thread waits in code that is gone.
struct AtTheEnd {
  AtTheEnd() = default;
  AtTheEnd(const AtTheEnd&) = delete;
  AtTheEnd& operator=(const AtTheEnd&) = delete;
  ~AtTheEnd() {
    if (ThreadPool* const pool = the_pool.load()) pool->close();
  }
} at_the_end;

}  // namespace

void run_on_thread_pool(int threads, int n, void (*task)(void* context, int i), void* context) noexcept {
  Job job{.task = task, .context = context, .n = n, .cpus = {}, .wanted = std::min(threads, n) - 1};
  ThreadPool* const pool = job.wanted > 0 ? thread_pool() : nullptr;
  if (pool == nullptr) return job.work();
  job.cpus = CpuSet::of_this_thread();
  pool->run(&job);
}

int thread_pool_helpers() noexcept {
  ThreadPool* const pool = the_pool.load();
  return pool == nullptr ? 0 : pool->helpers();
}

int cpus_allowed() noexcept {
  const int count = CpuSet::of_this_thread().count();
  return count > 0 ? count : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace falchion::cpu
