// examples/minimal/thread_pool.cpp: Falchion's work on your own threads, beside what else they do.
#include <falchion/falchion.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>
#include <utility>
#include <vector>

namespace {

/// A plain pool: a queue of jobs, and threads that take them.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { take_jobs(); });
  }
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// What a plan asks for: task(context, i) once for each i in [0, n), all of them done when this returns. The caller's
  /// thread helps.
  void parallel_for(int n, void (*task)(void* context, int i), void* context) {
    std::atomic<int> next = 0;
    const auto work = [&] {
      for (int i = next++; i < n; i = next++) task(context, i);
    };
    int helpers = static_cast<int>(threads_.size());
    {
      const std::lock_guard lock(mutex_);
      for (int i = helpers; i > 0; --i) {
        jobs_.push([&] {
          work();
          const std::lock_guard done(mutex_);
          if (--helpers == 0) done_.notify_all();
        });
      }
    }
    wake_.notify_all();
    work();
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return helpers == 0; });
  }

  falchion::Executor executor() {
    falchion::Executor executor;
    executor.parallel_for = [](void* self, int n, void (*task)(void*, int), void* context) {
      static_cast<Pool*>(self)->parallel_for(n, task, context);
    };
    executor.self = this;
    executor.threads = static_cast<int>(threads_.size()) + 1;
    return executor;
  }

 private:
  void take_jobs() {
    for (;;) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop();
      lock.unlock();
      job();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::queue<std::function<void()>> jobs_;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

falchion::Status attend(std::vector<float>* x, std::vector<float>* o, const falchion::Target& target) {
  const auto view = [](std::vector<float>* data) {
    return falchion::Tensor::dense(data->data(), falchion::DType::f32, {1, 512, 8, 64});
  };
  falchion::Operands operands;
  operands.q = operands.k = operands.v = view(x);
  operands.o = view(o);
  return falchion::attention(operands, {}, target);
}

}  // namespace

int main() {
  Pool pool(3);                                    // three threads, and the one that calls
  falchion::Target ours = falchion::Backend::cpu;  // a Plan takes the same target
  ours.executor = pool.executor();

  std::vector<float> x(512 * 8 * 64), o(x.size()), expected(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 1000) / 500 - 1;
  for (const falchion::Status& status : {attend(&x, &o, ours), attend(&x, &expected, falchion::Backend::cpu)}) {
    if (!status) {
      std::fprintf(stderr, "refused: %s\n", status.why.c_str());
      return 1;
    }
  }
  double difference = 0;
  for (std::size_t i = 0; i < o.size(); ++i) {
    difference = std::max(difference, static_cast<double>(std::abs(o[i] - expected[i])));
  }
  std::printf("four threads of a pool, and the library's own: the results differ by %.1g\n", difference);
  return difference < 1e-5 ? 0 : 1;
}
