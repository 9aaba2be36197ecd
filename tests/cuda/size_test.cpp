// tests/cuda/size_test.cpp: docs/contract.md, "more than 2^31 elements": tensors of that size are made on the device.
// All elements but a few rows are zero, so that the answer is known without a reference.
#include "device.hpp"
#include "zeros.hpp"

namespace falchion::testing {
namespace {

Status run_plan(const Path& path, const Attention& problem, const Operands& operands) {
  Plan plan;
  cuda::Memory workspace;
  if (Status status = Plan::make(problem, Pass::forward, path.target(), &plan); !status) return status;
  if (Status status = cuda::Memory::make(plan.workspace_bytes(), &workspace); !status) return status;
  void* memory = workspace.size() > 0 ? workspace.data() : nullptr;
  if (Status status = plan.run(operands, memory, workspace.size()); !status) return status;
  return cuda::synchronize();
}

/// K and V are (1, s, h, 128) and have more than 2^31 elements. One key wins by far, wherever it lies.
void expect_winner(const Path& path, DType dtype, std::int64_t s_q, std::int64_t s_k, std::int64_t heads) {
  Zeros q, k, v, o;
  ASSERT_OK(q.make(dtype, {1, s_q, heads, 128}));
  ASSERT_OK(k.make(dtype, {1, s_k, heads, 128}));
  ASSERT_OK(v.make(dtype, {1, s_k, heads, 128}));
  ASSERT_OK(o.make(dtype, {1, s_q, heads, 128}));
  ASSERT_GT(s_k * heads * 128, std::int64_t{1} << 31);
  Attention problem;
  problem.dtype = dtype;
  problem.b = 1;
  problem.s_q = s_q;
  problem.s_k = s_k;
  problem.h_q = problem.h_k = heads;
  problem.d_qk = problem.d_v = 128;
  problem.score.scale = 1;
  Operands operands;
  operands.q = q.view;
  operands.k = k.view;
  operands.v = v.view;
  operands.o = o.view;
  const std::int64_t head = heads - 1;
  for (std::int64_t i = 0; i < s_q; ++i) ASSERT_OK(q.set(i, head, [](std::int64_t) { return 1.F; }));
  // These keys begin near the element offsets 2^30 and 2^31, and in the last row.
  for (const std::int64_t j :
       {(std::int64_t{1} << 30) / (heads * 128) + 1, (std::int64_t{1} << 31) / (heads * 128), s_k - 1}) {
    SCOPED_TRACE(::testing::Message() << "key " << j << " of " << s_k);
    // This gives a score of 128, so the key's weight is e^128 times that of any other.
    ASSERT_OK(k.set(j, head, [](std::int64_t) { return 1.F; }));
    ASSERT_OK(v.set(j, head, number));
    ASSERT_OK(run_plan(path, problem, operands));
    HostTensor row;
    for (const std::int64_t i : {std::int64_t{0}, s_q - 1}) {
      ASSERT_OK(o.get(i, head, &row));
      for (std::int64_t d = 0; d < 128; ++d) ASSERT_EQ(row.get(0, 0, 0, d), number(d)) << i << ", " << d;
      if (heads == 1) continue;
      ASSERT_OK(o.get(i, 0, &row));
      for (std::int64_t d = 0; d < 128; ++d) ASSERT_EQ(row.get(0, 0, 0, d), 0) << i << ", " << d;
    }
    ASSERT_OK(k.set(j, head, [](std::int64_t) { return 0.F; }));
    ASSERT_OK(v.set(j, head, [](std::int64_t) { return 0.F; }));
  }
}

TEST(CudaSlow, MoreThan2To31ElementsOfKAndV) {
  on_every_roomy_path(24, [](const Path& path, DType dtype) {
    expect_winner(path, dtype, 1, (std::int64_t{1} << 24) + 77, 1);     // This is one long cache.
    expect_winner(path, dtype, 130, (std::int64_t{1} << 19) + 33, 33);  // This is a prefill with many heads.
  });
}

// With one key, O is its V in every row.
TEST(CudaSlow, MoreThan2To31ElementsOfQAndO) {
  on_every_roomy_path(24, [](const Path& path, DType dtype) {
    constexpr std::int64_t rows = (std::int64_t{1} << 19) + 33, heads = 33;
    Zeros q, k, v, o;
    ASSERT_OK(q.make(dtype, {1, rows, heads, 128}));
    ASSERT_OK(k.make(dtype, {1, 1, heads, 128}));
    ASSERT_OK(v.make(dtype, {1, 1, heads, 128}));
    ASSERT_OK(o.make(dtype, {1, rows, heads, 128}));
    for (std::int64_t h = 0; h < heads; ++h) ASSERT_OK(v.set(0, h, [h](std::int64_t d) { return number(d + h); }));
    Attention problem;
    problem.dtype = dtype;
    problem.b = 1;
    problem.s_q = rows;
    problem.s_k = 1;
    problem.h_q = problem.h_k = heads;
    problem.d_qk = problem.d_v = 128;
    Operands operands;
    operands.q = q.view;
    operands.k = k.view;
    operands.v = v.view;
    operands.o = o.view;
    ASSERT_OK(run_plan(path, problem, operands));
    HostTensor row;
    for (std::int64_t i = 0; i < rows; i += i + 1000 < rows ? 997 : 1) {
      const std::int64_t h = i % heads;
      ASSERT_OK(o.get(i, h, &row));
      for (std::int64_t d = 0; d < 128; ++d) ASSERT_EQ(row.get(0, 0, 0, d), number(d + h)) << i << ", " << h;
    }
  });
}

}  // namespace
}  // namespace falchion::testing
