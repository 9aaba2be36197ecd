// tests/cuda/backward_size_test.cpp: the backward pass on sequences of 131072 tokens and on tensors of more than 2^31
// elements. The first are compared with the definition at a few rows and keys, the others are made on the device and
// are zero but for a few rows.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backward.hpp"
#include "zeros.hpp"

namespace falchion::testing {
namespace {

// ---- Long sequences -------------------------------------------------------------------------------------------------

/// One row of scores as the definition has it, in double. There is one K/V head, and sequences of q and k are equally
/// long.
class Definition {
 public:
  explicit Definition(const Gradients& x) : x_(x), scale_(1 / std::sqrt(static_cast<double>(x.x.problem.d_qk))) {}

  /// P and dS of query i of head h and key j. D is that of the row.
  struct Pair {
    double p, ds;
  };
  Pair pair(std::int64_t h, std::int64_t i, std::int64_t j, double delta) const {
    const Attention& a = x_.x.problem;
    const bool seen = j <= i && (a.band.left < 0 || i - j <= a.band.left);
    if (!seen) return {0, 0};
    double s = 0, dp = 0;
    for (std::int64_t d = 0; d < a.d_qk; ++d) s += double{x_.x.q.get(0, i, h, d)} * x_.x.k.get(0, j, 0, d);
    for (std::int64_t d = 0; d < a.d_v; ++d) dp += double{x_.grad_o.get(0, i, h, d)} * x_.x.v.get(0, j, 0, d);
    const double p = std::exp(scale_ * s - x_.x.lse.get(0, h, i, 0));
    return {p, p * (dp - delta)};
  }
  double delta(std::int64_t h, std::int64_t i) const {
    double sum = 0;
    for (std::int64_t d = 0; d < x_.x.problem.d_v; ++d)
      sum += double{x_.grad_o.get(0, i, h, d)} * x_.x.o.get(0, i, h, d);
    return sum;
  }
  std::vector<double> grad_q(std::int64_t h, std::int64_t i) const {
    std::vector<double> out(static_cast<std::size_t>(x_.x.problem.d_qk));
    const double of_row = delta(h, i);
    for (std::int64_t j = 0; j <= i; ++j) {
      const Pair at = pair(h, i, j, of_row);
      for (std::size_t d = 0; d < out.size(); ++d)
        out[d] += scale_ * at.ds * x_.x.k.get(0, j, 0, static_cast<std::int64_t>(d));
    }
    return out;
  }
  /// grad_k, or grad_v.
  std::vector<double> of_key(std::int64_t j, bool value) const {
    const Attention& a = x_.x.problem;
    std::vector<double> out(static_cast<std::size_t>(value ? a.d_v : a.d_qk));
    for (std::int64_t h = 0; h < a.h_q; ++h) {
      for (std::int64_t i = j; i < a.s_q; ++i) {
        const Pair at = pair(h, i, j, delta(h, i));
        const HostTensor& from = value ? x_.grad_o : x_.x.q;
        for (std::size_t d = 0; d < out.size(); ++d)
          out[d] += (value ? at.p : scale_ * at.ds) * from.get(0, i, h, static_cast<std::int64_t>(d));
      }
    }
    return out;
  }

 private:
  const Gradients& x_;
  const double scale_;
};

/// No element may be off by more than `share` of the largest one of its row.
void expect_row(const std::string& name, const HostTensor& got, std::int64_t s, std::int64_t h,
                const std::vector<double>& want, double share) {
  double largest = 0, error = 0;
  for (std::size_t d = 0; d < want.size(); ++d) {
    const double off = std::abs(want[d] - got.get(0, s, h, static_cast<std::int64_t>(d)));
    largest = std::max(largest, std::abs(want[d]));
    error = std::isnan(off) ? std::numeric_limits<double>::infinity() : std::max(error, off);
  }
  EXPECT_GT(largest, 0) << name << ", row " << s;
  EXPECT_LE(error, share * largest) << name << ", row " << s;
}

/// The lse and o of a forward pass on the host would take minutes. The pass takes them as they are given, so these are
/// made up: P is then about one over the number of keys that are seen.
Gradients long_sequences(DType dtype, std::int64_t s, std::int64_t window) {
  Gradients x(Case{"long", 1, 1, 1, 2, 1, 64, 64}, dtype);  // its tensors are replaced
  Attention& a = x.x.problem;
  a.s_q = a.s_k = s;
  a.band = {window, 0, Align::bottom_right};
  std::uint64_t seed = 31;
  for (const auto& [tensor, heads] : {std::pair<HostTensor*, std::int64_t>{&x.x.q, 2},
                                      {&x.x.k, 1},
                                      {&x.x.v, 1},
                                      {&x.x.o, 2},
                                      {&x.grad_o, 2},
                                      {&x.grad_q, 2},
                                      {&x.grad_k, 1},
                                      {&x.grad_v, 1}}) {
    *tensor = HostTensor(dtype, {1, s, heads, 64});
    if (seed < 36) tensor->fill_normal(seed++);
  }
  x.x.lse = HostTensor(DType::f32, {1, 2, s, 1});
  x.x.lse.for_each([&](auto, auto h, auto i, auto) {
    const std::int64_t keys = window < 0 ? i + 1 : std::min(i, window) + 1;
    x.x.lse.set(0, h, i, 0, static_cast<float>(std::log(static_cast<double>(keys)) + 0.5));
  });
  return x;
}

TEST(CudaBackwardSlow, SequencesOf131072) {
  constexpr std::int64_t s = 131072;
  on_every_backward_path([](const Path& path, DType dtype) {
    for (const std::int64_t window : {std::int64_t{-1}, std::int64_t{5000}}) {
      SCOPED_TRACE(::testing::Message() << "window " << window);
      Gradients x = long_sequences(dtype, s, window);
      x.run(path);
      const Definition definition(x);
      // P of a row that sees 2^17 keys has no more than 7 bits in f16, whose smallest number is 2^-24.
      const double share = dtype == DType::f32 ? 1e-4 : 0x1p-6;
      for (const std::int64_t i : {std::int64_t{0}, std::int64_t{4999}, std::int64_t{65537}, s - 1})
        expect_row("grad_q", x.grad_q, i, i % 2, definition.grad_q(i % 2, i), share);
      for (const std::int64_t j : {std::int64_t{0}, std::int64_t{70001}, s - 2}) {
        expect_row("grad_k", x.grad_k, j, 0, definition.of_key(j, false), share);
        expect_row("grad_v", x.grad_v, j, 0, definition.of_key(j, true), share);
      }
    }
  });
}

// ---- More than 2^31 elements ----------------------------------------------------------------------------------------

/// The operands of one problem on the device. K, V, Q and what comes from above are zero, o is zero, and so is the lse.
/// A zero score then has P = 1, and D is 0.
struct Large {
  Attention problem;
  Zeros q, k, v, o, lse, grad_o, grad_q, grad_k, grad_v;
  Operands operands;

  Status make(DType dtype, std::int64_t s_q, std::int64_t s_k, std::int64_t heads) {
    problem.dtype = dtype;
    problem.b = 1;
    problem.s_q = s_q;
    problem.s_k = s_k;
    problem.h_q = problem.h_k = heads;
    problem.d_qk = problem.d_v = 128;
    problem.score.scale = 0.125F;
    Status status;
    for (Zeros* x : {&q, &o, &grad_o, &grad_q})
      if (status) status = x->make(dtype, {1, s_q, heads, 128});
    for (Zeros* x : {&k, &v, &grad_k, &grad_v})
      if (status) status = x->make(dtype, {1, s_k, heads, 128});
    if (status) status = lse.make(DType::f32, {1, heads, s_q, 1});
    operands.q = q.view;
    operands.k = k.view;
    operands.v = v.view;
    operands.o = o.view;
    operands.lse = lse.view;
    operands.grad_o = grad_o.view;
    operands.grad_q = grad_q.view;
    operands.grad_k = grad_k.view;
    operands.grad_v = grad_v.view;
    return status;
  }
  /// Runs with gradients that hold NaN.
  Status run(const Path& path) const {
    Plan plan;
    cuda::Memory workspace;
    if (Status status = Plan::make(problem, Pass::backward, path.target(), &plan); !status) return status;
    for (const Zeros* x : {&grad_q, &grad_k, &grad_v})
      if (Status status = cuda::fill(x->memory.data(), 0xFF, x->memory.size()); !status) return status;
    if (Status status = cuda::Memory::make(plan.workspace_bytes(), &workspace); !status) return status;
    if (Status status = plan.run(operands, workspace.data(), workspace.size()); !status) return status;
    return cuda::synchronize();
  }
};

void expect_in_row(const char* name, const Zeros& x, std::int64_t s, std::int64_t h,
                   const std::function<float(std::int64_t)>& want) {
  HostTensor row;
  ASSERT_OK(x.get(s, h, &row));
  for (std::int64_t d = 0; d < 128; ++d) ASSERT_EQ(row.get(0, 0, 0, d), want(d)) << name << ", row " << s << ", " << d;
}
float zero(std::int64_t) { return 0; }
float one(std::int64_t) { return 1; }
float first(std::int64_t d) { return d == 0 ? 1 : 0; }
float eight_first(std::int64_t d) { return d == 0 ? 8 : 0; }
float sign(std::int64_t d) { return d % 2 == 0 ? 1 : -1; }  // its product with a row of ones is 0

/// K, V and their gradients have more than 2^31 elements. The last head has one query of ones, one key of signs (a
/// score of 0) whose V is 8 in column 0, and a gradient from above of 1 there. So dS of that key is 8, times the scale
/// 1, and grad_v of every key is the gradient from above.
void expect_key(const Path& path, DType dtype, std::int64_t s_q, std::int64_t s_k, std::int64_t heads) {
  Large x;
  ASSERT_OK(x.make(dtype, s_q, s_k, heads));
  ASSERT_GT(s_k * heads * 128, std::int64_t{1} << 31);
  const std::int64_t head = heads - 1, i = s_q - 1;
  ASSERT_OK(x.q.set(i, head, one));
  ASSERT_OK(x.grad_o.set(i, head, first));
  for (const std::int64_t j :
       {(std::int64_t{1} << 30) / (heads * 128) + 1, (std::int64_t{1} << 31) / (heads * 128), s_k - 1}) {
    SCOPED_TRACE(::testing::Message() << "key " << j << " of " << s_k);
    ASSERT_OK(x.k.set(j, head, sign));
    ASSERT_OK(x.v.set(j, head, eight_first));
    ASSERT_OK(x.run(path));
    expect_in_row("grad_q", x.grad_q, i, head, sign);
    expect_in_row("grad_k", x.grad_k, j, head, one);
    for (const std::int64_t other : {std::int64_t{0}, s_k / 2, s_k - 2, s_k - 1}) {
      expect_in_row("grad_v", x.grad_v, other, head, first);
      if (other != j) expect_in_row("grad_k", x.grad_k, other, head, zero);
      if (heads > 1) expect_in_row("grad_v of head 0", x.grad_v, other, 0, zero);
    }
    ASSERT_OK(x.k.set(j, head, zero));
    ASSERT_OK(x.v.set(j, head, zero));
  }
}

TEST(CudaBackwardSlow, MoreThan2To31ElementsOfKAndV) {
  on_every_roomy_path(
      32,
      [](const Path& path, DType dtype) {
        expect_key(path, dtype, 1, (std::int64_t{1} << 24) + 77, 1);
        expect_key(path, dtype, 130, (std::int64_t{1} << 19) + 33, 33);
      },
      kAttentionBackward);
}

/// Q, O, what comes from above and grad_q have more than 2^31 elements, and on Hopper the f32 sums of grad_q too. There
/// is one key of signs, which is 8 in column 0 of V.
TEST(CudaBackwardSlow, MoreThan2To31ElementsOfQ) {
  on_every_roomy_path(
      40,
      [](const Path& path, DType dtype) {
        constexpr std::int64_t rows = (std::int64_t{1} << 19) + 33, heads = 33;
        Large x;
        ASSERT_OK(x.make(dtype, rows, 1, heads));
        ASSERT_GT(rows * heads * 128, std::int64_t{1} << 31);
        for (std::int64_t h = 0; h < heads; ++h) {
          ASSERT_OK(x.k.set(0, h, sign));
          ASSERT_OK(x.v.set(0, h, eight_first));
        }
        std::vector<std::int64_t> chosen;
        for (std::int64_t i = 0; i < rows; i += i + 1000 < rows ? 9973 : 1) chosen.push_back(i);
        for (const std::int64_t i : chosen) {
          ASSERT_OK(x.q.set(i, i % heads, one));
          ASSERT_OK(x.grad_o.set(i, i % heads, first));
        }
        ASSERT_OK(x.run(path));
        for (const std::int64_t i : chosen) {
          expect_in_row("grad_q", x.grad_q, i, i % heads, sign);
          expect_in_row("grad_q", x.grad_q, i, (i + 1) % heads, zero);
        }
        std::vector<float> of_head(heads);  // how many of the chosen rows each head has
        for (const std::int64_t i : chosen) of_head[static_cast<std::size_t>(i % heads)] += 1;
        for (std::int64_t h = 0; h < heads; ++h) {
          const float count = of_head[static_cast<std::size_t>(h)];
          ASSERT_LT(count, 256) << "bf16 holds no larger whole numbers";
          expect_in_row("grad_k", x.grad_k, 0, h, [=](std::int64_t) { return count; });
          expect_in_row("grad_v", x.grad_v, 0, h, [=](std::int64_t d) { return d == 0 ? count : 0; });
        }
      },
      kAttentionBackward);
}

}  // namespace
}  // namespace falchion::testing
