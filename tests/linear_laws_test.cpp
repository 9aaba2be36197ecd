// tests/linear_laws_test.cpp: laws of linear attention that need no second implementation: the definition's gradients
// agree with finite differences, a sequence in two calls is the whole, segments change nothing, and bits repeat.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "api/data_of.hpp"
#include "base/size.hpp"
#include "plan/plan_data.hpp"
#include "problem/device_copy.hpp"
#include "support/linear.hpp"

namespace falchion::testing {
namespace {

// ---- the other definition
// --------------------------------------------------------------------------------------------

/// Computes o_j without a running state. It is the sum over the tokens i up to j of e^(g_(i+1) + ... + g_j)
/// phi(q_j).phi(k_i) v_i, plus the part of the initial state. With the normaliser it is divided by the same sum with 1
/// in place of v_i.
double attended(const LinearInstance& x, std::int64_t b, std::int64_t h, std::int64_t j, std::int64_t m) {
  const LinearAttention& a = x.problem;
  const std::int64_t h_qk = h / (a.h_v / a.h_qk);
  const auto row = [&](std::int64_t i) { return a.reverse ? a.s - 1 - i : i; };
  const auto phi = [&](double t) { return a.feature_map == FeatureMap::identity ? t : t > 0 ? t + 1 : std::exp(t); };
  double u = 0, z = 0, faded = 0;
  for (std::int64_t i = j; i >= 0; --i) {
    double dot = 0;
    for (std::int64_t e = 0; e < a.d_qk; ++e)
      dot += phi(x.q.get(b, row(j), h_qk, e)) * phi(x.k.get(b, row(i), h_qk, e));
    u += std::exp(faded) * dot * x.v.get(b, row(i), h, m);
    z += std::exp(faded) * dot;
    if (a.decay != Decay::none)
      faded += a.decay == Decay::head ? x.decay.get(0, 0, h, 0) : x.decay.get(b, row(i), h, 0);
  }
  for (std::int64_t e = 0; a.initial_state && e < a.d_qk; ++e) {
    const double q = std::exp(faded) * phi(x.q.get(b, row(j), h_qk, e));
    u += q * x.initial_state.get(b, h, e, m);
    if (a.normalise) z += q * x.initial_z.get(b, h, e, 0);
  }
  const double scale = a.scale != 0 ? static_cast<double>(a.scale) : 1 / std::sqrt(static_cast<double>(a.d_qk));
  return scale * u / (a.normalise ? scale * z + static_cast<double>(a.eps) : 1);
}

TEST(LinearDefinition, IsCausalAttentionWithoutASoftmax) {
  for (const LinearCase& row :
       {LinearCase{"plain", 2, 30, 2, 2, 5, 7},
        LinearCase{"token", 2, 30, 1, 2, 5, 7}.states().decay(Decay::token).scale(0.3f),
        LinearCase{"head", 1, 30, 2, 4, 5, 7}.states().decay(Decay::head).reverse(),
        LinearCase{"normalise", 2, 30, 1, 1, 5, 7}.elu().normalise(),
        LinearCase{"everything", 1, 30, 1, 2, 5, 7}.elu().normalise().states().decay(Decay::token).reverse()}) {
    SCOPED_TRACE(row.name);
    const LinearInstance x = make_linear_instance(row, DType::f32, 4), exact = linear_reference(x, Pass::forward);
    exact.o.for_each([&](auto b, auto s, auto h, auto m) {
      const double want = attended(x, b, h, x.problem.reverse ? x.problem.s - 1 - s : s, m);
      ASSERT_NEAR(exact.o.get(b, s, h, m), want, 1e-6 * std::max(1.0, std::abs(want))) << b << s << h << m;
    });
  }
}

// ---- gradients ------------------------------------------------------------------------------------------------------

/// Returns the sum of all outputs, each multiplied by its gradient.
double loss(const LinearInstance& x) {
  const LinearInstance exact = linear_reference(x, Pass::forward);
  double sum = 0;
  const auto add = [&](const HostTensor& value, const HostTensor& weight, bool rows) {
    value.for_each([&](auto i, auto j, auto k, auto l) {
      if (!rows || x.is_row(i, j)) sum += static_cast<double>(value.get(i, j, k, l)) * weight.get(i, j, k, l);
    });
  };
  add(exact.o, x.grad_o, true);
  add(exact.final_state, x.grad_final_state, false);
  add(exact.final_z, x.grad_final_z, false);
  return sum;
}

/// Compares central differences with the gradient at some of the elements. The loss is a sum in double of numbers in
/// f32, so the error to expect is their rounding divided by the step.
void expect_gradient(const char* what, LinearInstance* x, HostTensor* input, const HostTensor& gradient, bool rows) {
  constexpr float kStep = 0x1p-6f;
  SCOPED_TRACE(what);
  double error = 0, sum = 0;
  std::uint64_t n = 0;
  input->for_each([&](auto i, auto j, auto k, auto l) {
    if ((rows && !x->is_row(i, j)) || random_uniform(3, n++) > 0.2) return;
    const float before = input->get(i, j, k, l);
    input->set(i, j, k, l, before + kStep);
    const double above = loss(*x);
    input->set(i, j, k, l, before - kStep);
    const double below = loss(*x);
    input->set(i, j, k, l, before);
    const double want = (above - below) / (2 * static_cast<double>(kStep)), got = gradient.get(i, j, k, l);
    error += (got - want) * (got - want);
    sum += want * want;
  });
  ASSERT_GT(sum, 0);
  EXPECT_LT(std::sqrt(error / sum), 1e-3);
}

TEST(LinearGradients, AgreeWithFiniteDifferences) {
  using enum Decay;
  const LinearCase rows[] = {
      LinearCase{"plain", 1, 9, 1, 1, 5, 3},
      LinearCase{"states", 2, 7, 1, 2, 4, 6}.states().decay(token),
      LinearCase{"head", 2, 7, 2, 4, 4, 3}.states().decay(head),
      LinearCase{"normalise", 1, 8, 1, 1, 5, 3}.elu().normalise(),
      LinearCase{"everything", 2, 8, 1, 2, 5, 3}.elu().normalise().states().decay(token).scale(0.7f),
      LinearCase{"everything_head", 2, 8, 2, 2, 5, 3}.elu().normalise().states().decay(head),
      LinearCase{"reverse", 1, 8, 1, 2, 5, 3}.elu().normalise().states().decay(token).reverse(),
      LinearCase{"packed", 3, 6, 1, 2, 4, 3}.packed({6, 0, 5}).elu().normalise().states().decay(token),
      LinearCase{"packed_head", 3, 6, 1, 1, 4, 3}.packed({6, 1, 5}).states().decay(head).reverse(),
  };
  for (const LinearCase& row : rows) {
    SCOPED_TRACE(row.name);
    LinearInstance x = make_linear_instance(row, DType::f32, 5);
    const LinearInstance g = linear_reference(x, Pass::backward);
    expect_gradient("q", &x, &x.q, g.grad_q, true);
    expect_gradient("k", &x, &x.k, g.grad_k, true);
    expect_gradient("v", &x, &x.v, g.grad_v, true);
    if (x.problem.decay != none) expect_gradient("decay", &x, &x.decay, g.grad_decay, x.problem.decay == token);
    if (!x.problem.initial_state) continue;
    expect_gradient("initial_state", &x, &x.initial_state, g.grad_initial_state, false);
    if (x.problem.normalise) expect_gradient("initial_z", &x, &x.initial_z, g.grad_initial_z, false);
  }
}

// ---- splitting ------------------------------------------------------------------------------------------------------

/// The two ways round at different places, so a 16-bit output may here and there be rounded in the other direction.
double same_within(DType dtype) { return dtype == DType::f32 ? 1e-5 : 3e-4; }

/// Returns a view of the rows [begin, begin + count) of a tensor.
Tensor rows_of(const HostTensor& x, std::int64_t begin, std::int64_t count) {
  Tensor view = x.view();
  view.data = static_cast<std::byte*>(view.data) + begin * view.stride[1] * size_of(view.dtype);
  view.shape[1] = count;
  return view;
}

/// Running a sequence in two calls, with the state carried in place, gives what one call gives.
TEST(LinearLaws, TwoHalvesAreTheWhole) {
  constexpr std::int64_t kFirst = 256;
  on_every_path(
      [](const Path& path, DType dtype) {
        LinearInstance whole = make_linear_instance(
            LinearCase{"x", 2, 600, 1, 2, 64, 48}.in_place().decay(Decay::token).elu().normalise(), dtype, 11);
        LinearInstance halves = make_linear_instance(
            LinearCase{"x", 2, 600, 1, 2, 64, 48}.in_place().decay(Decay::token).elu().normalise(), dtype, 11);
        const Status status = run(path.target(), Pass::forward, &whole);
        ASSERT_TRUE(status) << status.why;
        halves.poison_outputs();
        for (const std::int64_t begin : {std::int64_t{0}, kFirst}) {
          LinearAttention part = halves.problem;
          part.s = begin == 0 ? kFirst : part.s - kFirst;
          LinearOperands x = halves.operands(Pass::forward);
          x.q = rows_of(halves.q, begin, part.s);
          x.k = rows_of(halves.k, begin, part.s);
          x.v = rows_of(halves.v, begin, part.s);
          x.o = rows_of(halves.o, begin, part.s);
          x.decay = rows_of(halves.decay, begin, part.s);
          Plan plan;
          ASSERT_TRUE(Plan::make(part, Pass::forward, path.target(), &plan));
          const Workspace workspace(plan.workspace_bytes());
          const Status ran =
              path.on_gpu() ? cuda::run_on_device(plan, part, x) : plan.run(x, workspace.data(), workspace.size());
          ASSERT_TRUE(ran) << ran.why;
        }
        EXPECT_LT(rms_ratio(whole, halves.final_state, whole.final_state, false), 1e-5);
        EXPECT_LT(rms_ratio(whole, halves.final_z, whole.final_z, false), 1e-5);
        EXPECT_LT(rms_ratio(whole, halves.o, whole.o, true), same_within(dtype));
      },
      kLinearForward);
}

// With this many tokens and two segments, each segment is summed in two parts.
constexpr std::int64_t kTwoParts = 4096;

/// A sequence that is cut into segments gives what the uncut one gives. (The 16-bit copies of a state are rounded at
/// other places.)
void expect_segments_agree(const Path& path, DType dtype, Pass pass, const LinearCase& row, int segments) {
  SCOPED_TRACE(segments);
  LinearInstance uncut = make_linear_instance(row, dtype, 12), cut = make_linear_instance(row, dtype, 12);
  uncut.segments = 1;
  cut.segments = segments;
  Target target = path.target();
  target.segments = segments;
  Plan plan;
  ASSERT_TRUE(Plan::make(cut.problem, pass, target, &plan));
  if (data_of(plan)->backend != Backend::ref) {
    EXPECT_EQ(data_of(plan)->linear().segments, segments);
  }  // ref does not cut sequences into segments.
  if (cut.problem.s == kTwoParts && data_of(plan)->backend == Backend::sm90) {
    EXPECT_EQ(data_of(plan)->linear().parts, 2);
  }
  ASSERT_TRUE(run(path.target(), pass, &uncut));
  const Status status = run(path.target(), pass, &cut);
  ASSERT_TRUE(status) << status.why;
  const double most = same_within(dtype);
  if (pass == Pass::forward) {
    EXPECT_LT(rms_ratio(cut, cut.o, uncut.o, true), most);
    EXPECT_LT(rms_ratio(cut, cut.final_state, uncut.final_state, false), 1e-5);
    EXPECT_LT(rms_ratio(cut, cut.final_z, uncut.final_z, false), 1e-5);
    return;
  }
  EXPECT_LT(rms_ratio(cut, cut.grad_q, uncut.grad_q, true), most);
  EXPECT_LT(rms_ratio(cut, cut.grad_k, uncut.grad_k, true), most);
  EXPECT_LT(rms_ratio(cut, cut.grad_v, uncut.grad_v, true), most);
  if (uncut.problem.decay != Decay::none) { EXPECT_LT(rms_ratio(cut, cut.grad_decay, uncut.grad_decay, true), most); }
  EXPECT_LT(rms_ratio(cut, cut.grad_initial_state, uncut.grad_initial_state, false), most);
}
void segments_on_and_off(Pass pass, const char* operation) {
  on_every_path(
      [&](const Path& path, DType dtype) {
        const LinearCase all = LinearCase{"x", 1, 1500, 1, 2, 64, 64}.states().decay(Decay::token).elu().normalise();
        const LinearCase plain = LinearCase{"x", 1, 1500, 2, 2, 64, 128}.states();
        expect_segments_agree(path, dtype, pass, all, 4);
        if (!path.on_gpu()) return;
        // These run on other variants. From 9 parts on the parts are added in groups, and two segments of 2048 tokens
        // are summed in parts.
        for (const int segments : {4, 12, 24}) expect_segments_agree(path, dtype, pass, plain, segments);
        expect_segments_agree(path, dtype, pass, LinearCase{"x", 1, 1500, 1, 1, 64, 64}.states(), 12);
        expect_segments_agree(path, dtype, pass, LinearCase{"x", 1, kTwoParts, 1, 1, 64, 64}.states(), 2);
        if (pass == Pass::forward)
          expect_segments_agree(path, dtype, pass, LinearCase{"x", 1, 1500, 2, 2, 64, 128}.in_place(), 5);
      },
      operation);
}
TEST(LinearLaws, SegmentsOnAndOffForward) { segments_on_and_off(Pass::forward, kLinearForward); }
TEST(LinearLaws, SegmentsOnAndOffBackward) { segments_on_and_off(Pass::backward, kLinearBackward); }

/// Runs of one plan give the same bits each time.
void expect_equal_bits(const Path& path, DType dtype, Pass pass, const LinearCase& row) {
  LinearInstance first = make_linear_instance(row, dtype, 13), again = make_linear_instance(row, dtype, 13);
  if (row.initial_) first.segments = again.segments = 3;
  ASSERT_TRUE(run(path.target(), pass, &first));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(run(path.target(), pass, &again));
    for (std::size_t t = 0; t < first.tensors().size(); ++t) {
      const HostTensor &a = *first.tensors()[t], &b = *again.tensors()[t];
      ASSERT_EQ(a.memory_bytes(), b.memory_bytes());
      if (a.memory_bytes() > 0) { ASSERT_EQ(std::memcmp(a.memory(), b.memory(), a.memory_bytes()), 0); }
    }
  }
}
void equal_bits(Pass pass, const char* operation) {
  on_every_path(
      [&](const Path& path, DType dtype) {
        expect_equal_bits(path, dtype, pass,
                          LinearCase{"x", 2, 500, 2, 4, 64, 64}.states().decay(Decay::head).elu().normalise());
        if (!path.on_gpu()) return;
        expect_equal_bits(path, dtype, pass, LinearCase{"x", 2, 500, 2, 2, 64, 64}.states());
        if (dtype == DType::f32) expect_equal_bits(path, dtype, pass, LinearCase{"x", 2, 300, 32, 32, 128, 128});
      },
      operation);
}
TEST(LinearLaws, OnePlanGivesTheSameBitsForward) { equal_bits(Pass::forward, kLinearForward); }
TEST(LinearLaws, OnePlanGivesTheSameBitsBackward) { equal_bits(Pass::backward, kLinearBackward); }

/// With AMX, an output of more than 2 MB for each worker that begins on a cache line may be written past the caches.
/// The numbers must be the same.
TEST(LinearLaws, WhereOutputsLieChangesNoBit) {
  const LinearCase rows[] = {{"x", 1, 8205, 4, 4, 32, 32},
                             LinearCase{"packed", 2, 3000, 4, 4, 32, 96}.packed({2999, 1}),
                             LinearCase{"heads_first", 1, 3001, 4, 4, 32, 96}.reverse().layout(Layout::heads_first)};
  on_every_path(
      [&](const Path& path, DType dtype) {
        if (path.on_gpu() || path.target().backend == Backend::ref || dtype != DType::bf16) return;
        for (const LinearCase& row : rows) {
          SCOPED_TRACE(row.name);
          LinearInstance lines = make_linear_instance(row, dtype, 14);
          if (row.d_v > 32) lines.v.set(0, 1500, 1, 5, std::numeric_limits<float>::quiet_NaN());
          LinearInstance odd = lines;
          odd.o = HostTensor(dtype, lines.o.shape(), Layout::odd);
          Target target = path.target();
          target.threads = 1;
          ASSERT_TRUE(run(target, Pass::forward, &lines));
          ASSERT_TRUE(run(target, Pass::forward, &odd));
          std::int64_t differ = 0, numbers = 0;
          lines.o.for_each([&](auto b, auto s, auto h, auto m) {
            const float x = lines.o.get(b, s, h, m), y = odd.o.get(b, s, h, m);
            differ += x != y && !(std::isnan(x) && std::isnan(y));
            numbers += x != 0 && !std::isnan(x);
          });
          EXPECT_EQ(differ, 0);
          EXPECT_GT(numbers, 1'000'000);
        }
      },
      kLinearForward);
}

/// On AMX in f16 the small bf16 parts of this state would be denormal, and only a scale of 1e36 makes the state visible
/// in o. So this product must be done in IEEE arithmetic instead.
TEST(LinearLaws, ATinyInitialState) {
  on_every_path(
      [](const Path& path, DType dtype) {
        if (path.on_gpu()) return;  // 16-bit copies of a state hold even less of it.
        LinearInstance x =
            make_linear_instance(LinearCase{"x", 1, 100, 1, 2, 64, 64}.initial().scale(1e36F), dtype, 15);
        x.k.for_each([&](auto b, auto s, auto h, auto e) { x.k.set(b, s, h, e, 0); });
        x.initial_state.for_each([&](auto b, auto h, auto e, auto m) {
          x.initial_state.set(b, h, e, m, x.initial_state.get(b, h, e, m) * 1e-36F);
        });
        ASSERT_TRUE(run(path.target(), Pass::forward, &x));
        EXPECT_TRUE(matches(x, linear_reference(x, Pass::forward), Pass::forward));
      },
      kLinearForward);
}

}  // namespace
}  // namespace falchion::testing
