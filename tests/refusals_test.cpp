// tests/refusals_test.cpp: tests what a plan refuses, with the text that says why. It also checks by counting bytes
// whether two tensors share any.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "api/overlap.hpp"
#include "base/size.hpp"
#include "plan/text.hpp"
#include "support/contract.hpp"

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
      {[](Attention& a) { a.b = -1; }, "b = -1: a size must be 0 or more"},
      {[](Attention& a) { a.s_k = -3; }, "s_k = -3: a size must be 0 or more"},
      {[](Attention& a) { a.s_q = std::int64_t{1} << 31; }, "s_q = 2147483648 is over the limit of 1073741824"},
      {[](Attention& a) { a.h_k = 3; }, "h_q = 4 is not a multiple of h_k = 3"},
      {[](Attention& a) { a.d_v = 0; }, "d_v = 0: a head dim must be 1 to 256"},
      {[](Attention& a) { a.d_v = 300; }, "d_v = 300 is over the limit of 256"},
      {[](Attention& a) {
         a.b = 1 << 30;
         a.h_q = 1 << 30;
       },
       "b * h_q = 1073741824 * 1073741824 is over the limit of 2147483647"},
      {[](Attention& a) {
         a.b = 1 << 20;
         a.s_q = 1 << 30;
       },
       "b * h * s * d overflows: b = 1048576, h_q = 4, h_k = 2, s_q = 1073741824, s_k = 9"},
      {[](Attention& a) { a.dtype = static_cast<DType>(77); }, "dtype = 77 is no DType"},
      {[](Attention& a) { a.dtype = DType::boolean; }, "dtype = boolean: q, k, v are f32, f16 or bf16"},
      {[](Attention& a) { a.band = {.left = -9}; }, "band.left = -9: it must be 0 or more, or unbounded (-1)"},
      {[](Attention& a) { a.band.align = static_cast<Align>(9); }, "band.align = 9 is no Align"},
      {[](Attention& a) { a.score.scale = kNan; },
       "score.scale = nan: it must be a finite number, where 0 stands for 1/sqrt(d_qk)"},
      {[](Attention& a) { a.score.softcap = -2; }, "score.softcap = -2: it must be finite and above 0, or 0 for none"},
      {[](Attention& a) { a.dropout = 1.5f; }, "dropout = 1.5: it must be in [0, 1]"},
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
  EXPECT_EQ(why([](Target& t) { t.threads = -1; }), "threads = -1: it must be 0 (all there are) or more");
  EXPECT_EQ(why([](Target& t) { t.backend = static_cast<Backend>(9); }), "backend = 9 is no Backend");
  EXPECT_EQ(why([](Target& t) {
              t.backend = Backend::cpu;
              t.sm = 90;
            }),
            "sm = 90 with backend = cpu: sm is for GPU backends");
  EXPECT_EQ(why([](Target& t) {
              t.backend = Backend::sm90;
              t.sm = 80;
            }),
            "backend = sm90 with sm = 80: its kernels (wgmma, TMA) run on sm_90 alone");
  EXPECT_EQ(why([](Target& t) {
              t.executor.parallel_for = [](void*, int, void (*)(void*, int), void*) {};
              t.executor.threads = 0;
            }),
            "executor.threads = 0: it must be 1 or more");
  EXPECT_EQ(why([](Target& t) { t.executor.threads = 4; }),
            "executor.parallel_for is null with executor.self = 0x0 and executor.threads = 4: an executor needs its "
            "function");
  EXPECT_EQ(
      why([](Target& t) { t.executor.self = &t; }).rfind("executor.parallel_for is null with executor.self = ", 0), 0u);
  EXPECT_EQ(why([](Target& t) { t.executor = {}; }), "") << "no executor";
}

struct BadOperands {
  std::function<void(Operands&)> change;
  const char* why;
};
TEST(Refusals, Operands) {
  static const std::int32_t lengths[3] = {0, 1, 2};
  static float slopes[4] = {};
  const BadOperands all[] = {
      {[](Operands& x) { x.q.shape[1] = 7; }, "q.shape[1] = 7, but the problem's is 8"},
      {[](Operands& x) { x.v.shape[3] = 16; }, "v.shape[3] = 16, but the problem's is 24"},
      {[](Operands& x) { x.k.dtype = DType::f16; }, "k.dtype = f16, but the problem's is bf16"},
      {[](Operands& x) { x.o.data = nullptr; }, "o.data is null"},
      {[](Operands& x) { x.lse.dtype = DType::f16; }, "lse.dtype = f16, but the problem's is f32"},
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
       "k.stride[0] = -9223372036854775808 with k.shape[0] = 2: a tensor must reach less than 2^60 bytes"},
      {[](Operands& x) { x.o.stride[0] = std::numeric_limits<std::int64_t>::max() / 2; },
       "o.stride[0] = 4611686018427387903 with o.shape[0] = 2: a tensor must reach less than 2^60 bytes"},
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
  EXPECT_EQ(why([](Operands& y) { y.alibi.shape[0] = 3; }), "alibi.shape[0] = 3, but the problem's is 2");
  EXPECT_EQ(why([](Operands& y) { y.alibi.shape[2] = 3; }), "alibi.shape[2] = 3, but the problem's is 4");
  EXPECT_EQ(why([](Operands& y) { y.alibi.dtype = DType::bf16; }), "alibi.dtype = bf16, but the problem's is f32");
  EXPECT_EQ(why([](Operands& y) { y.mask.data = nullptr; }), "mask.data is null");
  EXPECT_EQ(why([](Operands& y) { y.mask.dtype = DType::f32; }), "mask.dtype = f32, but the problem's is boolean");
  EXPECT_EQ(why([](Operands& y) { y.bias.shape[1] = 2; }), "bias.shape[1] = 2, but the problem's is 4 (or 1)");
  EXPECT_EQ(why([](Operands& y) { y.bias.shape = {1, 1, 1, 9}; }), "");
}

/// Where no random number is drawn, it does not matter where the random numbers would come from.
TEST(Refusals, RandomNumbersInMemory) {
  alignas(16) std::uint64_t numbers[3] = {};
  const auto* crooked = reinterpret_cast<const std::uint64_t*>(reinterpret_cast<const char*>(numbers) + 4);
  for (const float p : {0.5F, 0.F}) {
    const Instance x = make_instance(Case{"x", 1, 8, 9, 1, 1, 16, 16}.dropout(p), DType::f32);
    Plan plan;
    ASSERT_TRUE(Plan::make(x.problem, Pass::forward, Backend::ref, &plan));
    Operands operands = x.operands();
    operands.rng.at = crooked;
    EXPECT_EQ(plan.run(operands, nullptr, 0).why,
              p > 0 ? text("rng.at = ", static_cast<const void*>(crooked),
                           " is 4 past a multiple of 8: it must be aligned to its elements")
                    : "");
    operands.rng.at = static_cast<const std::uint64_t*>(operands.o.data);
    EXPECT_EQ(plan.run(operands, nullptr, 0).why, p > 0 ? "o overlaps rng.at" : "");
  }
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

}  // namespace
}  // namespace falchion::testing
