// tests/api_test.cpp: tests of the one-call form, of the executor hook and of threads, and a check that a run allocates
// nothing. tests/refusals_test.cpp tests what is refused.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "api/data_of.hpp"
#include "cpu/threads.hpp"
#include "plan/plan_data.hpp"
#include "support/contract.hpp"
#include "support/gemm.hpp"
#include "support/linear.hpp"
#include "support/norm.hpp"

namespace {
std::atomic<std::int64_t> allocations{0};
}
// These two functions must not be inlined. Where GCC inlines them it sees memory of operator new go to free() and
// warns.
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace falchion::testing {
namespace {

// ---- the one-call form ----------------------------------------------------------------------------------------------

/// Returns the operands without the rows that belong to no sequence, because on the host the one-call form
/// refuses them.
Operands whole_sequences(const Instance& x) {
  Operands out = x.operands();
  if (!x.problem.packed) return out;
  for (Tensor* tensor : {&out.q, &out.o}) tensor->shape[1] = x.cu_q.back();
  for (Tensor* tensor : {&out.k, &out.v}) tensor->shape[1] = x.cu_k.back();
  for (Tensor* tensor : {&out.lse, &out.row_max})
    if (tensor->data != nullptr) tensor->shape[2] = x.cu_q.back();
  return out;
}

TEST(OneCall, TakesSizesFromTheTensors) {
  for (const Case& row : cases()) {
    SCOPED_TRACE(row.name);
    if (row.b == 0 || row.s_q * row.s_k > 20000) continue;
    Instance x = make_instance(row, DType::f32);
    x.poison_outputs();
    Attention options;
    options.b = x.problem.b;
    options.band = x.problem.band;
    options.score = x.problem.score;
    options.dropout = x.problem.dropout;
    const Status status = attention(whole_sequences(x), options, host_target());
    // A plan clamps lengths that are out of range, and this form refuses them on the host.
    const bool broken = [&] {
      for (const char* name : {"used_out_of_range", "left_padding_used", "left_padding_packed"})
        if (row.name == std::string(name)) return true;
      return false;
    }();
    if (broken) {
      EXPECT_NE(status.why.find(": it must be in [0, "), std::string::npos) << status.why;
      continue;
    }
    ASSERT_TRUE(status) << status.why;
    EXPECT_TRUE(matches(x, Reference(x)));
  }
}

TEST(OneCall, KeepsItsPlan) {
  Instance x = make_instance(Case{"x", 1, 40, 50, 2, 1, 32, 32}, DType::f32);
  Target serial = host_target();
  serial.threads = 1;
  ASSERT_TRUE(attention(x.operands(), {}, serial));
  const std::int64_t before = allocations;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(attention(x.operands(), {}, serial));
  EXPECT_EQ(allocations - before, 0);
}

/// A pool that runs other work of its own while a caller waits, as work-stealing pools do. Here the other work is
/// another attention, which runs between the parts of split keys and their merge.
struct NestingPool {
  Instance* other;
  int calls = 0;
  static void parallel_for(void* self, int n, void (*task)(void* context, int i), void* context) {
    auto& pool = *static_cast<NestingPool*>(self);
    if (++pool.calls == 2) { ASSERT_TRUE(attention(pool.other->operands(), {}, host_target())); }
    for (int i = 0; i < n; ++i) task(context, i);
  }
};
TEST(OneCall, MayBeCalledFromItsOwnExecutor) {
  Instance x = make_instance(Case{"x", 1, 1, 8192, 4, 1, 64, 64}, DType::f32);
  Instance y = make_instance(Case{"y", 2, 400, 500, 4, 2, 80, 80}, DType::f32, 3);
  x.poison_outputs();
  y.poison_outputs();
  // From this call on the thread's workspace is large enough for both.
  ASSERT_TRUE(attention(y.operands(), {}, host_target()));
  y.poison_outputs();
  NestingPool pool{&y};
  Target target = host_target();
  target.executor = {NestingPool::parallel_for, &pool, 4};
  ASSERT_TRUE(attention(x.operands(), {}, target));
  EXPECT_EQ(pool.calls, 2);
  EXPECT_TRUE(matches(x, Reference(x)));
  EXPECT_TRUE(matches(y, Reference(y)));
}

TEST(OneCall, Refuses) {
  Instance x = make_instance(Case{"x", 1, 40, 50, 2, 1, 32, 32}, DType::f32);
  Operands operands = x.operands();
  operands.v.shape[1] = 49;
  EXPECT_EQ(attention(operands).why, "v.shape[1] = 49, but the problem's is 50");
  EXPECT_EQ(attention(x.operands(), {}, Backend::sm90).code, Code::unsupported);
}

// ---- run ------------------------------------------------------------------------------------------------------------

/// A pool that works on the calling thread and counts its calls and tasks.
struct SerialPool {
  int calls = 0, tasks = 0;
  static void parallel_for(void* self, int n, void (*task)(void* context, int i), void* context) {
    auto& pool = *static_cast<SerialPool*>(self);
    ++pool.calls;
    pool.tasks += n;
    for (int i = n - 1; i >= 0; --i) task(context, i);
  }
};

/// Plans for a pool of four threads, and expects of a run that it allocates nothing, and that it uses the pool if the
/// plan has more than one thread. pass: that of a problem which has passes.
template <class Problem, class AnyOperands, class... PassIfAny>
void expect_no_allocation(Target target, const Problem& problem, const AnyOperands& operands, PassIfAny... pass) {
  SerialPool pool;
  target.executor = {SerialPool::parallel_for, &pool, 4};
  Plan plan;
  ASSERT_TRUE(Plan::make(problem, pass..., target, &plan));
  const Workspace workspace(plan.workspace_bytes());
  const std::int64_t before = allocations;
  const Status status = plan.run(operands, workspace.data(), workspace.size());
  EXPECT_EQ(allocations - before, 0);
  EXPECT_TRUE(status) << status.why;
  EXPECT_EQ(pool.calls > 0, data_of(plan)->threads > 1);
  EXPECT_LE(pool.tasks, 4 * pool.calls);
}

TEST(Contract, StreamsAndCaptureARunAllocatesNothing) {
  on_every_path([](const Path& path, DType dtype) {
    for (const std::int64_t s_q : {1, 300}) {
      const std::int64_t s_k = s_q == 1 ? 1500 : 300;
      Instance x = make_instance(Case{"x", 1, s_q, s_k, 4, 2, 64, 64}.causal(), dtype);
      if (path.backend == Backend::ref) x = make_instance(Case{"x", 1, 3, 20, 4, 2, 64, 64}.causal(), dtype);
      expect_no_allocation(path.target(0), x.problem, x.operands(), Pass::forward);
      if (s_q == 1) { EXPECT_TRUE(matches(x, Reference(x))); }
    }
  });
}

TEST(LinearContract, ARunAllocatesNothing) {
  for (const char* operation : {kLinearForward, kLinearBackward}) {
    const Pass pass = operation == kLinearForward ? Pass::forward : Pass::backward;
    on_every_path(
        [&](const Path& path, DType dtype) {
          for (const int segments : {1, 3}) {
            LinearInstance x = make_linear_instance(
                LinearCase{"x", 1, 400, 1, 2, 64, 64}.states().decay(Decay::token).elu().normalise(), dtype);
            Target target = path.target(0);
            target.segments = segments;
            expect_no_allocation(target, x.problem, x.operands(pass), pass);
            EXPECT_TRUE(matches(x, linear_reference(x, pass), pass));
          }
        },
        operation);
  }
}

TEST(GemmContract, ARunAllocatesNothing) {
  on_every_path(
      [](const Path& path, DType dtype) {
        for (const std::int64_t m : {8, 100}) {
          const GemmInstance x = make_gemm_instance(GemmCase{"x", 2, m, 300, 200}.shared_b().biases(), dtype);
          expect_no_allocation(path.target(0), x.problem, x.operands());
          EXPECT_TRUE(matches(x, x));
        }
      },
      kGemm);
}

TEST(NormContract, ARunAllocatesNothing) {
  on_every_path(
      [](const Path& path, DType dtype) {
        const NormInstance x = make_norm_instance({"x", 1, 400, 1, 500, {.weight = true, .residual = true}}, dtype);
        expect_no_allocation(path.target(0), x.problem, x.operands());
        EXPECT_TRUE(matches(x, x));
      },
      kNorm);
}

TEST(Threads, OnePlanManyThreads) {
  on_every_path([](const Path& path, DType dtype) {
    Instance x = make_instance(Case{"x", 1, 60, 70, 2, 1, 32, 32}.causal(), dtype);
    Plan plan;
    ASSERT_TRUE(Plan::make(x.problem, Pass::forward, path.target(2), &plan));
    std::vector<Instance> results;
    for (int t = 0; t < 4; ++t) results.push_back(make_instance(Case{"x", 1, 60, 70, 2, 1, 32, 32}.causal(), dtype));
    std::vector<std::thread> users;
    for (Instance& result : results) {
      users.emplace_back([&plan, &result] {
        const Workspace workspace(plan.workspace_bytes());
        for (int i = 0; i < 3; ++i) EXPECT_TRUE(plan.run(result.operands(), workspace.data(), workspace.size()));
      });
    }
    for (std::thread& user : users) user.join();
    const Reference reference(x);
    for (const Instance& result : results) EXPECT_TRUE(matches(result, reference));
  });
}

TEST(Threads, OnePlanOfAGemmManyThreads) {
  on_every_path(
      [](const Path& path, DType dtype) {
        if (path.backend == Backend::ref) return;  // it runs on its caller's thread, and slowly
        for (const std::int64_t m : {7, 90}) {     // few rows of B as they lie, and packed operands
          const GemmInstance x = make_gemm_instance(GemmCase{"x", 2, m, 150, 250}, dtype);  // work for two threads
          Plan plan;
          ASSERT_TRUE(Plan::make(x.problem, path.target(2), &plan));
          std::vector<GemmInstance> results(4, x);
          for (GemmInstance& result : results) result.d = x.d.like();
          std::vector<std::thread> users;
          for (const GemmInstance& result : results) {
            users.emplace_back([&plan, &result] {
              const Workspace workspace(plan.workspace_bytes());
              for (int i = 0; i < 3; ++i) EXPECT_TRUE(plan.run(result.operands(), workspace.data(), workspace.size()));
            });
          }
          for (std::thread& user : users) user.join();
          const judge::GemmReference reference(x.problem, x.operands());
          for (const GemmInstance& result : results) EXPECT_TRUE(matches(result, reference));
        }
      },
      kGemm);
}

TEST(Threads, ThePoolCallsEachTaskOnce) {
  for (const int threads : {1, 2, 5}) {
    const cpu::Pool pool = cpu::default_pool(threads);
    for (const int n : {0, 1, 3, 100}) {
      std::vector<std::atomic<int>> counts(static_cast<std::size_t>(n));
      pool.parallel_for(
          pool.self, n,
          [](void* context, int i) {
            ++(*static_cast<std::vector<std::atomic<int>>*>(context))[static_cast<std::size_t>(i)];
          },
          &counts);
      for (const std::atomic<int>& count : counts) EXPECT_EQ(count, 1);
    }
  }
  EXPECT_GE(cpu::default_threads(), 1);
}

TEST(BuildInfo, SaysWhatThereIs) {
  EXPECT_NE(build_info().find("cpu levels "), std::string::npos);
  EXPECT_NE(build_info().find("variants "), std::string::npos);
  // Each variant is listed with its own operation and back end, and once.
  for (const Variant& v : variants()) {
    const std::string head = text("; ", v.op, " ", name(v.backend), " ", v.level, v.d > 0 ? text(" d", v.d) : "", ":");
    const std::string all = build_info();
    const std::size_t at = all.find(head);
    ASSERT_NE(at, std::string::npos) << head << "\n" << all;
    const std::string types = all.substr(at + head.size(), all.find_first_of(";\n", at + 1) - at - head.size());
    EXPECT_NE((types + " ").find(text(" ", v.dtype, " ")), std::string::npos) << head << types;
    EXPECT_EQ(all.find(head, at + 1), std::string::npos) << head << " twice";
  }
}

}  // namespace
}  // namespace falchion::testing
