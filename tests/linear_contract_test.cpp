// tests/linear_contract_test.cpp: what NaN, numbers of any size and unusual states do in linear attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/linear.hpp"

namespace falchion::testing {
namespace {

constexpr std::int64_t kChunk = 256;  // No kernel has a longer chunk.
/// There are so many heads that in f32 each of Hopper's CTAs takes all columns of a head (cuda/linear_wide_test.cpp).
const LinearCase kManyHeads{"x", 2, 700, 36, 36, 128, 128};

bool clean(const HostTensor& x, std::int64_t b, std::int64_t row, std::int64_t h) {
  for (std::int64_t d = 0; d < x.shape()[3]; ++d) {
    if (!std::isfinite(x.get(b, row, h, d))) return false;
  }
  return true;
}

/// A NaN in k reaches its own token and every later one of its head. A NaN in q reaches its own token alone. A NaN in v
/// reaches the same tokens as one in k, but only in its column, and there it may also reach the earlier tokens of its
/// chunk.
void expect_nan_goes_forward(const Path& path, DType dtype, const LinearCase& row) {
  constexpr std::int64_t kAt = 600;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* where : {"q", "k", "v"}) {
    SCOPED_TRACE(where);
    LinearInstance x = make_linear_instance(row, dtype, 14);
    (*where == 'q' ? x.q : *where == 'k' ? x.k : x.v).set(0, kAt, 1, 5, nan);
    const Status status = run(path.target(), Pass::forward, &x);
    ASSERT_TRUE(status) << status.why;
    for (std::int64_t at = 0; at < x.problem.s; ++at) {
      ASSERT_TRUE(clean(x.o, 0, at, 0) && clean(x.o, 1, at, 1)) << "another head, row " << at;
      const bool mine = *where == 'q' ? at == kAt : at >= kAt;
      if (mine) {
        ASSERT_TRUE(std::isnan(x.o.get(0, at, 1, 5))) << at;
      } else if (*where != 'v' || at < kAt - kChunk) {
        ASSERT_TRUE(clean(x.o, 0, at, 1)) << at;
      }
    }
    if (!row.final_) continue;
    EXPECT_EQ(std::isnan(x.final_state.get(0, 1, 5, 5)), *where != 'q');
    EXPECT_TRUE(std::isfinite(x.final_state.get(0, 0, 5, 5)));
  }
}
TEST(LinearContract, NanGoesForward) {
  on_every_path(
      [](const Path& path, DType dtype) {
        expect_nan_goes_forward(path, dtype, LinearCase{"x", 2, 900, 2, 2, 64, 64}.final());
        expect_nan_goes_forward(path, dtype,
                                LinearCase{"x", 2, 900, 2, 2, 64, 128}.final().elu().normalise().decay(Decay::token));
        if (path.on_gpu() && dtype == DType::f32) expect_nan_goes_forward(path, dtype, kManyHeads);
      },
      kLinearForward);
}

/// There are more rows than b * s. A run may compute all of them or refuse, but it must not compute only some.
TEST(LinearContract, MoreTokensThanTheHint) {
  on_every_path(
      [](const Path& path, DType dtype) {
        LinearInstance x =
            make_linear_instance(LinearCase{"x", 3, 60, 1, 1, 64, 64}.packed({100, 80, 5}).states(), dtype, 16);
        const LinearInstance exact = linear_reference(x, Pass::forward);
        if (const Status status = run(path.target(), Pass::forward, &x); status) {
          EXPECT_TRUE(matches(x, exact, Pass::forward));
        } else {
          EXPECT_EQ(status.code, Code::invalid) << status.why;
        }
      },
      kLinearForward);
}

/// A state past f16's 65504 must stay finite, because what o needs of it is in range.
TEST(LinearContract, StatesPastTheRangeOfF16) {
  on_every_path(
      [](const Path& path, DType dtype) {
        LinearInstance x =
            make_linear_instance(LinearCase{"x", 1, 400, 1, 2, 64, 64}.positive().normalise().states(), dtype, 15);
        for (HostTensor* s : {&x.initial_state, &x.initial_z})
          s->for_each([&](auto i, auto j, auto e, auto m) { s->set(i, j, e, m, 3e6f + 1e5f * s->get(i, j, e, m)); });
        const Status status = run(path.target(), Pass::forward, &x);
        ASSERT_TRUE(status) << status.why;
        EXPECT_TRUE(matches(x, linear_reference(x, Pass::forward), Pass::forward));
      },
      kLinearForward);
}

void expect_error_below(double limit, const LinearInstance& x, const LinearInstance& exact, Pass pass) {
  if (pass == Pass::forward) {
    EXPECT_LT(rms_ratio(x, x.o, exact.o, true), limit);
    EXPECT_LT(rms_ratio(x, x.final_state, exact.final_state, false), limit);
    return;
  }
  EXPECT_LT(rms_ratio(x, x.grad_q, exact.grad_q, true), limit);
  EXPECT_LT(rms_ratio(x, x.grad_k, exact.grad_k, true), limit);
  EXPECT_LT(rms_ratio(x, x.grad_v, exact.grad_v, true), limit);
  EXPECT_LT(rms_ratio(x, x.grad_initial_state, exact.grad_initial_state, false), limit);
}

/// In f32 the result does not depend on the size of the numbers: where all of q, k or v are scaled, o is scaled too.
/// Some variants use products in fewer bits with an exponent for each chunk. Here these exponents differ from chunk to
/// chunk.
TEST(LinearContract, AnySizeOfF32) {
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    on_every_path(
        [&](const Path& path, DType dtype) {
          if (dtype != DType::f32) return;
          const LinearCase few = LinearCase{"x", 1, 500, 2, 2, 64, 64}.states();
          LinearCase many = kManyHeads;
          many.s = 260;
          struct {
            float q, k, v;
            int segments;
            const LinearCase* of;
          } const sizes[] = {{1e-12f, 1e9f, 1e-6f, 1, &few},  {1e15f, 1e-20f, 1e-3f, 3, &few},
                             {1e-18f, 1e-3f, 1e14f, 1, &few}, {1e-30f, 3e17f, 3e17f, 3, &few},
                             {1e-12f, 1e9f, 1e-6f, 0, &many}, {1e15f, 1e-20f, 1e-3f, 0, &many},
                             {1e-30f, 3e17f, 3e17f, 0, &many}};
          for (const auto& size : sizes) {
            if (size.of == &many && !path.on_gpu()) continue;
            LinearInstance x = make_linear_instance(*size.of, dtype, 17);
            x.segments = size.segments;
            // of_chunk raised to a power that differs from chunk to chunk is a further factor.
            const auto multiply = [](HostTensor* tensor, float by, float of_chunk) {
              tensor->for_each([&](auto i, auto j, auto h, auto e) {
                tensor->set(i, j, h, e,
                            tensor->get(i, j, h, e) * by * std::pow(of_chunk, static_cast<float>(j / 64 % 3)));
              });
            };
            // These factors let the state grow, too.
            multiply(&x.q, size.q, 1);
            multiply(&x.k, size.k, 128.f);
            multiply(&x.v, size.v, 1 / 64.f);
            multiply(&x.initial_state, size.k * size.v, 1);
            multiply(&x.grad_final_state, size.q, 1);
            const Status status = run(path.target(), pass, &x);
            ASSERT_TRUE(status) << status.why;
            const LinearInstance exact = linear_reference(x, pass);
            EXPECT_TRUE(matches(x, exact, pass)) << size.q << " " << size.k << " " << size.v;
            // This checks small outputs too, for which matches() is too generous, because it has a floor of 1e-6.
            expect_error_below(5e-6, x, exact, pass);
          }
        },
        pass == Pass::forward ? kLinearForward : kLinearBackward);
  }
}

/// Returns the RMS of the error of o divided by the RMS of o, over the rows for which `counts` is true.
template <class Counts>
double error_of_rows(const LinearInstance& x, const LinearInstance& exact, Counts counts) {
  double error = 0, all = 0;
  exact.o.for_each([&](auto b, auto s, auto h, auto m) {
    if (!counts(s)) return;
    const double wanted = exact.o.get(b, s, h, m);
    error += std::pow(x.o.get(b, s, h, m) - wanted, 2);
    all += wanted * wanted;
  });
  return std::sqrt(error / all);
}

/// A token that is 10,000 times as large as the others, or infinite, takes no accuracy from the rows that do not see
/// it.
TEST(LinearContract, ALargeTokenLeavesTheOnesBeforeItAlone) {
  const auto expect_alone = [](const Path& path, DType dtype, const LinearCase& row, const char* where, float size) {
    LinearInstance x = make_linear_instance(row, dtype, 18);
    const LinearInstance exact = linear_reference(x, Pass::forward);
    constexpr std::int64_t kLarge = 300;  // This token lies in a chunk with other tokens before and behind it.
    HostTensor& large = *where == 'q' ? x.q : *where == 'k' ? x.k : x.v;
    large.for_each([&](auto b, auto s, auto h, auto e) {
      if (s == kLarge) large.set(b, s, h, e, size * (e % 2 == 0 ? 1.f : -1.f));
    });
    const Status status = run(path.target(), Pass::forward, &x);
    ASSERT_TRUE(status) << status.why;
    const std::int64_t end = *where == 'v' && std::isinf(size) ? kLarge - kChunk : kLarge;
    const double error = error_of_rows(x, exact, [&](std::int64_t s) { return *where == 'q' ? s != kLarge : s < end; });
    EXPECT_LT(error, dtype == DType::f32 ? 5e-6 : dtype == DType::f16 ? 1e-3 : 5e-3) << where << " " << size;
  };
  on_every_path(
      [&](const Path& path, DType dtype) {
        LinearCase many = kManyHeads;
        many.s = 400;
        for (const float size : {1e4f, INFINITY}) {
          for (const char* where : {"q", "k", "v"}) {
            expect_alone(path, dtype, LinearCase{"x", 1, 500, 1, 1, 64, 64}, where, size);
            if (path.on_gpu() && dtype == DType::f32) expect_alone(path, dtype, many, where, size);
          }
        }
      },
      kLinearForward);
}

/// A decay of g = -90 every few tokens forgets what was before. Nothing may overflow, because e^(+90) is never needed.
TEST(LinearContract, ADecayThatForgets) {
  on_every_path(
      [](const Path& path, DType dtype) {
        LinearInstance x =
            make_linear_instance(LinearCase{"x", 1, 300, 1, 1, 64, 64}.states().decay(Decay::token), dtype, 16);
        x.decay.for_each([&](auto i, auto j, auto h, auto l) {
          if (j % 7 == 3) x.decay.set(i, j, h, l, j % 2 == 0 ? -90.f : -1e4f);
        });
        const Status status = run(path.target(), Pass::forward, &x);
        ASSERT_TRUE(status) << status.why;
        EXPECT_TRUE(matches(x, linear_reference(x, Pass::forward), Pass::forward));
      },
      kLinearForward);
}

/// Where almost all is forgotten from one token to the next, the gradient of g is a small number of its own. At g = -15
/// it is 3e-7 of q dq and of k dk. A kernel that sums differences of these two may not lose it.
TEST(LinearContract, TheGradientOfAStrongDecay) {
  const LinearCase rows[] = {
      LinearCase{"plain", 1, 150, 2, 2, 32, 48}.decay(Decay::token),
      LinearCase{"states", 1, 150, 1, 2, 32, 48}.states().decay(Decay::token),
      LinearCase{"normalise", 1, 150, 1, 2, 32, 48}.elu().normalise().states().decay(Decay::token),
      LinearCase{"head", 2, 150, 2, 2, 32, 48}.states().decay(Decay::head),
      LinearCase{"packed", 3, 130, 1, 2, 32, 48}.packed({130, 1, 40}).reverse().states().decay(Decay::token),
      LinearCase{"segments", 1, 600, 1, 2, 32, 48}.segments(3).elu().normalise().states().decay(Decay::token),
  };
  on_every_path(
      [&](const Path& path, DType dtype) {
        for (const LinearCase& row : rows) {
          for (const float g : {-5.f, -10.f, -15.f, -30.f}) {
            SCOPED_TRACE(::testing::Message() << row.name << ", g = " << g);
            LinearInstance x = make_linear_instance(row, dtype, 19);
            x.decay.for_each([&](auto b, auto s, auto h, auto l) {
              x.decay.set(b, s, h, l, g - 0.1f * static_cast<float>((s + h) % 5));
            });
            const Status status = run(path.target(), Pass::backward, &x);
            ASSERT_TRUE(status) << status.why;
            const LinearInstance exact = linear_reference(x, Pass::backward);
            EXPECT_TRUE(matches(x, exact, Pass::backward));
          }
        }
      },
      kLinearBackward);
}

double largest_difference(const HostTensor& a, const HostTensor& b) {
  double most = 0;
  a.for_each([&](auto i, auto j, auto k, auto l) {
    if (std::isnan(b.get(i, j, k, l))) return;  // This row belongs to no sequence.
    const double difference = std::abs(static_cast<double>(a.get(i, j, k, l)) - b.get(i, j, k, l));
    most = difference <= most ? most : difference;  // A NaN counts as a difference.
  });
  return most;
}

/// In problems of a few tokens a gradient can be small next to the part that the token contributes itself. It is
/// then judged at its own size, not at that of the part. With one token and the normaliser, o is v up to eps, so this
/// happens even without a decay.
TEST(LinearContract, TheGradientOfFewTokens) {
  const LinearCase rows[] = {
      LinearCase{"one", 1, 1, 1, 1, 3, 6}.final().decay(Decay::token),
      LinearCase{"two", 1, 2, 1, 1, 1, 8}.decay(Decay::head),
      LinearCase{"one_of_each", 2, 1, 3, 3, 64, 16}.elu().normalise().decay(Decay::token).packed({1, 1}).spare(0),
      LinearCase{"one_without_decay", 2, 1, 3, 3, 64, 16}.elu().normalise().packed({1, 1}).spare(0),
      LinearCase{"nine", 1, 9, 1, 2, 59, 8}.elu().normalise().decay(Decay::token),
  };
  on_every_path(
      [&](const Path& path, DType dtype) {
        for (const LinearCase& row : rows) {
          SCOPED_TRACE(row.name);
          LinearInstance x = make_linear_instance(row, dtype, 20);
          x.decay.for_each([&](auto b, auto s, auto h, auto l) { x.decay.set(b, s, h, l, -12.f); });
          const Status status = run(path.target(), Pass::backward, &x);
          ASSERT_TRUE(status) << status.why;
          const LinearInstance exact = linear_reference(x, Pass::backward);
          // docs/contract.md says which paths are exact here.
          const bool exactly = row.decay_ != Decay::none || path.on_gpu();
          // The rounding of o, which is v, is all that is left of this gradient. That is some 1e-4 where AMX rounds to
          // bf16.
          if (row.normalise_ && !exactly) {
            EXPECT_LT(largest_difference(x.grad_k, exact.grad_k), 1e-3);
            EXPECT_LT(largest_difference(x.grad_q, exact.grad_q), 1e-3);
            continue;
          }
          EXPECT_TRUE(matches(x, exact, Pass::backward));
          x.grad_decay.for_each([&](auto b, auto s, auto h, auto l) {
            const bool alone = row.s == 1 && x.is_row(b, s);
            if (alone) { EXPECT_EQ(x.grad_decay.get(b, s, h, l), 0.0); }
          });
          if (row.normalise_ && dtype == DType::f32) {
            EXPECT_LT(rms_ratio(x, x.grad_q, exact.grad_q, true), 2e-5);
            EXPECT_LT(rms_ratio(x, x.grad_k, exact.grad_k, true), 2e-5);
          }
        }
      },
      kLinearBackward);
}

/// An Inf in v reaches its own column alone, also after that column has become part of the state.
TEST(LinearContract, AnInfInVStaysInItsColumn) {
  on_every_path(
      [](const Path& path, DType dtype) {
        // docs/contract.md says why: on Hopper in f32 an o may overflow.
        if (path.on_gpu() && dtype == DType::f32) return;
        for (const std::int64_t d_v : {2, 64}) {
          LinearInstance x = make_linear_instance(LinearCase{"x", 1, 200, 1, 1, 16, d_v}.elu(), dtype, 21);
          const LinearInstance exact = linear_reference(x, Pass::forward);
          x.v.set(0, 3, 0, 1, INFINITY);
          const Status status = run(path.target(), Pass::forward, &x);
          ASSERT_TRUE(status) << status.why;
          double error = 0, all = 0;
          exact.o.for_each([&](auto b, auto s, auto h, auto m) {
            if (m == 1) return;
            const double wanted = exact.o.get(b, s, h, m);
            error += std::pow(x.o.get(b, s, h, m) - wanted, 2);
            all += wanted * wanted;
          });
          EXPECT_LT(std::sqrt(error / all), dtype == DType::f32 ? 5e-6 : dtype == DType::f16 ? 1e-3 : 5e-3);
        }
      },
      kLinearForward);
}

/// The operands of the other pass may hold anything, and may even overlap this pass's operands.
TEST(LinearContract, OneStructServesBothPasses) {
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    on_every_path(
        [&](const Path& path, DType dtype) {
          if (path.on_gpu()) return;  // Operands are copied to the device as far as their views reach.
          LinearInstance x = make_linear_instance(
              LinearCase{"x", 1, 70, 1, 2, 16, 24}.states().decay(Decay::token).elu().normalise(), dtype);
          LinearOperands both = x.operands(pass);
          Tensor broken = Tensor::dense(reinterpret_cast<void*>(1), DType::e4m3, {-5, 1, 1, 1});
          broken.stride = {0, -1, 7, std::numeric_limits<std::int64_t>::min()};
          if (pass == Pass::backward) {
            both.o = broken;
            both.final_state = both.q;
            both.final_z = broken;
          }
          if (pass == Pass::forward) {
            both.grad_o = both.grad_q = both.grad_k = broken;
            both.grad_v = both.o;
            both.grad_decay = broken;
            both.grad_final_state = both.grad_final_z = both.grad_initial_state = both.grad_initial_z = broken;
          }
          Plan plan;
          ASSERT_TRUE(Plan::make(x.problem, pass, path.target(), &plan));
          const Workspace workspace(plan.workspace_bytes());
          x.poison_outputs();
          const Status status = plan.run(both, workspace.data(), workspace.size());
          EXPECT_TRUE(status) << status.why;
          EXPECT_TRUE(matches(x, linear_reference(x, pass), pass));
        },
        pass == Pass::forward ? kLinearForward : kLinearBackward);
  }
}

/// The numbers of the table are for tensors of many elements. Over few the roundings to 16 bits do not average out: the
/// RMS of an o of 2 to 20 elements may be past the table's number (on AMX in bf16 it is, in some of these), and no more
/// than the tolerance rule grants.
TEST(LinearContract, FewElementsIn16Bits) {
  on_every_path(
      [](const Path& path, DType dtype) {
        if (dtype == DType::f32) return;
        double largest = 0;
        for (const std::int64_t d : {1, 2, 5, 16}) {
          for (std::int64_t seed = 1; seed <= 60; ++seed) {
            const LinearCase few{"x", 1, 2 + seed % 4, 1, 1, d, 1 + seed % 5};
            LinearInstance x = make_linear_instance(few, dtype, 100 * static_cast<std::uint64_t>(seed));
            const LinearInstance exact = linear_reference(x, Pass::forward);
            ASSERT_TRUE(run(path.target(), Pass::forward, &x));
            ASSERT_TRUE(matches(x, exact, Pass::forward)) << "d " << d << ", seed " << seed;
            double error = 0, all = 0;
            exact.o.for_each([&](auto... at) {
              error += std::pow(x.o.get(at...) - exact.o.get(at...), 2);
              all += std::pow(exact.o.get(at...), 2);
            });
            largest = std::max(largest, std::sqrt(error / all));
          }
        }
        if (path.level == "amx_emulated" && dtype == DType::bf16) { EXPECT_GT(largest, 5e-3); }
      },
      kLinearForward);
}

}  // namespace
}  // namespace falchion::testing
