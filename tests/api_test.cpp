// tests/api_test.cpp: refusals with their texts, the one-call form, the executor hook, threads, and that a run
// allocates nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <limits>
#include <new>
#include <thread>

#include "api/overlap.hpp"
#include "cpu/threads.hpp"
#include "plan/plan_data.hpp"
#include "support/contract.hpp"
#include "support/linear.hpp"

namespace {
std::atomic<std::int64_t> allocations{0};
}
// noinline: inlined, GCC sees free() meet operator new and warns.
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace falchion::testing {
namespace {

Instance small() { return make_instance(Case{"x", 2, 8, 9, 4, 2, 16, 24}.row_max(), DType::bf16); }

// ---- refusals -------------------------------------------------------------------------------------------------------

struct BadProblem {
  std::function<void(Attention&)> change;
  const char* why;
};
TEST(Refusals, Problems) {
  const BadProblem all[] = {
      {[](Attention& a) { a.b = -1; }, "b = -1: a size is 0 or more"},
      {[](Attention& a) { a.s_k = -3; }, "s_k = -3: a size is 0 or more"},
      {[](Attention& a) { a.s_q = std::int64_t{1} << 31; }, "s_q = 2147483648 is over the limit of 1073741824"},
      {[](Attention& a) { a.h_k = 3; }, "h_q = 4 is not a multiple of h_k = 3"},
      {[](Attention& a) { a.d_v = 0; }, "d_v = 0: a head dim is 1 to 256"},
      {[](Attention& a) { a.d_v = 300; }, "d_v = 300 is over the limit of 256"},
      {[](Attention& a) { a.b = 1 << 30, a.h_q = 1 << 30; },
       "b * h_q = 1073741824 * 1073741824 is over the limit of 2147483647"},
      {[](Attention& a) { a.b = 1 << 20, a.s_q = 1 << 30; },
       "b * h * s * d overflows: b = 1048576, h_q = 4, s_q = 1073741824, s_k = 9"},
      {[](Attention& a) { a.dtype = static_cast<DType>(77); }, "dtype = 77 is no DType"},
      {[](Attention& a) { a.dtype = DType::boolean; }, "dtype = boolean: q, k, v are f32, f16 or bf16"},
      {[](Attention& a) { a.band = {.left = -9}; }, "band.left = -9: it is 0 or more, or unbounded (-1)"},
      {[](Attention& a) { a.band.align = static_cast<Align>(9); }, "band.align = 9 is no Align"},
      {[](Attention& a) { a.score.scale = kNan; }, "score.scale = nan: it is a finite number, 0 for 1/sqrt(d_qk)"},
      {[](Attention& a) { a.score.softcap = -2; }, "score.softcap = -2: it is finite and above 0, or 0 for none"},
      {[](Attention& a) { a.dropout = 1.5f; }, "dropout = 1.5: it is in [0, 1]"},
      {[](Attention& a) { a.packed = a.probabilities = true; },
       "probabilities with packed lengths: they are for small unpacked problems"},
      {[](Attention& a) { a.packed = a.mask = true; },
       "mask with packed lengths is not built; nearest: unpacked (b, s, h, d) with used_q and used_k"},
  };
  for (const BadProblem& bad : all) {
    Attention a = small().problem;
    bad.change(a);
    Plan plan;
    EXPECT_EQ(Plan::make(a, Pass::forward, {}, &plan).why, bad.why);
    EXPECT_FALSE(plan);
  }
  EXPECT_EQ(Plan::make(small().problem, Pass::forward, {}, nullptr).why, "out is null");
  Plan plan;
  EXPECT_EQ(Plan::make(small().problem, static_cast<Pass>(5), {}, &plan).why, "pass = 5 is no Pass");
}

TEST(Refusals, Targets) {
  const auto why = [](const std::function<void(Target&)>& change) {
    Target target;
    change(target);
    Plan plan;
    return Plan::make(small().problem, Pass::forward, target, &plan).why;
  };
  EXPECT_EQ(why([](Target& t) { t.threads = -1; }), "threads = -1: it is 0 (all there are) or more");
  EXPECT_EQ(why([](Target& t) { t.backend = static_cast<Backend>(9); }), "backend = 9 is no Backend");
  EXPECT_EQ(why([](Target& t) { t.backend = Backend::cpu, t.sm = 90; }),
            "sm = 90 with backend = cpu: sm is for GPU backends");
  EXPECT_EQ(why([](Target& t) { t.backend = Backend::sm90, t.sm = 80; }),
            "backend = sm90 with sm = 80: its kernels (wgmma, TMA) run on sm_90 alone");
  EXPECT_EQ(why([](Target& t) {
              t.executor.parallel_for = [](void*, int, void (*)(void*, int), void*) {};
              t.executor.threads = 0;
            }),
            "executor.threads = 0: it is 1 or more");
}

struct BadOperands {
  std::function<void(Operands&)> change;
  const char* why;
};
TEST(Refusals, Operands) {
  static const std::int32_t lengths[3] = {0, 1, 2};
  static float slopes[4] = {};
  const BadOperands all[] = {
      {[](Operands& x) { x.q.shape[1] = 7; }, "q.shape[1] = 7, the problem's is 8"},
      {[](Operands& x) { x.v.shape[3] = 16; }, "v.shape[3] = 16, the problem's is 24"},
      {[](Operands& x) { x.k.dtype = DType::f16; }, "k.dtype = f16, the problem's is bf16"},
      {[](Operands& x) { x.o.data = nullptr; }, "o.data is null"},
      {[](Operands& x) { x.lse.dtype = DType::f16; }, "lse.dtype = f16, the problem's is f32"},
      {[](Operands& x) { x.row_max.data = nullptr; }, "row_max.data is null"},
      {[](Operands& x) { x.bias = x.q; }, "bias is given, but the problem was planned without it: set Attention::bias"},
      {[](Operands& x) {
         x.alibi = Tensor::dense(slopes, DType::f32, {1, 1, 4, 1});
       },
       "alibi is given, but the problem was planned without it: set Attention::alibi"},
      {[](Operands& x) { x.cu_seqlens_q = lengths; },
       "cu_seqlens_q is given, but the problem was planned without it: set Attention::packed"},
      {[](Operands& x) { x.used_k = lengths; },
       "used_k is given, but the problem was planned without it: set Attention::used_k"},
      {[](Operands& x) { x.first_k = lengths; },
       "first_k is given, but the problem was planned without it: set Attention::first_k"},
      {[](Operands& x) { x.v.stride[3] = 3; }, "v.stride[3] = 3: the last axis must be contiguous (stride 1)"},
      {[](Operands& x) { x.k.stride[0] = std::numeric_limits<std::int64_t>::min(); },
       "k.stride[0] = -9223372036854775808 with k.shape[0] = 2: a tensor reaches less than 2^60 bytes"},
      {[](Operands& x) { x.o.stride[0] = std::numeric_limits<std::int64_t>::max() / 2; },
       "o.stride[0] = 4611686018427387903 with o.shape[0] = 2: a tensor reaches less than 2^60 bytes"},
      {[](Operands& x) { x.row_max = x.lse; }, "lse overlaps row_max"},
  };
  const Instance x = small();
  Plan plan;
  ASSERT_TRUE(Plan::make(x.problem, Pass::forward, Backend::ref, &plan));
  for (const BadOperands& bad : all) {
    Operands operands = x.operands();
    bad.change(operands);
    const Status status = plan.run(operands, nullptr, 0);
    EXPECT_EQ(status.code, Code::invalid);
    EXPECT_EQ(status.why, bad.why);
  }
  EXPECT_TRUE(plan.run(x.operands(), nullptr, 0));
  EXPECT_EQ(Plan().run(x.operands(), nullptr, 0).why, "the plan is empty: Plan::make has not succeeded");
}

TEST(Refusals, WantedOperandsThatAreMissing) {
  Instance x =
      make_instance(Case{"x", 2, 8, 9, 4, 2, 16, 24}.used_k({3, 4}).alibi().mask().bias(Case::Bias::f32), DType::f32);
  Plan plan;
  ASSERT_TRUE(Plan::make(x.problem, Pass::forward, Backend::ref, &plan));
  const auto why = [&](const std::function<void(Operands&)>& change) {
    Operands operands = x.operands();
    change(operands);
    return plan.run(operands, nullptr, 0).why;
  };
  EXPECT_EQ(why([](Operands& y) { y.used_k = nullptr; }), "used_k is null, but the problem was planned with used_k");
  EXPECT_EQ(why([](Operands& y) { y.alibi.data = nullptr; }), "alibi.data is null");
  EXPECT_EQ(why([](Operands& y) { y.alibi.shape[0] = 3; }), "alibi.shape[0] = 3, the problem's is 2");
  EXPECT_EQ(why([](Operands& y) { y.alibi.shape[2] = 3; }), "alibi.shape[2] = 3, the problem's is 4");
  EXPECT_EQ(why([](Operands& y) { y.alibi.dtype = DType::bf16; }), "alibi.dtype = bf16, the problem's is f32");
  EXPECT_EQ(why([](Operands& y) { y.mask.data = nullptr; }), "mask.data is null");
  EXPECT_EQ(why([](Operands& y) { y.mask.dtype = DType::f32; }), "mask.dtype = f32, the problem's is boolean");
  EXPECT_EQ(why([](Operands& y) { y.bias.shape[1] = 2; }), "bias.shape[1] = 2, the problem's is 4 (or 1)");
  EXPECT_EQ(why([](Operands& y) { y.bias.shape = {1, 1, 1, 9}; }), "");
}

// ---- overlap, by brute force ----------------------------------------------------------------------------------------

TEST(Overlap, AgreesWithCountingEveryByte) {
  alignas(64) static std::byte memory[4096];
  const auto bytes = [](const Tensor& x) {
    std::vector<bool> used(sizeof memory);
    for (std::int64_t i = 0; i < x.shape[0]; ++i)
      for (std::int64_t j = 0; j < x.shape[1]; ++j)
        for (std::int64_t k = 0; k < x.shape[2]; ++k)
          for (std::int64_t byte = 0; byte < size_of(x.dtype); ++byte)
            used[static_cast<std::size_t>(static_cast<std::byte*>(x.data) - memory +
                                          (i * x.stride[0] + j * x.stride[1] + k * x.stride[2]) * size_of(x.dtype) +
                                          byte)] = true;
    return used;
  };
  std::uint64_t n = 0;
  const auto random = [&n](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_bits(9, n++) % static_cast<std::uint64_t>(high - low + 1));
  };
  const auto view = [&] {
    Tensor x{memory + 1024 + 4 * random(0, 60),
             random(0, 1) != 0 ? DType::f32 : DType::bf16,
             {random(1, 3), random(1, 3), random(1, 4), 1},
             {}};
    x.stride = {random(-30, 30), random(-12, 12), random(-3, 3), 1};
    return x;
  };
  int overlapping = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const Tensor a = view(), b = view();
    const std::vector<bool> in_a = bytes(a), in_b = bytes(b);
    bool shared = false;
    for (std::size_t i = 0; i < in_a.size(); ++i) shared = shared || (in_a[i] && in_b[i]);
    ASSERT_EQ(overlap(a, b), shared) << trial;
    overlapping += shared ? 1 : 0;
    Tensor out = a;
    for (std::int64_t& stride : out.stride) stride = std::abs(stride) + 1;
    const std::vector<bool> in_out = bytes(out);
    const std::int64_t elements = out.shape[0] * out.shape[1] * out.shape[2] * size_of(out.dtype);
    ASSERT_EQ(aliases_itself(out), std::count(in_out.begin(), in_out.end(), true) != elements) << trial;
  }
  EXPECT_GT(overlapping, 1000);
  EXPECT_LT(overlapping, 19000);
}

// ---- the one-call form ----------------------------------------------------------------------------------------------

/// The operands without the rows that belong to no sequence, which the one-call form refuses on the host.
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
    options.b = x.problem.b, options.band = x.problem.band, options.score = x.problem.score,
    options.dropout = x.problem.dropout;
    const Status status = attention(whole_sequences(x), options, host_target());
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

/// A pool that runs other work of its own while a caller waits, as work-stealing pools do: here, another attention,
/// between the parts of split keys and their merge.
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
  x.poison_outputs(), y.poison_outputs();
  ASSERT_TRUE(
      attention(y.operands(), {}, host_target()));  // from now on the thread's workspace is large enough for both
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
  EXPECT_EQ(attention(operands).why, "v.shape[1] = 49, the problem's is 50");
  EXPECT_EQ(attention(x.operands(), {}, Backend::sm90).code, Code::unsupported);
}

// ---- run ------------------------------------------------------------------------------------------------------------

/// A pool that works on the calling thread, and counts.
struct SerialPool {
  int calls = 0, tasks = 0;
  static void parallel_for(void* self, int n, void (*task)(void* context, int i), void* context) {
    auto& pool = *static_cast<SerialPool*>(self);
    ++pool.calls, pool.tasks += n;
    for (int i = n - 1; i >= 0; --i) task(context, i);
  }
};

TEST(Contract, StreamsAndCaptureARunAllocatesNothing) {
  on_every_path([](const Path& path, DType dtype) {
    for (const std::int64_t s_q : {1, 300}) {
      const std::int64_t s_k = s_q == 1 ? 1500 : 300;
      Instance x = make_instance(Case{"x", 1, s_q, s_k, 4, 2, 64, 64}.causal(), dtype);
      if (path.backend == Backend::ref) x = make_instance(Case{"x", 1, 3, 20, 4, 2, 64, 64}.causal(), dtype);
      SerialPool pool;
      Target target = path.target(0);
      target.executor = {SerialPool::parallel_for, &pool, 4};
      Plan plan;
      ASSERT_TRUE(Plan::make(x.problem, Pass::forward, target, &plan));
      const Workspace workspace(plan.workspace_bytes());
      const Operands operands = x.operands();
      const std::int64_t before = allocations;
      const Status status = plan.run(operands, workspace.data(), workspace.size());
      EXPECT_EQ(allocations - before, 0);
      EXPECT_TRUE(status) << status.why;
      EXPECT_EQ(pool.calls > 0, plan.data()->threads > 1);
      EXPECT_LE(pool.tasks, 4 * pool.calls);
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
            SerialPool pool;
            Target target = path.target(0);
            target.executor = {SerialPool::parallel_for, &pool, 4}, target.segments = segments;
            Plan plan;
            ASSERT_TRUE(Plan::make(x.problem, pass, target, &plan));
            const Workspace workspace(plan.workspace_bytes());
            const LinearOperands operands = x.operands(pass);
            const std::int64_t before = allocations;
            const Status status = plan.run(operands, workspace.data(), workspace.size());
            EXPECT_EQ(allocations - before, 0);
            EXPECT_TRUE(status) << status.why;
            EXPECT_TRUE(matches(x, linear_reference(x, pass), pass));
          }
        },
        operation);
  }
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
}

}  // namespace
}  // namespace falchion::testing
