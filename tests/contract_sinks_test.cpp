// tests/contract_sinks_test.cpp: attention sinks, as docs/contract.md promises them: one more key without a row of V,
// which is added once, wherever a path puts the parts of a row together.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "support/cache.hpp"
#include "support/contract.hpp"

namespace falchion::testing {
namespace {

/// Shapes of each kind of kernel: tiles of many rows, few rows, keys in parts, and head dims with variants of their
/// own.
std::vector<Case> shapes() {
  return {Case{"rows", 1, 70, 150, 2, 1, 64, 64}.causal(),
          Case{"wide", 1, 40, 90, 2, 1, 256, 256},
          Case{"many", 1, 140, 140, 2, 1, 128, 128}.causal(),
          Case{"alibi", 1, 90, 100, 2, 1, 64, 64}.alibi().softcap(5.F),
          Case{"odd", 1, 33, 70, 2, 2, 37, 20},
          Case{"few", 1, 1, 700, 8, 2, 128, 128},
          Case{"few_rows", 2, 5, 200, 4, 2, 64, 64}.causal(),
          Case{"cut", 1, 40, 1300, 2, 1, 32, 32}.causal(),
          Case{"long", 1, 1, 4000, 2, 1, 64, 64},
          Case{"packed", 3, 60, 90, 2, 1, 64, 64}.packed({60, 1, 33}, {90, 40, 57}).causal()};
}

void set_sinks(Instance* x, float value) {
  x->sinks.for_each([&](auto b, auto, auto h, auto) { x->sinks.set(b, 0, h, 0, value); });
}

/// Calls f(path, dtype, instance with sinks, the same without them), of which neither has run.
template <class F>
void with_and_without(const F& f) {
  for (const Case& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    on_every_path_and_named_hopper([&](const Path& path, DType dtype) {
      Instance with = make_instance(Case(shape).sinks(), dtype, 7), without = make_instance(shape, dtype, 7);
      f(path, dtype, with, without);
    });
  }
}
/// Runs it, but a path of Hopper alone may refuse it.
bool runs(const Path& path, Instance* x) {
  const Status status = run(path, x);
  if (path.backend == Backend::sm90 && status.code == Code::unsupported) return false;
  EXPECT_TRUE(status) << status.why;
  return bool{status};
}

double step_of(DType dtype) { return dtype == DType::f32 ? 2e-5 : dtype == DType::f16 ? 4e-3 : 3e-2; }

/// l + e^sink instead of l: what follows from the result without sinks.
TEST(Sinks, EachAddsItsExponentialToTheSumOfARow) {
  with_and_without([](const Path& path, DType dtype, Instance& with, Instance& without) {
    if (!runs(path, &without) || !runs(path, &with)) return;
    with.lse.for_each([&](auto b, auto h, auto i, auto) {
      const double sink = with.sinks.get(0, 0, h, 0), keys = without.lse.get(b, h, i, 0);
      if (with.lse.is_poison(b, h, i, 0)) return;
      const double all = std::log(std::exp(sink) + std::exp(keys)), share = std::exp(keys - all);
      ASSERT_NEAR(with.lse.get(b, h, i, 0), all, dtype == DType::f32 ? 1e-5 : 4e-3) << b << " " << h << " " << i;
      for (std::int64_t d = 0; d < with.problem.d_v; ++d)
        ASSERT_NEAR(with.o.get(b, i, h, d), share * static_cast<double>(without.o.get(b, i, h, d)), step_of(dtype));
    });
  });
}

TEST(Sinks, OneOfMinusInfinityIsNone) {
  with_and_without([](const Path& path, DType dtype, Instance& with, Instance& without) {
    set_sinks(&with, -kInf);
    if (!runs(path, &without) || !runs(path, &with)) return;
    with.lse.for_each([&](auto b, auto h, auto i, auto) {
      if (with.lse.is_poison(b, h, i, 0)) return;
      const float wanted = without.lse.get(b, h, i, 0), got = with.lse.get(b, h, i, 0);
      if (std::isinf(wanted)) { ASSERT_EQ(got, wanted); }
      if (!std::isinf(wanted)) { ASSERT_NEAR(got, wanted, 4e-6 * std::max(1.F, std::abs(wanted))); }
      for (std::int64_t d = 0; d < with.problem.d_v; ++d)
        ASSERT_NEAR(with.o.get(b, i, h, d), without.o.get(b, i, h, d), step_of(dtype) / 4);
    });
  });
}

/// O = 0 and the LSE is the sink, whatever K and V hold.
TEST(Sinks, OfARowThatSeesNoKey) {
  const auto expect = [](const Instance& x, std::int64_t b, std::int64_t i) {
    for (std::int64_t h = 0; h < x.problem.h_q; ++h) {
      for (std::int64_t d = 0; d < x.problem.d_v; ++d) ASSERT_EQ(x.o.get(b, i, h, d), 0) << "row " << i;
      ASSERT_NEAR(x.lse.get(b, h, i, 0), x.sinks.get(0, 0, h, 0), 1e-6) << "row " << i;
      if (x.problem.row_max) { ASSERT_EQ(x.row_max.get(b, h, i, 0), -kInf) << "row " << i; }
    }
  };
  for (const std::int64_t d : {64, 128, 256}) {
    planted(Case{"causal", 1, 60, 25, 4, 2, d, d}.sinks().causal(), nothing, [&](const Instance& x) {
      for (std::int64_t i = 0; i < 35; ++i) expect(x, 0, i);
    });
    planted(Case{"far", 1, 50, 40, 4, 2, d, d}.sinks().causal(Align::at, -1000), nothing, [&](const Instance& x) {
      for (std::int64_t i = 0; i < 50; ++i) expect(x, 0, i);
    });
    planted(Case{"decode", 3, 1, 700, 4, 2, d, d}.sinks().used_k({0, 700, 0}), nothing, [&](const Instance& x) {
      expect(x, 0, 0);
      expect(x, 2, 0);
    });
    planted(Case{"no_keys", 2, 5, 0, 4, 2, d, d}.sinks(), nothing, [&](const Instance& x) { expect(x, 1, 4); });
  }
  planted(Case{"parts", 2, 20, 1300, 2, 2, 32, 32}.sinks().used_k({0, 1300}), nothing, [&](const Instance& x) {
    for (std::int64_t i = 0; i < 20; ++i) expect(x, 0, i);
  });
  planted(Case{"row_max", 1, 60, 25, 4, 2, 64, 64}.sinks().row_max().causal(), nothing,
          [&](const Instance& x) { expect(x, 0, 3); });
}

/// No exponential overflows, and where the sink takes all the LSE is the sink.
TEST(Sinks, FarFromTheScores) {
  for (const float sink : {-1e30F, 30.F, 95.F, 1e5F}) {
    for (const Case& shape : shapes()) {
      SCOPED_TRACE(text(shape.name, ", sink ", sink));
      planted(
          Case(shape).sinks(), [&](Instance& x) { set_sinks(&x, sink); }, agreed);
    }
  }
}

/// And the scores far from 0, where a sink beside them is one key more.
TEST(Sinks, BesideLargeScores) {
  for (const float height : {-2000.F, 2000.F}) {
    for (const std::int64_t s_q : {1, 60}) {
      SCOPED_TRACE(text("scores near ", height, ", s_q ", s_q));
      planted(
          Case{"large", 1, s_q, 700, 2, 1, 64, 64}.sinks().scale(1),
          [&](Instance& x) {
            x.q.for_each([&](auto b, auto i, auto h, auto d) { x.q.set(b, i, h, d, d == 0 ? 64 : 0); });
            x.k.for_each([&](auto b, auto j, auto h, auto d) { x.k.set(b, j, h, d, d == 0 ? height / 64 : 0); });
            set_sinks(&x, height + 5);
          },
          agreed);
    }
  }
}

/// NaN in V of a key that a row sees stays, also where the sink leaves nothing of that key; an infinity may then be
/// NaN.
TEST(Sinks, NanInVisibleVStaysBesideAnySink) {
  for (const float sink : {0.F, 100.F, 2000.F}) {
    for (const std::int64_t s_q : {1, 30}) {
      SCOPED_TRACE(text("sink ", sink, ", s_q ", s_q));
      planted(
          Case{"nan", 1, s_q, 700, 2, 1, 64, 64}.sinks(),
          [&](Instance& x) {
            set_sinks(&x, sink);
            x.v.set(0, 300, 0, 5, kNan);
            x.v.set(0, 301, 0, 6, kInf);
          },
          [&](const Instance& x) { ASSERT_TRUE(std::isnan(x.o.get(0, 0, 0, 5))); });
    }
  }
}

/// But NaN of a dropped key goes, also where the sink leaves nothing of the row.
TEST(Sinks, DropoutOfEverythingBesideAnySink) {
  for (const float sink : {0.F, 100.F, 2000.F}) {
    for (const std::int64_t s_q : {1, 30}) {
      SCOPED_TRACE(text("sink ", sink, ", s_q ", s_q));
      planted(
          Case{"dropped", 1, s_q, 700, 2, 1, 64, 64}.sinks().dropout(1),
          [&](Instance& x) {
            set_sinks(&x, sink);
            x.v.set(0, 300, 0, 5, kNan);
            x.v.set(0, 301, 0, 6, kInf);
          },
          [&](const Instance& x) {
            for (std::int64_t i = 0; i < s_q; ++i) {
              for (std::int64_t d = 0; d < 64; ++d) ASSERT_EQ(x.o.get(0, i, 1, d), 0) << "row " << i;
            }
          });
    }
  }
}

/// As with a score of +inf there is no softmax. Rows of other heads do not know of it.
TEST(Sinks, OfNanOrInfinity) {
  for (const float sink : {kNan, kInf}) {
    with_and_without([&](const Path& path, DType, Instance& with, Instance&) {
      with.sinks.set(0, 0, 1, 0, sink);
      if (!runs(path, &with)) return;
      EXPECT_TRUE(matches(with, Reference(with)));
      with.lse.for_each([&](auto b, auto h, auto i, auto) {
        if (with.lse.is_poison(b, h, i, 0)) return;
        ASSERT_EQ(std::isnan(with.lse.get(b, h, i, 0)), h == 1);
        ASSERT_EQ(std::isnan(with.o.get(b, i, h, 0)), h == 1);
      });
    });
  }
}

/// With probabilities: what the sink has is missing in their sum.
TEST(Sinks, ProbabilitiesAddUpToOneWithTheSinks) {
  for (const std::int64_t s_q : {2, 40}) {
    planted(Case{"p", 1, s_q, 300, 4, 2, 64, 64}.sinks().probabilities(), nothing, [](const Instance& x) {
      for (std::int64_t h = 0; h < 4; ++h) {
        double sum = std::exp(static_cast<double>(x.sinks.get(0, 0, h, 0)) - x.lse.get(0, h, 1, 0));
        for (std::int64_t j = 0; j < 300; ++j) sum += x.probabilities.get(0, h, 1, j);
        ASSERT_NEAR(sum, 1, 2e-3);
      }
    });
  }
}

/// Parts of the keys in several runs: one of them has the sinks.
TEST(Sinks, AreOnOneSideOfAMerge) {
  on_every_path([](const Path& path, DType dtype) {
    if (dtype != DType::f32) return;  // merge() takes parts in f32
    Instance whole = make_instance(Case{"whole", 2, 6, 90, 2, 2, 32, 32}.sinks(), dtype);
    Instance part[2] = {make_instance(Case{"first", 2, 6, 40, 2, 2, 32, 32}.sinks(), dtype),
                        make_instance(Case{"second", 2, 6, 50, 2, 2, 32, 32}, dtype)};
    for (int p = 0; p < 2; ++p) {
      part[p].q = whole.q;
      part[p].k.for_each([&](auto b, auto s, auto h, auto d) {
        part[p].k.set(b, s, h, d, whole.k.get(b, s + p * 40, h, d));
        part[p].v.set(b, s, h, d, whole.v.get(b, s + p * 40, h, d));
      });
      ASSERT_TRUE(run(path, &part[p]));
    }
    whole.poison_outputs();
    ASSERT_TRUE(merge(part[0].o.view(), part[0].lse.view(), part[1].o.view(), part[1].lse.view(), whole.o.view(),
                      whole.lse.view()));
    EXPECT_TRUE(matches(whole, Reference(whole)));
  });
}

TEST(Sinks, BesideACacheInPages) {
  const std::vector<std::int32_t> used = {0, 1, 63, 64, 65, 300};
  for (const auto& [s_q, d] : {std::pair<std::int64_t, std::int64_t>{1, 64}, {5, 64}, {40, 64}, {1, 256}}) {
    const Case row = Case{"cache", 6, s_q, 300, 2, 1, d, d}.sinks_by_batch().used_k(used).causal();
    SCOPED_TRACE(text("d ", d, ", s_q ", s_q));
    on_every_path([&](const Path& path, DType dtype) {
      const Instance in_rows = make_instance(row, dtype, 5);
      Instance paged = in_pages(in_rows, {16, 2}), packed = with_packed_queries(in_pages(in_rows, {16, 3}));
      expect_decode(path, paged.problem);
      ASSERT_TRUE(run(path, &paged));
      EXPECT_TRUE(matches(paged, Reference(in_rows)));
      ASSERT_TRUE(run(path, &packed));
      EXPECT_TRUE(matches(packed, Reference(packed)));
    });
  }
}

}  // namespace
}  // namespace falchion::testing
