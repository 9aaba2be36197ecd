// tests/contract_memory_test.cpp: one test for each line of docs/contract.md about sizes, memory, lengths and refusals,
// on every path of this machine. contract_test.cpp tests the lines about numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/size.hpp"
#include "plan/plan_data.hpp"
#include "ref/attention_forward.hpp"
#include "runtime/runtime.hpp"
#include "support/contract.hpp"
#include "support/far_rows.hpp"

namespace falchion::testing {
namespace {

// ---- sizes and memory -----------------------------------------------------------------------------------------------

TEST(Contract, HeadDims) {
  for (const std::int64_t d : {1, 2, 3, 5, 8, 15, 17, 24, 31, 33, 63, 80, 100, 127, 129, 160, 200, 255, 256}) {
    planted(Case{"x", 4, 9, 40, 2, 1, d, 257 - d}.causal(), nothing, agreed);
    planted(Case{"x", 8, 1, 40, 2, 1, d, d}.causal(), nothing, agreed);
  }
  Attention a = small_problem();
  a.d_qk = 257;
  EXPECT_EQ(make(a).code, Code::unsupported);
  EXPECT_EQ(make(a).why, "d_qk = 257 is over the limit of 256");
  a.d_qk = 0;
  EXPECT_EQ(make(a).code, Code::invalid);
}

TEST(Contract, QueryHeadsAreAMultipleOfKvHeads) {
  Attention a = small_problem();
  a.h_q = 7;
  EXPECT_EQ(make(a).code, Code::invalid);
  EXPECT_EQ(make(a).why, "h_q = 7 is not a multiple of h_k = 2");
}

TEST(Contract, StridesOfInputs) {
  for (const Layout layout : {Layout::heads_first, Layout::gaps, Layout::odd, Layout::reversed}) {
    planted(Case{"x", 2, 40, 50, 2, 1, 40, 40}.layout(layout).causal(), nothing, agreed);
    planted(Case{"x", 2, 1, 50, 2, 1, 40, 40}.layout(layout).causal(), nothing, agreed);
  }
  // With a stride of 0 every key has the same row of K and V, and every batch entry has the same Q.
  on_every_path([](const Path& path, DType dtype) {
    Instance x = make_instance(Case{"x", 2, 40, 50, 2, 1, 40, 40}, dtype);
    Operands operands = x.operands();
    operands.k.stride[1] = operands.v.stride[1] = operands.q.stride[0] = 0;
    const Status status = run_with(path, x.problem, operands);
    ASSERT_TRUE(status) << status.why;
    for (std::int64_t d = 0; d < 40; ++d) EXPECT_NEAR(x.o.get(1, 7, 1, d), x.v.get(1, 0, 0, d), 0.02);
  });
}

TEST(Contract, StridesThatAreRefused) {
  on_every_path([](const Path& path, DType dtype) {
    Instance x = make_instance(Case{"x", 2, 4, 5, 2, 1, 8, 8}, dtype);
    const auto why = [&](auto change) {
      Operands operands = x.operands();
      change(operands);
      const Status status = run_with(path, x.problem, operands);
      EXPECT_EQ(status.code, Code::invalid);
      return status.why;
    };
    EXPECT_EQ(why([](Operands& y) { y.o.stride[1] = 0; }), "o.stride[1] = 0: strides of an output must be above 0");
    EXPECT_EQ(why([](Operands& y) { y.lse.stride[2] = -1; }),
              "lse.stride[2] = -1: strides of an output must be above 0");
    EXPECT_EQ(why([](Operands& y) { y.o.stride[2] = 4; }),
              "o.stride = (64, 16, 4, 1) with o.shape = (2, 4, 2, 8): two elements of an output must not share memory");
    EXPECT_EQ(why([](Operands& y) { y.q.stride[3] = 2; }),
              "q.stride[3] = 2: the last axis must be contiguous (stride 1)");
  });
}

TEST(Contract, Alignment) {
  planted(Case{"x", 1, 40, 90, 2, 1, 64, 64}.layout(Layout::odd), nothing, agreed);
  on_every_path([](const Path& path, DType dtype) {
    Instance x = make_instance(Case{"x", 1, 4, 5, 2, 1, 8, 8}, dtype);
    Operands operands = x.operands();
    operands.k.data = static_cast<std::byte*>(operands.k.data) + 1;
    const Status status = run_with(path, x.problem, operands);
    EXPECT_EQ(status.code, Code::invalid);
    EXPECT_EQ(status.why, text("k.data = ", operands.k.data, " is 1 past a multiple of ", size_of(dtype),
                               ": it must be aligned to its elements"));
  });
}

TEST(Contract, OverlappingOutputs) {
  on_every_path([](const Path& path, DType dtype) {
    Instance x = make_instance(Case{"x", 1, 4, 5, 2, 2, 8, 8}, dtype);
    Operands on_q = x.operands();
    on_q.o = on_q.q;
    EXPECT_EQ(run_with(path, x.problem, on_q).why, "o overlaps q");
    Operands on_v = x.operands();
    on_v.lse.data = on_v.v.data;
    EXPECT_EQ(run_with(path, x.problem, on_v).why, "lse overlaps v");
    Operands on_lse = x.operands();
    on_lse.o.data = on_lse.lse.data;
    EXPECT_EQ(run_with(path, x.problem, on_lse).why, "o overlaps lse");
    // Two slices of one buffer (b, s, 2, h, d), where q is slice 0 and o is slice 1, interleave without sharing a byte.
    HostTensor both(dtype, {1, 4, 4, 8});
    both.fill_normal(3);
    Operands slices = x.operands();
    slices.q = both.view();
    slices.q.shape[2] = 2;
    slices.o = slices.q;
    slices.o.data = static_cast<std::byte*>(slices.q.data) + 2 * 8 * size_of(dtype);
    EXPECT_TRUE(run_with(path, x.problem, slices)) << run_with(path, x.problem, slices).why;
    slices.o.data = static_cast<std::byte*>(slices.q.data) + (2 * 8 - 1) * size_of(dtype);
    EXPECT_EQ(run_with(path, x.problem, slices).why, "o overlaps q");
  });
}

// ---- lengths --------------------------------------------------------------------------------------------------------

TEST(Contract, BrokenLengthsAreReported) {
  Instance x = make_instance(Case{"x", 3, 40, 50, 1, 1, 16, 16}.packed({40, 3, 5}, {50, 20, 9}), DType::f32);
  const auto why = [&] { return validate_lengths(x.problem, x.operands()).why; };
  x.cu_q = {0, 40, 43, 51};
  x.cu_k = {0, 50, 70, 82};  // The totals count the 3 spare rows.
  EXPECT_EQ(why(), "");
  x.cu_q = {1, 40, 43, 51};
  EXPECT_EQ(why(), "cu_seqlens_q[0] = 1: it must start at 0");
  x.cu_q = {0, 40, 30, 51};
  EXPECT_EQ(why(), "cu_seqlens_q[2] = 30 is below cu_seqlens_q[1] = 40: it must be sorted");
  x.cu_q = {0, 40, 43, 50};
  EXPECT_EQ(why(), "cu_seqlens_q[3] = 50: it must end at the total, 51");
  x.cu_q = {0, 41, 43, 51};
  EXPECT_EQ(why(), "cu_seqlens_q: sequence 0 has 41 rows, over s_q = 40");
  Instance used = make_instance(Case{"x", 2, 4, 5, 1, 1, 16, 16}.used_k({5, 6}), DType::f32);
  EXPECT_EQ(validate_lengths(used.problem, used.operands()).why, "used_k[1] = 6: it must be in [0, 5]");
}

/// Whatever the lengths say, no run reads or writes outside the tensors. The sanitizer presets and the poison would
/// show it.
TEST(Contract, BrokenLengthsStayInBounds) {
  constexpr std::int32_t huge = std::numeric_limits<std::int32_t>::max(),
                         low = std::numeric_limits<std::int32_t>::min();
  on_every_path([&](const Path& path, DType dtype) {
    for (const std::vector<std::int32_t>& cu :
         {std::vector<std::int32_t>{0, 90, 20, 60}, {-5, 3, -7, 40}, {low, huge, low, 70}, {60, 50, 40, 30}}) {
      Instance x = make_instance(Case{"x", 3, 40, 50, 2, 1, 16, 16}.packed({40, 3, 5}, {50, 20, 9}).causal(), dtype);
      x.cu_q = cu;
      x.cu_k = cu;
      const Status status = run(path, &x);
      EXPECT_TRUE(status) << status.why;
    }
    Instance x = make_instance(Case{"x", 3, 40, 50, 2, 1, 16, 16}.used_q({low, huge, 7}).used_k({huge, low, 9}), dtype);
    EXPECT_TRUE(run(path, &x));
    EXPECT_TRUE(matches(x, Reference(x)));
  });
}

/// The padding on the left holds NaN in these tests, so a result would show that it was read.
TEST(Contract, FirstKeys) {
  planted(Case{"x", 4, 50, 140, 2, 1, 32, 32}.first_k({0, 33, 140, 200}).causal().row_max(), nothing, agreed);
  planted(Case{"x", 2, 1, 1300, 4, 2, 64, 64}.first_k({1299, 700}), nothing, agreed);
  planted(Case{"x", 2, 130, 300, 2, 2, 64, 64}.first_k({129, -7}).used_k({257, 300}).window(64, 0), nothing, agreed);
  const auto why = [](Case row) {
    const Instance x = make_instance(row, DType::f32);
    return validate_lengths(x.problem, x.operands()).why;
  };
  EXPECT_EQ(why(Case{"x", 2, 4, 5, 1, 1, 16, 16}.first_k({5, 0})), "");
  EXPECT_EQ(why(Case{"x", 2, 4, 5, 1, 1, 16, 16}.first_k({5, 6})), "first_k[1] = 6: it must be in [0, 5]");
  EXPECT_EQ(why(Case{"x", 2, 4, 5, 1, 1, 16, 16}.first_k({-1, 0})), "first_k[0] = -1: it must be in [0, 5]");
  EXPECT_EQ(why(Case{"x", 2, 4, 5, 1, 1, 16, 16}.first_k({4, 0}).used_k({3, 5})),
            "first_k[0] = 4: it must be in [0, 3]");
}

TEST(Contract, MaxLengthHintTooSmall) {
  planted(Case{"x", 3, 40, 70, 2, 1, 32, 32}.packed({100, 3, 5}, {150, 20, 9}).causal(), nothing, agreed);
  planted(Case{"x", 3, 1, 70, 2, 1, 32, 32}.packed({20, 3, 5}, {150, 20, 9}).causal(), nothing,
          agreed);  // This one is planned as decode.
  // Where there are more keys than b * s_k the run is refused. No key is ever dropped.
  on_every_path([](const Path& path, DType dtype) {
    Instance x = make_instance(Case{"x", 2, 40, 20, 2, 1, 32, 32}.packed({40, 3}, {50, 20}), dtype);
    const Status status = run(path, &x);
    if (path.on_gpu()) {  // A GPU's plan reserves no room for keys, so it runs.
      ASSERT_TRUE(status) << status.why;
      EXPECT_TRUE(matches(x, Reference(x)));
      return;
    }
    EXPECT_EQ(status.code, Code::invalid);
    EXPECT_EQ(status.why, "cu_seqlens_k[2] = 70 is over b * s_k = 40: s_k is the longest length allowed");
  });
}

// matches() counts which elements were written.
TEST(Contract, RowsPastTheUsedLengthsStayUntouched) {
  planted(Case{"x", 3, 50, 60, 2, 1, 32, 32}.used_q({50, 13, 0}).row_max(), nothing, [](const Instance& x) {
    EXPECT_TRUE(x.o.is_poison(1, 13, 0, 0) && x.o.is_poison(2, 0, 1, 31) && x.lse.is_poison(1, 1, 49, 0));
    EXPECT_FALSE(x.o.is_poison(1, 12, 1, 31));
  });
}

/// The rows of K and V lie 2^28 elements apart in a sparse mapping, so that row 39 begins past element 2^33.
TEST(Contract, MoreThan2To31Elements) {
  constexpr std::int64_t step = std::int64_t{1} << 28, rows = 40;
  on_every_path([&](const Path& path, DType dtype) {
    FarRows far_rows(rows, step, dtype);
    if (const std::string why = far_rows.why_not(path); !why.empty()) GTEST_SKIP() << why;
    Instance x = make_instance(Case{"x", 1, rows, rows, 1, 1, 64, 64}.causal(), dtype);
    Operands operands = x.operands();
    for (Tensor* tensor : {&operands.q, &operands.k, &operands.v, &operands.o}) far_rows.move(tensor);
    const Status status = run_with(path, x.problem, operands);
    copy_rows(operands.o, x.o.view());
    ASSERT_TRUE(status) << status.why;
    EXPECT_TRUE(matches(x, Reference(x)));
  });
}

// ---- refusals and promises ------------------------------------------------------------------------------------------

TEST(Contract, GpuWithoutAKernel) {
  const auto has = [](Backend backend) {
    const auto all = variants();
    return std::any_of(all.begin(), all.end(), [&](const Variant& v) {
      return v.backend == backend && v.kernel_as<gpu::AttentionKernel>() != nullptr;
    });
  };
  const Status hopper = make(small_problem(), Backend::sm90);
  const int sm = cuda::current_device().sm;
  if (has(Backend::sm90) && sm == 90) {
    EXPECT_TRUE(hopper) << hopper.why;
  } else {
    EXPECT_EQ(hopper.code, has(Backend::sm90) && sm == 0 ? Code::device : Code::unsupported);
    const char* reason = !has(Backend::sm90) ? "sm90 bf16: this build has no such variant"
                         : sm == 0           ? "no usable GPU"
                                             : "this is machine code of sm_90a";
    EXPECT_NE(hopper.why.find(reason), std::string::npos) << hopper.why;
  }
  const bool built = has(Backend::sm80);
  const Status ampere = make(small_problem(), Backend::sm80);
  if (!built || cuda::current_device().sm < 80) {
    EXPECT_FALSE(ampere);
    EXPECT_FALSE(ampere.why.empty());
  } else {
    EXPECT_TRUE(ampere) << ampere.why;
  }
  Target old;
  old.sm = 75;
  EXPECT_EQ(make(small_problem(), old).why, "sm = 75: GPUs from sm_80 on; nearest: 80");
}

TEST(Contract, WorkspaceTooSmall) {
  on_every_path([](const Path& path, DType dtype) {
    if (path.backend != Backend::cpu) return;  // ref needs no workspace. A GPU's is tested in cuda/run_test.cpp.
    Instance x = make_instance(Case{"x", 1, 40, 50, 1, 1, 32, 32}, dtype);
    Plan plan;
    ASSERT_TRUE(Plan::make(x.problem, Pass::forward, path.target(), &plan));
    const Workspace workspace(plan.workspace_bytes() + 64);
    const std::string needs = std::to_string(plan.workspace_bytes());
    EXPECT_EQ(plan.run(x.operands(), nullptr, 0).why, "workspace is null, but the plan needs " + needs + " bytes");
    const Status small = plan.run(x.operands(), workspace.data(), 64);
    EXPECT_EQ(small.code, Code::workspace);
    EXPECT_EQ(small.why, "workspace has 64 bytes, but the plan needs " + needs);
    const Status crooked = plan.run(x.operands(), static_cast<std::byte*>(workspace.data()) + 8, workspace.size() - 8);
    EXPECT_NE(crooked.why.find(" is 8 past a multiple of 64: it must be aligned to 64 bytes"), std::string::npos)
        << crooked.why;
  });
}

TEST(Contract, OnePlanGivesTheSameBitsEachTime) {
  on_every_path([](const Path& path, DType dtype) {
    Instance x = make_instance(Case{"x", 2, 70, 1500, 4, 2, 64, 64}.causal(), dtype);
    if (path.backend == Backend::ref) return;
    ASSERT_TRUE(run(path, &x));
    std::vector<float> first;
    x.o.for_each([&](auto b, auto s, auto h, auto d) { first.push_back(x.o.get(b, s, h, d)); });
    for (int again = 0; again < 3; ++again) {
      ASSERT_TRUE(run(path, &x));
      std::size_t n = 0;
      x.o.for_each([&](auto b, auto s, auto h, auto d) { ASSERT_EQ(x.o.get(b, s, h, d), first[n++]); });
    }
  });
}

TEST(Contract, NotOfferedYet) {
  Attention a = small_problem();
  a.dtype = DType::e5m2;
  EXPECT_EQ(make(a).code, Code::unsupported);
  EXPECT_EQ(make(a).why, "dtype = e5m2 is not built yet; nearest: e4m3");
  a = small_problem();
  a.packed = a.bias = true;
  EXPECT_EQ(make(a).code, Code::unsupported);
}

/// The kernels round P before they multiply it by V, and ref does not. With Rounding::p ref rounds as they do.
TEST(Contract, PIsRoundedBeforePV) {
  Instance x = make_instance(Case{"x", 1, 40, 70, 1, 1, 32, 32}, DType::bf16);
  Instance exact = with_wide_output(x), rounded = with_wide_output(x);
  ref::attention_forward(x.problem, exact.operands(), {});
  ref::attention_forward(x.problem, rounded.operands(), {.p = DType::bf16});
  double difference = 0;
  exact.o.for_each([&](auto b, auto s, auto h, auto d) {
    difference = std::max(difference, std::abs(static_cast<double>(exact.o.get(b, s, h, d)) -
                                               static_cast<double>(rounded.o.get(b, s, h, d))));
  });
  EXPECT_GT(difference, 1e-5);
  EXPECT_LT(difference, 1e-2);
}

}  // namespace
}  // namespace falchion::testing
