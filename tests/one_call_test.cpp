// tests/one_call_test.cpp: tests of the one-call forms: what packed lengths need, which pass is meant, and their
// workspaces. Further tests check what a plan says of itself and what becomes of an executor's exception.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "cpu/levels.hpp"
#include "falchion/falchion.h"
#include "plan/operation.hpp"
#include "plan/paths.hpp"
#include "support/contract.hpp"
#include "support/environment.hpp"
#include "support/gemm.hpp"
#include "support/gradients.hpp"
#include "support/linear.hpp"
#include "support/norm.hpp"
#include "support/to_c.hpp"

namespace {
// Counts the allocations that are aligned as those of the workspaces are.
std::atomic<std::int64_t> aligned_and_live{0};
}  // namespace
void* operator new(std::size_t bytes, std::align_val_t align) {
  const auto boundary = static_cast<std::size_t>(align);
  void* out = std::aligned_alloc(boundary, (bytes + boundary - 1) / boundary * boundary);
  if (out == nullptr) throw std::bad_alloc();
  ++aligned_and_live;
  return out;
}
void operator delete(void* memory, std::align_val_t) noexcept {
  aligned_and_live -= memory != nullptr ? 1 : 0;
  std::free(memory);
}

namespace falchion::testing {
namespace {

// ---- packed lengths -------------------------------------------------------------------------------------------------

/// Three sequences. The tensors have no rows beyond them that belong to no sequence.
struct PackedAttention {
  Instance x = make_instance(Case{"x", 3, 20, 20, 2, 1, 16, 16}.packed({20, 0, 7}, {11, 3, 20}), DType::f32);
  Operands operands = x.operands();
  Attention options;
  PackedAttention() {
    operands.q.shape[1] = operands.o.shape[1] = operands.lse.shape[2] = x.cu_q.back();
    operands.k.shape[1] = operands.v.shape[1] = x.cu_k.back();
    options.b = 3;
    x.poison_outputs();
  }
  Status run() const { return attention(operands, options, host_target()); }
};
struct PackedLinear {
  LinearInstance x = make_linear_instance(LinearCase{"x", 3, 20, 1, 2, 16, 24}.packed({20, 0, 7}), DType::f32);
  LinearOperands operands = x.operands(Pass::forward);
  LinearAttention options;
  PackedLinear() {
    for (Tensor* tensor : {&operands.q, &operands.k, &operands.v, &operands.o}) tensor->shape[1] = x.cu.back();
    options.b = 3;
    x.poison_outputs();
  }
  Status run() const { return linear_attention(operands, options, host_target()); }
};

TEST(OneCallPacked, NeedsB) {
  PackedAttention a;
  ASSERT_TRUE(a.run());
  EXPECT_TRUE(matches(a.x, Reference(a.x)));
  a.options.b = Attention{}.b;
  EXPECT_EQ(a.run().code, Code::invalid);
  EXPECT_EQ(
      a.run().why,
      "b = 0, which is unset: packed lengths need the number of sequences; set b, cu_seqlens_q has b + 1 entries");
  PackedLinear l;
  ASSERT_TRUE(l.run());
  EXPECT_TRUE(matches(l.x, linear_reference(l.x, Pass::forward), Pass::forward));
  l.options.b = LinearAttention{}.b;
  EXPECT_EQ(l.run().why,
            "b = 0, which is unset: packed lengths need the number of sequences; set b, cu_seqlens has b + 1 entries");
}

TEST(OneCallPacked, BIsCheckedBeforeLengthsAreRead) {
  for (const std::int64_t b :
       {std::int64_t{1} << 31, std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::max()}) {
    PackedAttention a;
    a.options.b = b;
    EXPECT_EQ(a.run().why, text("b = ", b, " is over the limit of 2147483647"));
    PackedLinear l;
    l.options.b = b;
    EXPECT_EQ(l.run().why, text("b = ", b, " is over the limit of 2147483647"));
  }
  PackedAttention a;
  a.options.b = -1;
  EXPECT_EQ(a.run().why, "b = -1: a size must be 0 or more");
  PackedLinear l;
  l.options.b = 1 << 30;
  EXPECT_EQ(l.run().why, "b * h_v = 1073741824 * 2 is over the limit of 2147483647");
}

TEST(OneCallPacked, LengthsOnTheHostAreChecked) {
  PackedAttention a;
  a.options.b = 1;
  EXPECT_EQ(a.run().why, "cu_seqlens_q[1] = 20: it must end at the total, 27");
  a.options.b = 3;
  a.options.s_q = a.options.s_k = 20;  // With hints the answers are the same.
  a.x.cu_k = {0, 11, 14, 30};
  EXPECT_EQ(a.run().why, "cu_seqlens_k[3] = 30: it must end at the total, 34");
  a.x.cu_k = {0, 11, 99, 34};
  EXPECT_EQ(a.run().why, "cu_seqlens_k[2] = 99 is over the total, 34");
  a.x.cu_k = {0, 11, 10, 34};
  EXPECT_EQ(a.run().why, "cu_seqlens_k[2] = 10 is below cu_seqlens_k[1] = 11: it must be sorted");
  a.x.cu_k = {1, 11, 14, 34};
  EXPECT_EQ(a.run().why, "cu_seqlens_k[0] = 1: it must start at 0");
  a.operands.cu_seqlens_k = nullptr;
  EXPECT_EQ(a.run().why, "cu_seqlens_k is null, but the problem was planned with packed");
  PackedLinear l;
  l.options.b = 2;
  EXPECT_EQ(l.run().why, "cu_seqlens[2] = 20: it must end at the total, 27");
}

/// A plan has no other way to know the number of sequences, so with b = 0 it takes the problem for one without rows.
TEST(OneCallPacked, APlanWithoutBTakesNoRows) {
  PackedAttention a;
  Attention problem = a.x.problem;
  problem.b = 0;
  Plan plan;
  ASSERT_TRUE(Plan::make(problem, Pass::forward, Backend::ref, &plan));
  EXPECT_EQ(plan.run(a.operands, nullptr, 0).why,
            "q.shape[1] = 27 with b = 0: b is the number of packed sequences, and was not set");
}

TEST(OneCallPacked, TheSameInC) {
  PackedAttention a;
  fal_attention options = FAL_ATTENTION_INIT;
  const fal_operands operands = to_c(a.operands);
  for (const fal_attention* each : {&options, static_cast<fal_attention*>(nullptr)}) {
    EXPECT_EQ(fal_attention_run(&operands, each, nullptr, nullptr), FAL_INVALID);
    EXPECT_EQ(std::string(fal_why()).rfind("b = 0, which is unset", 0), 0u) << fal_why();
  }
  options.b = std::int64_t{1} << 31;
  EXPECT_EQ(fal_attention_run(&operands, &options, nullptr, nullptr), FAL_INVALID);
  options.b = 3;
  EXPECT_EQ(fal_attention_run(&operands, &options, nullptr, nullptr), FAL_OK) << fal_why();
  EXPECT_TRUE(matches(a.x, Reference(a.x)));
  const fal_linear_attention linear = FAL_LINEAR_ATTENTION_INIT;
  EXPECT_EQ(linear.b, 0);
}

// ---- used lengths and first keys ------------------------------------------------------------------------------------

/// On the host the forms look at every length before the run, in both passes and in C, and clamp none.
TEST(OneCallLengths, OnTheHostMustBeInTheirSequences) {
  using Lengths = std::vector<std::int32_t>;
  struct Row {
    Lengths used_q, used_k, first_k;
    const char* why;
  };
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  const Row rows[] = {
      {{8, 3}, {16, 5}, {0, 5}, ""},
      {{8, 9}, {16, 5}, {0, 5}, "used_q[1] = 9: it must be in [0, 8]"},
      {{-1, 3}, {16, 5}, {0, 5}, "used_q[0] = -1: it must be in [0, 8]"},
      {{8, 3}, {99, 5}, {0, 5}, "used_k[0] = 99: it must be in [0, 16]"},
      {{8, 3}, {16, -3}, {0, 0}, "used_k[1] = -3: it must be in [0, 16]"},
      {{8, 3}, {16, kMost}, {0, 0}, "used_k[1] = 2147483647: it must be in [0, 16]"},
      {{8, 3}, {16, 5}, {0, 6}, "first_k[1] = 6: it must be in [0, 5]"},
      {{8, 3}, {16, 5}, {-2, 0}, "first_k[0] = -2: it must be in [0, 16]"},
      {{8, 3}, {}, {40, 0}, "first_k[0] = 40: it must be in [0, 16]"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.why);
    Case of{"x", 2, 8, 16, 2, 1, 16, 16};
    of = std::move(of).used_q({8, 8}).first_k({0, 0});
    if (!row.used_k.empty()) of = std::move(of).used_k({16, 16});
    Gradients x(of, DType::f32);
    x.x.used_q = row.used_q;
    x.x.used_k = row.used_k;
    x.x.first_k = row.first_k;
    for (const Operands& operands : {x.x.operands(), x.operands()}) {
      EXPECT_EQ(attention(operands, {}, host_target()).why, row.why);
      EXPECT_EQ(attention(operands, {}, Backend::ref).why, row.why);
      const fal_operands in_c = to_c(operands);
      EXPECT_EQ(fal_attention_run(&in_c, nullptr, nullptr, nullptr), *row.why == '\0' ? FAL_OK : FAL_INVALID);
      EXPECT_STREQ(fal_why(), row.why);
    }
  }
}

/// Lengths are looked at before the operands are validated, so none may be read that need not be there.
TEST(OneCallLengths, AreNotReadWhereTheOperandsAreWrong) {
  Instance x = make_instance(Case{"x", 2, 8, 16, 2, 1, 16, 16}.used_k({99, 99}), DType::f32);
  Operands other_b = x.operands(), null = x.operands(), misaligned = x.operands();
  other_b.k.shape[0] = 1;
  EXPECT_EQ(attention(other_b, {}, host_target()).why, "k.shape[0] = 1, but the problem's is 2");
  null.used_k = nullptr;
  EXPECT_EQ(attention(null, {.used_k = true}, host_target()).why,
            "used_k is null, but the problem was planned with used_k");
  misaligned.used_k = reinterpret_cast<const std::int32_t*>(reinterpret_cast<const std::byte*>(x.used_k.data()) + 1);
  EXPECT_NE(attention(misaligned, {}, host_target()).why.find(" is 1 past a multiple of 4"), std::string::npos);
}

TEST(OneCallLengths, OfPackedSequencesMustBeInThem) {
  PackedAttention a;
  const std::int32_t used_q[] = {20, 0, 7}, used_k[] = {11, 4, 20}, fits[] = {11, 3, 0}, first[] = {0, 0, 1};
  a.operands.used_q = used_q;
  a.operands.used_k = used_k;
  EXPECT_EQ(a.run().why, "used_k[1] = 4: it must be in [0, 3]");
  a.operands.used_k = fits;
  EXPECT_EQ(a.run().why, "");
  a.operands.first_k = first;
  EXPECT_EQ(a.run().why, "first_k[2] = 1: it must be in [0, 0]");
}

// ---- which pass -----------------------------------------------------------------------------------------------------

/// The empty tensors of a framework have a shape and no memory.
TEST(OneCallPass, GradientsWithoutMemoryMeanBackwardToo) {
  const LinearInstance x = make_linear_instance(LinearCase{"x", 0, 9, 1, 2, 16, 24}, DType::f32);
  LinearOperands operands = x.operands(Pass::backward);
  operands.o = {};  // Backward does not look at o.
  for (Tensor* tensor :
       {&operands.q, &operands.k, &operands.v, &operands.grad_o, &operands.grad_q, &operands.grad_k, &operands.grad_v})
    tensor->data = nullptr;
  EXPECT_EQ(linear_attention(operands, {}, host_target()).why, "");
  EXPECT_EQ(validate_lengths(x.problem, operands).why, "");
  operands.grad_v.shape[3] = 7;
  EXPECT_EQ(linear_attention(operands, {}, host_target()).why, "grad_v.shape[3] = 7, but the problem's is 24");
}

TEST(OneCallPass, AnyGradientMeansBackward) {
  const LinearInstance x = make_linear_instance(LinearCase{"x", 2, 9, 1, 2, 16, 24}, DType::f32);
  LinearOperands operands = x.operands(Pass::backward);
  operands.grad_o = {};
  EXPECT_EQ(linear_attention(operands, {}, host_target()).why, "grad_o.shape[0] = 0, but the problem's is 2");
}

// ---- the host's backend ---------------------------------------------------------------------------------------------

/// A build may lack the kernels of an operation or a type, or have them for other CPUs alone. tests/consumer runs one.
TEST(HostWithoutKernels, BestIsTheDefinition) {
  const ForcedByTheEnvironment none("");
  const Operation& forward = operation_of(Attention{}, Pass::forward);
  EXPECT_EQ(backend_of_host(forward, DType::e4m3, {}), Backend::ref) << "no build has that kernel";
  for (const DType dtype : kTypes) {
    Plan plan;
    ASSERT_TRUE(Plan::make(make_instance(Case{"x", 1, 8, 8, 2, 2, 16, 16}, dtype).problem, Pass::forward, {}, &plan));
    if (plan.backend() != Backend::cpu && plan.backend() != Backend::ref) continue;  // a GPU's
    EXPECT_EQ(backend_of_host(forward, dtype, {}), plan.backend()) << name(dtype) << ": what `best` of a plan takes";
  }
  Target named;
  named.cpu_level = "avx2";
  EXPECT_EQ(backend_of_host(forward, DType::e4m3, named), Backend::cpu) << "a level was named: that one or none";
}

/// FALCHION_CPU may name a level that an operation or a type has no kernel of. Below every level lies generic.
TEST(HostWithoutKernels, OfTheLevelOfTheEnvironmentGoBelow) {
  for (const cpu::Level& level : cpu::cpu_levels()) {
    if (!level.usable) continue;
    const ForcedByTheEnvironment environment(level.name);
    const auto runs = [&](const auto& problem, Pass pass, const auto& operands, const auto& call) {
      const Operation& operation = operation_of(problem, pass);
      const auto all = variants();
      const bool built = std::any_of(all.begin(), all.end(), [&](const Variant& v) {
        return v.is(operation.name) && v.dtype == problem.dtype && std::string(v.level) == "generic";
      });
      if (!built) return false;
      const Status status = call(operands, problem, Target{}, nullptr);
      EXPECT_TRUE(status) << level.name << " " << operation.name << " " << name(problem.dtype) << ": " << status.why;
      return status.code == Code::ok;
    };
    for (const DType dtype : kTypes) {
      Gradients x(Case{"x", 1, 40, 50, 2, 1, 32, 32}, dtype);
      x.x.poison_outputs();
      if (runs(x.x.problem, Pass::forward, x.x.operands(), attention)) { EXPECT_TRUE(matches(x.x, Reference(x.x))); }
      runs(x.x.problem, Pass::backward, x.operands(), attention);
      const LinearInstance l = make_linear_instance(LinearCase{"x", 1, 40, 1, 2, 16, 24}, dtype);
      for (const Pass pass : {Pass::forward, Pass::backward}) runs(l.problem, pass, l.operands(pass), linear_attention);
      const NormInstance n = make_norm_instance({"x", 1, 4, 2, 40, {}}, dtype);
      runs(n.problem, Pass::forward, n.operands(), norm);
    }
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::i8}) {
      const bool bytes = dtype == DType::e4m3 || dtype == DType::i8;
      const GemmInstance g =
          make_gemm_instance(GemmCase{"x", 1, 4, 40, 70}.scaling(bytes ? Scaling::tensor : Scaling::none), dtype);
      runs(g.problem, Pass::forward, g.operands(), gemm);
    }
  }
}

// ---- workspaces -----------------------------------------------------------------------------------------------------

TEST(OneCallWorkspace, IsKeptForTheThreadAndReleased) {
  if (host_target().backend != Backend::cpu) GTEST_SKIP() << "ref needs no workspace for attention";
  release_workspaces();
  const std::int64_t before = aligned_and_live;
  Instance a = make_instance(Case{"x", 1, 40, 50, 2, 1, 32, 32}, DType::f32);
  LinearInstance l = make_linear_instance(LinearCase{"x", 2, 70, 1, 2, 16, 16}, DType::f32);
  const auto both = [&] {
    a.poison_outputs();
    l.poison_outputs();
    EXPECT_TRUE(attention(a.operands(), {}, host_target()));
    EXPECT_TRUE(linear_attention(l.operands(Pass::forward), {}, host_target()));
  };
  both();
  EXPECT_EQ(aligned_and_live, before + 2) << "one for each kind of problem";
  std::thread([] { release_workspaces(); }).join();
  EXPECT_EQ(aligned_and_live, before + 2) << "another thread's are its own";
  release_workspaces();
  EXPECT_EQ(aligned_and_live, before);
  both();
  EXPECT_EQ(aligned_and_live, before + 2);
  EXPECT_TRUE(matches(a, Reference(a)));
  EXPECT_TRUE(matches(l, linear_reference(l, Pass::forward), Pass::forward));
  fal_release_workspaces();
  EXPECT_EQ(aligned_and_live, before);
}

/// A pool may make another call while a run is under way on this thread. The workspace that this run uses must stay.
TEST(OneCallWorkspace, OfARunUnderWayStays) {
  if (host_target().backend != Backend::cpu) GTEST_SKIP() << "ref has no executor";
  Target target = host_target();
  int calls = 0;
  target.executor.threads = 3;
  target.executor.self = &calls;
  target.executor.parallel_for = [](void* self, int n, void (*task)(void* context, int i), void* context) {
    ++*static_cast<int*>(self);
    release_workspaces();
    for (int i = 0; i < n; ++i) task(context, i);
  };
  Instance x = make_instance(Case{"x", 2, 90, 100, 4, 2, 64, 64}, DType::f32);
  x.poison_outputs();
  ASSERT_TRUE(attention(x.operands(), {}, target));
  EXPECT_GT(calls, 0);
  EXPECT_TRUE(matches(x, Reference(x)));
}

// ---- what was chosen, and what went wrong ---------------------------------------------------------------------------

TEST(Plans, SayTheirBackend) {
  EXPECT_EQ(Plan().backend(), Backend::best);
  EXPECT_EQ(fal_plan_backend(nullptr), FAL_BEST);
  on_every_path([](const Path& path, DType dtype) {
    const Instance x = make_instance(Case{"x", 1, 4, 5, 1, 1, 8, 8}, dtype);
    Plan plan;
    ASSERT_TRUE(Plan::make(x.problem, Pass::forward, path.target(), &plan));
    EXPECT_EQ(plan.backend(), path.backend);
  });
  fal_attention problem = FAL_ATTENTION_INIT;
  problem.d_qk = problem.d_v = 8;
  fal_target target = {};
  target.size = sizeof target;
  target.backend = FAL_REF;
  fal_plan* plan = nullptr;
  ASSERT_EQ(fal_plan_make(&problem, FAL_FORWARD, &target, &plan), FAL_OK) << fal_why();
  EXPECT_EQ(fal_plan_backend(plan), FAL_REF);
  fal_plan_free(plan);
}

TEST(Version, MacrosAreTheLibrarys) {
  EXPECT_EQ(version(), text(FAL_VERSION_MAJOR, ".", FAL_VERSION_MINOR, ".", FAL_VERSION_PATCH));
  EXPECT_STREQ(fal_version(), version());
}

TEST(Exceptions, OfAnExecutorKeepTheirText) {
  if (host_target().backend != Backend::cpu) GTEST_SKIP() << "ref has no executor";
  Target target = host_target();
  target.executor.threads = 3;
  target.executor.parallel_for = [](void*, int, void (*)(void* context, int i), void*) {
    throw std::runtime_error("the pool was closed at 17:04");
  };
  const Instance x = make_instance(Case{"x", 2, 90, 100, 4, 2, 64, 64}, DType::f32);
  const Status status = attention(x.operands(), {}, target);
  EXPECT_EQ(status.code, Code::device);
  EXPECT_EQ(status.why, "an exception: the pool was closed at 17:04");
  target.executor.parallel_for = [](void*, int, void (*)(void* context, int i), void*) { throw 7; };
  EXPECT_EQ(attention(x.operands(), {}, target).why, "an exception");
}

}  // namespace
}  // namespace falchion::testing
