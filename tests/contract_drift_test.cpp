// tests/contract_drift_test.cpp: in f32 the sums over the keys do not drift, however many keys there are. One running
// sum does: over 30,000 keys O was off by 5.6e-6, over 2^20 by 3e-5. Each result is compared with its own sum in
// double, since the definition takes long for so many keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/contract.hpp"
#include "support/gradients.hpp"
#include "support/linear.hpp"

namespace falchion::testing {
namespace {

/// O and the LSE of one head in double.
struct Exact {
  std::vector<double> o, lse;
};

Exact exact_of(const Instance& x) {
  const Attention& a = x.problem;
  Exact exact;
  std::vector<double> scores(static_cast<std::size_t>(a.s_k)), o(static_cast<std::size_t>(a.d_v));
  for (std::int64_t i = 0; i < a.s_q; ++i) {
    double m = -INFINITY, l = 0;
    for (std::int64_t j = 0; j < a.s_k; ++j) {
      double sum = 0;
      for (std::int64_t c = 0; c < a.d_qk; ++c) sum += double{x.q.get(0, i, 0, c)} * x.k.get(0, j, 0, c);
      scores[static_cast<std::size_t>(j)] = sum / std::sqrt(static_cast<double>(a.d_qk));
      m = std::max(m, scores[static_cast<std::size_t>(j)]);
    }
    std::fill(o.begin(), o.end(), 0);
    for (std::int64_t j = 0; j < a.s_k; ++j) {
      const double p = std::exp(scores[static_cast<std::size_t>(j)] - m);
      l += p;
      for (std::int64_t c = 0; c < a.d_v; ++c) o[static_cast<std::size_t>(c)] += p * x.v.get(0, j, 0, c);
    }
    for (const double sum : o) exact.o.push_back(sum / l);
    exact.lse.push_back(m + std::log(l));
  }
  return exact;
}

/// The same where all scores are 0.
Exact mean_of(const Instance& x) {
  const Attention& a = x.problem;
  std::vector<double> o(static_cast<std::size_t>(a.d_v));
  x.v.for_each([&](auto b, auto j, auto h, auto c) {
    o[static_cast<std::size_t>(c)] += x.v.get(b, j, h, c) / static_cast<double>(a.s_k);
  });
  Exact exact;
  for (std::int64_t i = 0; i < a.s_q; ++i) exact.o.insert(exact.o.end(), o.begin(), o.end());
  exact.lse.assign(static_cast<std::size_t>(a.s_q), std::log(static_cast<double>(a.s_k)));
  return exact;
}

/// Runs the instance in f32 on every path but ref, and compares O and the LSE with their limits. Hopper's halves add a
/// sum of 64 keys (32 above d 128) after another, over all keys: a limit 8 times as large.
void expect_near(Instance* x, const Exact& exact, double limit, double limit_lse = 3 * 0x1p-20) {
  std::vector<Path> paths = usable_paths();
  for (const Path& path : named_hopper())
    if (path.why_not().empty()) paths.push_back(path);
  for (const Path& path : paths) {
    if (path.backend == Backend::ref || !path.has(DType::f32)) continue;
    SCOPED_TRACE(path.name());
    const Status status = run(path, x);
    if (path.backend == Backend::sm90 && status.code == Code::unsupported) continue;
    ASSERT_TRUE(status) << status.why;
    double off = 0, off_lse = 0;
    std::size_t n = 0;
    x->o.for_each([&](auto b, auto i, auto h, auto c) {
      const double error = std::abs(x->o.get(b, i, h, c) - exact.o[n++]);
      off = error <= off ? off : error;  // a NaN stays
    });
    for (std::int64_t i = 0; i < x->problem.s_q; ++i) {
      const double error = std::abs(x->lse.get(0, 0, i, 0) - exact.lse[static_cast<std::size_t>(i)]);
      off_lse = error <= off_lse ? off_lse : error;
    }
    EXPECT_LE(off, path.on_gpu() && path.backend != Backend::sm80 ? 8 * limit : limit);
    EXPECT_LE(off_lse, limit_lse);
  }
}

Instance near_one(std::int64_t s_q, std::int64_t s_k, std::int64_t d) {
  Instance x = make_instance(Case{"x", 1, s_q, s_k, 1, 1, d, d}, DType::f32, 5);
  x.v.for_each([&](auto b, auto s, auto h, auto c) { x.v.set(b, s, h, c, x.v.get(b, s, h, c) + 1); });
  return x;
}

TEST(Drift, ThirtyThousandKeys) {
  for (const std::int64_t s_q : {64, 1}) {
    SCOPED_TRACE(s_q);
    Instance x = near_one(s_q, 30000, 64);
    expect_near(&x, exact_of(x), 1e-6);
  }
}

TEST(Drift, AMillionKeys) {
  for (const std::int64_t s_q : {20, 2}) {
    SCOPED_TRACE(s_q);
    Instance x = near_one(s_q, std::int64_t{1} << 20, 16);
    x.k.for_each([&](auto b, auto s, auto h, auto c) { x.k.set(b, s, h, c, 0); });
    expect_near(&x, mean_of(x), 1e-6);
  }
}

// Sums above and below the line drift by themselves, so what is divided must be as good as what divides.
TEST(Drift, AllRowsOfVEqual) {
  for (const std::int64_t s_q : {64, 1}) {
    SCOPED_TRACE(s_q);
    Instance x = near_one(s_q, 4326, 256);
    x.v.for_each([&](auto b, auto s, auto h, auto c) { x.v.set(b, s, h, c, x.v.get(0, 0, 0, c)); });
    Exact exact = exact_of(x);
    expect_near(&x, exact, 1.5e-6);  // the largest of these elements is 4.3
  }
}

// A maximum that is raised again and again rescales the sums of the segments too, and a NaN or an infinity of an early
// key is not lost with its segment.
TEST(Drift, RisingScoresAndAnInfinityOfAnEarlyKey) {
  for (const std::int64_t s_q : {33, 3}) {
    SCOPED_TRACE(s_q);
    Instance x = near_one(s_q, 9000, 32);
    x.q.for_each([&](auto b, auto s, auto h, auto c) { x.q.set(b, s, h, c, 1); });
    x.k.for_each([&](auto b, auto s, auto h, auto c) {
      x.k.set(b, s, h, c, x.k.get(b, s, h, c) + static_cast<float>(s) * 0x1p-10F);
    });
    expect_near(&x, exact_of(x), 1e-5, 1e-5);  // scores of 50 are rounded to 2^-19
    x.v.set(0, 7, 0, 3, kInf);
    x.v.set(0, 2000, 0, 5, kNan);
    for (const Path& path : usable_paths()) {
      SCOPED_TRACE(path.name());
      if (!path.has(DType::f32)) continue;
      ASSERT_TRUE(run(path, &x));
      for (std::int64_t i = 0; i < s_q; ++i) {
        EXPECT_EQ(x.o.get(0, i, 0, 3), kInf);
        EXPECT_TRUE(std::isnan(x.o.get(0, i, 0, 5)));
        EXPECT_TRUE(std::isfinite(x.o.get(0, i, 0, 4)));
      }
    }
  }
}

/// The largest differences between grad_k and grad_v and their own sums in double, as shares of the largest element.
/// The grad_o . o of each row is taken from the o that the kernels read.
struct OffByGradients {
  double k = 0, v = 0;
};

OffByGradients off_by(const Gradients& g) {
  const Attention& a = g.x.problem;
  const auto n = static_cast<std::size_t>(a.d_qk);
  const double scale = 1 / std::sqrt(static_cast<double>(a.d_qk));
  OffByGradients off, largest;
  const auto compare = [&](const HostTensor& got, std::int64_t j, const std::vector<double>& sums, double* by,
                           double* size) {
    for (std::int64_t c = 0; c < a.d_qk; ++c) {
      const double sum = sums[static_cast<std::size_t>(c)], error = std::abs(got.get(0, j, 0, c) - sum);
      *by = error <= *by ? *by : error;
      *size = std::max(*size, std::abs(sum));
    }
  };
  for (std::int64_t j = 0; j < a.s_k; ++j) {
    std::vector<double> of_k(n), of_v(n);
    for (std::int64_t i = 0; i < a.s_q; ++i) {
      double score = 0, grad_p = 0;
      for (std::int64_t c = 0; c < a.d_qk; ++c) {
        score += double{g.x.q.get(0, i, 0, c)} * g.x.k.get(0, j, 0, c);
        grad_p += double{g.grad_o.get(0, i, 0, c)} * (double{g.x.v.get(0, j, 0, c)} - g.x.o.get(0, i, 0, c));
      }
      const double p = std::exp(score * scale - g.x.lse.get(0, 0, i, 0));
      for (std::int64_t c = 0; c < a.d_qk; ++c) {
        of_k[static_cast<std::size_t>(c)] += p * grad_p * scale * g.x.q.get(0, i, 0, c);
        of_v[static_cast<std::size_t>(c)] += p * g.grad_o.get(0, i, 0, c);
      }
    }
    compare(g.grad_k, j, of_k, &off.k, &largest.k);
    compare(g.grad_v, j, of_v, &off.v, &largest.v);
  }
  return {off.k / largest.k, off.v / largest.v};
}

// On the CPU the sums of the backward pass take 32 queries as a whole, and 8192 before they are put aside.
TEST(Drift, GradientsOfManyQueries) {
  Gradients g(Case{"x", 1, 200000, 6, 1, 1, 16, 16}, DType::f32);
  g.x.q.for_each([&](auto b, auto s, auto h, auto c) { g.x.q.set(b, s, h, c, g.x.q.get(b, s, h, c) + 1); });
  g.grad_o.for_each([&](auto b, auto s, auto h, auto c) { g.grad_o.set(b, s, h, c, g.grad_o.get(b, s, h, c) + 1); });
  for (const Path& path : usable_paths(kAttentionBackward)) {
    if (path.backend != Backend::cpu || !path.has(DType::f32, kAttentionBackward)) continue;
    SCOPED_TRACE(path.name());
    g.run(path);
    const OffByGradients off = off_by(g);
    EXPECT_LE(off.k, 5e-7);
    EXPECT_LE(off.v, 5e-7);
  }
}

// More rows than one segment: by their number, by the query heads that share a key, and in the one long sequence of
// several, after which a short one begins anew. A NaN of an early row is not lost with its segment.
TEST(Drift, SegmentsOfQueries) {
  const Case cases[] = {Case{"rows", 1, 8300, 9, 1, 1, 8, 24}, Case{"heads", 1, 5500, 9, 3, 1, 8, 8},
                        Case{"packed", 3, 9000, 20, 2, 1, 8, 8}.packed({40, 9000, 33}, {9, 20, 5})};
  for (const Case& row : cases) {
    for (const bool spoiled : {false, true}) {
      Gradients g(row, DType::f32);
      if (spoiled) g.grad_o.set(0, 41, 0, 3, kNan);
      const judge::GradientReference reference(g.x.problem, g.operands());
      for (const Path& path : usable_paths(kAttentionBackward)) {
        if (path.backend != Backend::cpu || !path.has(DType::f32, kAttentionBackward)) continue;
        SCOPED_TRACE(::testing::Message() << row.name << ", " << path.name());
        g.run(path.target(1));
        EXPECT_TRUE(reference.check(judge::Gradient::k, g.grad_k.view(), false).passed());
        EXPECT_TRUE(reference.check(judge::Gradient::v, g.grad_v.view(), false).passed());
      }
    }
  }
}

// Without a grad_o the gradient of a score is P grad_lse, so all of a row's come to its grad_lse: here to 1.
TEST(Drift, GradBiasOfAllPairs) {
  Case row{"x", 1, 100, 2000, 4, 1, 8, 8};
  Gradients g(std::move(row).bias(Case::Bias::broadcast), DType::f32, {.grad_lse = true, .grad_bias = {1, 1, 1, 1}});
  g.grad_o.for_each([&](auto b, auto s, auto h, auto c) { g.grad_o.set(b, s, h, c, 0); });
  g.grad_lse.for_each([&](auto b, auto h, auto i, auto c) { g.grad_lse.set(b, h, i, c, 1); });
  for (const Path& path : usable_paths(kAttentionBackward)) {
    if (path.backend != Backend::cpu || !path.has(DType::f32, kAttentionBackward)) continue;
    SCOPED_TRACE(path.name());
    g.run(path);
    EXPECT_NEAR(g.grad_bias.get(0, 0, 0, 0), 400, 1e-4);
  }
}

// Equal tokens are the worst case of a running sum: each addition rounds to the same side.
TEST(Drift, EqualTokensOfLinearAttention) {
  for (const std::int64_t tokens : {955, 8000}) {
    LinearInstance x =
        make_linear_instance(LinearCase{"x", 1, tokens, 1, 2, 32, 16}.normalise().final().positive(), DType::f32, 9);
    x.k.for_each([&](auto b, auto s, auto h, auto c) { x.k.set(b, s, h, c, x.k.get(0, 0, h, c)); });
    x.v.for_each([&](auto b, auto s, auto h, auto c) { x.v.set(b, s, h, c, x.v.get(0, 0, h, c)); });
    const LinearInstance exact = linear_reference(x, Pass::forward);
    for (const Path& path : usable_paths(kLinearForward)) {
      if (!path.has(DType::f32, kLinearForward)) continue;
      SCOPED_TRACE(::testing::Message() << path.name() << ", " << tokens << " tokens");
      for (const int threads : {1, 3}) {
        const Status status = run(path.target(threads), Pass::forward, &x);
        ASSERT_TRUE(status) << status.why;
        EXPECT_TRUE(matches(x, exact, Pass::forward));
      }
    }
  }
}

}  // namespace
}  // namespace falchion::testing
