// tests/contract_test.cpp: one test for each line of docs/contract.md about numbers, on every path of this machine.
// Each test plants such numbers and expects what the definition says. (ref_test.cpp tests the definition itself, and
// contract_memory_test.cpp the lines about sizes, memory and refusals.)
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "policy/dropout.hpp"
#include "support/contract.hpp"

namespace falchion::testing {
namespace {

// ---- rows without keys ----------------------------------------------------------------------------------------------

TEST(Contract, RowThatSeesNoKey) {
  planted(Case{"x", 1, 90, 50, 2, 1, 40, 40}.causal().row_max(), nothing, [](const Instance& x) {
    for (std::int64_t i = 0; i < 40; ++i) expect_empty(x, 0, i);
  });
  planted(
      Case{"x", 1, 40, 70, 2, 2, 32, 32}.mask().row_max(),
      [](Instance& x) {
        for (std::int64_t j = 0; j < 70; ++j) x.mask.set(0, 0, 11, j, 0);
      },
      [](const Instance& x) { expect_empty(x, 0, 11); });
}

TEST(Contract, NoKeysAtAll) {
  planted(Case{"x", 2, 5, 0, 2, 1, 16, 16}.row_max(), nothing, [](const Instance& x) {
    for (std::int64_t i = 0; i < 5; ++i) {
      expect_empty(x, 0, i);
      expect_empty(x, 1, i);
    }
  });
  planted(Case{"x", 3, 5, 40, 2, 1, 16, 16}.row_max().used_k({7, 0, 40}), nothing, [](const Instance& x) {
    for (std::int64_t i = 0; i < 5; ++i) expect_empty(x, 1, i);
  });
  planted(Case{"x", 2, 50, 40, 2, 1, 16, 16}.row_max().used_k({0, 0}), nothing, [](const Instance& x) {
    for (std::int64_t i = 0; i < 50; ++i) {
      expect_empty(x, 0, i);
      expect_empty(x, 1, i);
    }
  });
  planted(Case{"x", 2, 6, 4, 2, 1, 16, 16}.row_max().packed({5, 2}, {4, 0}), nothing, [](const Instance& x) {
    expect_empty(x, 0, 5);
    expect_empty(x, 0, 6);
  });
}

TEST(Contract, EmptyProblemsAreLegal) {
  planted(Case{"x", 0, 5, 7, 2, 2, 16, 16}, nothing, agreed);
  planted(Case{"x", 2, 0, 7, 2, 2, 16, 16}, nothing, agreed);
  planted(Case{"x", 2, 5, 7, 0, 0, 16, 16}, nothing, agreed);
  planted(Case{"x", 2, 5, 7, 0, 3, 16, 16}, nothing, agreed);
  Attention a = small_problem();
  a.h_k = 0;
  EXPECT_EQ(make(a).code, Code::invalid);
  EXPECT_EQ(make(a).why, "h_k = 0 with h_q = 2: query heads need a K/V head");
}

// ---- NaN and Inf ----------------------------------------------------------------------------------------------------

TEST(Contract, NanInOwnData) {
  planted(
      Case{"x", 1, 40, 40, 2, 2, 32, 32}.causal(),
      [](Instance& x) {
        x.k.set(0, 20, 0, 3, kNan);
        x.q.set(0, 5, 1, 0, kNan);
      },
      [](const Instance& x) {
        for (std::int64_t i = 0; i < 40; ++i) {
          EXPECT_TRUE(row_has(x, 0, i, 0, i >= 20 ? is_nan : is_finite)) << i;
          EXPECT_EQ(std::isnan(x.lse.get(0, 0, i, 0)), i >= 20) << i;
          EXPECT_TRUE(row_has(x, 0, i, 1, i == 5 ? is_nan : is_finite)) << i;
          EXPECT_EQ(std::isnan(x.lse.get(0, 1, i, 0)), i == 5) << i;
        }
      });
}

TEST(Contract, NanInOwnDataOfADecodeStep) {
  planted(
      Case{"x", 1, 1, 700, 4, 2, 64, 64}, [](Instance& x) { x.k.set(0, 650, 1, 3, kNan); },
      [](const Instance& x) {
        for (std::int64_t h = 0; h < 4; ++h) EXPECT_TRUE(row_has(x, 0, 0, h, h >= 2 ? is_nan : is_finite)) << h;
      });
}

/// Dropout of everything makes O 0, but not of a row that is NaN: that row stays NaN.
TEST(Contract, ANanRowOfWhichAllIsDropped) {
  const auto check = [](const Instance& x) {
    const std::int64_t row = x.problem.s_q / 2;
    x.o.for_each([&](auto, auto i, auto h, auto d) {
      const float value = x.o.get(0, i, h, d);
      EXPECT_TRUE(i == row && h == 1 ? std::isnan(value) : value == 0) << i << " " << h << ": " << value;
    });
    for (std::int64_t i = 0; i < x.problem.s_q; ++i) EXPECT_EQ(std::isnan(x.lse.get(0, 1, i, 0)), i == row) << i;
  };
  for (const Case& row : {Case{"x", 1, 40, 90, 2, 1, 32, 32}, Case{"x", 1, 1, 700, 2, 1, 64, 64},
                          Case{"x", 1, 130, 130, 2, 2, 128, 128}.causal()}) {
    planted(
        Case(row).dropout(1), [](Instance& x) { x.q.set(0, x.problem.s_q / 2, 1, 3, kNan); }, check);
  }
}

TEST(Contract, InfInVisibleData) {
  const auto plant = [](Instance& x) {
    x.k.set(0, 3, 0, 1, kInf);  // The scores are +inf or -inf, by the sign of q.
    x.k.set(0, 60, 0, 2, -kInf);
    x.v.set(0, 30, 0, 5, kInf);  // This makes a column of O infinite.
    x.v.set(0, 31, 0, 6, -kInf);
    x.v.set(0, 32, 0, 6, kInf);  // This makes inf - inf.
  };
  planted(Case{"x", 1, 50, 90, 2, 1, 40, 40}, plant, agreed);
  planted(Case{"x", 1, 90, 90, 2, 1, 40, 40}.causal(), plant, agreed);
  planted(Case{"x", 1, 1, 90, 2, 1, 40, 40}, plant, agreed);
  planted(Case{"x", 1, 1, 3000, 2, 1, 40, 40}, plant, agreed);
}

TEST(Contract, NegativeInfiniteScoresDoNotMakeNan) {
  // All of q is above 0, so that K = -inf gives a score of -inf.
  const auto plant = [](Instance& x) {
    x.q.for_each([&](auto b, auto s, auto h, auto d) { x.q.set(b, s, h, d, std::abs(x.q.get(b, s, h, d)) + 0.1f); });
    for (std::int64_t j = 0; j < x.problem.s_k; ++j) {
      if (j % 7 != 3) set_row(&x.k, 0, j, 0, -kInf);
    }
  };
  const auto check = [](const Instance& x) {
    for (std::int64_t i = 0; i < x.problem.s_q; ++i) {
      EXPECT_TRUE(row_has(x, 0, i, 0, is_finite)) << i;
      EXPECT_TRUE(std::isfinite(x.lse.get(0, 0, i, 0))) << i;
    }
  };
  planted(Case{"x", 1, 40, 200, 1, 1, 32, 32}, plant, check);
  planted(Case{"x", 1, 1, 200, 1, 1, 32, 32}, plant, check);
  const auto plant_all = [](Instance& x) {
    x.q.for_each([&](auto b, auto s, auto h, auto d) { x.q.set(b, s, h, d, 1); });
    x.k.for_each([&](auto b, auto s, auto h, auto d) { x.k.set(b, s, h, d, -kInf); });
  };
  planted(Case{"x", 1, 40, 40, 1, 1, 32, 32}, plant_all, [](const Instance& x) { expect_empty(x, 0, 7); });
  // The sum that such a row has collected may be NaN, because a probability of 0 was multiplied by a NaN of V. The
  // kernel must leave that sum out and not multiply it by 0.
  const auto plant_v_too = [&](Instance& x) {
    plant_all(x);
    x.v.for_each([&](auto b, auto s, auto h, auto d) { x.v.set(b, s, h, d, d % 2 == 0 ? kNan : kInf); });
  };
  for (const std::int64_t s_q : {1, 40})
    planted(Case{"x", 1, s_q, 40, 1, 1, 32, 32}, plant_v_too, [](const Instance& x) { expect_empty(x, 0, 0); });
}

/// The rows below 37 must not see key 37, and the mask forbids it to row 50 alone. Other rows that see it share their
/// tiles.
TEST(Contract, NanInMaskedK) {
  for (const float bad : {kNan, kInf}) {
    planted(
        Case{"x", 1, 64, 64, 2, 1, 32, 32}.causal(), [bad](Instance& x) { set_row(&x.k, 0, 37, 0, bad); },
        [](const Instance& x) {
          for (std::int64_t i = 0; i < 37; ++i) EXPECT_TRUE(row_has(x, 0, i, 0, is_finite)) << i;
        });
    planted(
        Case{"x", 1, 64, 64, 2, 1, 32, 32}.mask(),
        [bad](Instance& x) {
          set_row(&x.k, 0, 37, 0, bad);
          x.mask.set(0, 0, 50, 37, 0);
        },
        [](const Instance& x) { EXPECT_TRUE(row_has(x, 0, 50, 1, is_finite)); });
    planted(
        Case{"x", 1, 2, 300, 2, 1, 32, 32}.mask(),
        [bad](Instance& x) {
          set_row(&x.k, 0, 137, 0, bad);
          x.mask.set(0, 0, 1, 137, 0);
        },
        [](const Instance& x) { EXPECT_TRUE(row_has(x, 0, 1, 1, is_finite)); });
  }
}

TEST(Contract, NanInMaskedV) {
  for (const float bad : {kNan, -kInf}) {
    planted(
        Case{"x", 1, 64, 64, 2, 1, 32, 32}.causal(), [bad](Instance& x) { set_row(&x.v, 0, 37, 0, bad); },
        [](const Instance& x) {
          for (std::int64_t i = 0; i < 37; ++i) EXPECT_TRUE(row_is_clean(x, 0, i, 0)) << i;
          for (std::int64_t i = 37; i < 64; ++i) EXPECT_FALSE(row_has(x, 0, i, 0, is_finite)) << i;
          for (std::int64_t i = 0; i < 64; ++i) EXPECT_TRUE(std::isfinite(x.lse.get(0, 0, i, 0))) << i;
        });
    planted(
        Case{"x", 1, 64, 64, 2, 1, 32, 32}.mask(),
        [bad](Instance& x) {
          set_row(&x.v, 0, 37, 0, bad);
          x.mask.set(0, 0, 50, 37, 0);
        },
        [](const Instance& x) { EXPECT_TRUE(row_is_clean(x, 0, 50, 1)); });
    planted(
        Case{"x", 1, 2, 300, 2, 1, 32, 32}.bias(Case::Bias::f32),
        [bad](Instance& x) {
          set_row(&x.v, 0, 137, 0, bad);
          for (std::int64_t h = 0; h < 2; ++h) x.bias.set(0, h, 1, 137, -kInf);
        },
        [](const Instance& x) { EXPECT_TRUE(row_is_clean(x, 0, 1, 1)); });
  }
}

/// make_instance fills with NaN whatever lies past a length, between rows or after the total.
TEST(Contract, NanBeyondLengths) {
  const auto check = [](const Instance& x) {
    for (std::int64_t b = 0; b < x.problem.b; ++b) {
      const Instance::Rows rows = x.q_rows(b);
      for (std::int64_t i = 0; i < rows.length; ++i) EXPECT_TRUE(row_has(x, rows.batch, rows.begin + i, 0, is_finite));
    }
  };
  planted(Case{"x", 2, 40, 140, 2, 1, 32, 40}.used_k({33, 129}).layout(Layout::gaps), nothing, check);
  planted(Case{"x", 2, 1, 300, 2, 1, 32, 40}.used_k({33, 129}).layout(Layout::odd), nothing, check);
  planted(Case{"x", 3, 40, 140, 2, 1, 32, 40}.packed({40, 1, 9}, {140, 30, 5}), nothing, check);
}

TEST(Contract, NegativeInfinityInABiasMasks) {
  for (const bool in_v : {false, true}) {
    planted(
        Case{"x", 1, 40, 40, 2, 2, 32, 32}.bias(Case::Bias::same),
        [in_v](Instance& x) {
          for (std::int64_t h = 0; h < 2; ++h) {
            for (std::int64_t i = 0; i < 40; ++i) x.bias.set(0, h, i, 9, -kInf);
            for (std::int64_t j = 0; j < 40; ++j) x.bias.set(0, h, 13, j, -kInf);
            set_row(&x.k, 0, 9, h, kNan);
            if (in_v) set_row(&x.v, 0, 9, h, kNan);
          }
        },
        [in_v](const Instance& x) {
          for (std::int64_t i = 0; i < 40; ++i) EXPECT_TRUE(row_is_clean(x, 0, i, 0)) << i;
          if (!in_v || !x.shares_tiles) expect_empty(x, 0, 13);
        });
  }
}

TEST(Contract, OneElementOfABiasOrAMaskForAnAxis) {
  on_every_path([](const Path& path, DType dtype) {
    for (std::size_t axis = 0; axis < 4; ++axis) {
      Instance whole = make_instance(Case{"x", 2, 40, 70, 2, 1, 32, 32}.bias(Case::Bias::f32).mask(), dtype);
      Instance one = make_instance(Case{"x", 2, 40, 70, 2, 1, 32, 32}.bias(Case::Bias::f32).mask(), dtype);
      for (HostTensor Instance::*tensor : {&Instance::bias, &Instance::mask}) {
        HostTensor& full = whole.*tensor;
        Shape shape = full.view().shape;
        shape[axis] = 1;
        HostTensor& small = one.*tensor = HostTensor(full.view().dtype, shape);
        full.for_each([&](auto b, auto h, auto i, auto j) {
          std::array<std::int64_t, 4> at{b, h, i, j};
          at[axis] = 0;
          if (at == std::array<std::int64_t, 4>{b, h, i, j}) small.set(b, h, i, j, full.get(b, h, i, j));
          full.set(b, h, i, j, small.get(at[0], at[1], at[2], at[3]));
        });
      }
      ASSERT_TRUE(run(path, &whole) && run(path, &one));
      whole.o.for_each([&](auto b, auto i, auto h, auto d) {
        ASSERT_EQ(whole.o.get(b, i, h, d), one.o.get(b, i, h, d))
            << "axis " << axis << " at " << b << " " << i << " " << h;
      });
    }
  });
}

// ---- who sees whom --------------------------------------------------------------------------------------------------

TEST(Contract, MoreQueriesThanKeysCausal) {
  planted(Case{"x", 1, 70, 30, 1, 1, 32, 32}.causal(), nothing, [](const Instance& x) {
    for (std::int64_t i = 0; i < 40; ++i) expect_empty(x, 0, i);
    EXPECT_FLOAT_EQ(x.o.get(0, 40, 0, 5), x.v.get(0, 0, 0, 5));  // The first row that sees a key sees only one.
  });
}

TEST(Contract, OneCausalQuery) {
  planted(Case{"x", 1, 1, 90, 2, 2, 32, 32}.causal(Align::top_left), nothing, [](const Instance& x) {
    // This row sees key 0 alone.
    for (std::int64_t d = 0; d < 32; ++d) EXPECT_FLOAT_EQ(x.o.get(0, 0, 1, d), x.v.get(0, 0, 1, d));
  });
  // Aligned to the bottom right, the row sees all keys.
  on_every_path([](const Path& path, DType dtype) {
    Instance causal = make_instance(Case{"x", 1, 1, 90, 2, 2, 32, 32}.causal(), dtype);
    Instance full = make_instance(Case{"x", 1, 1, 90, 2, 2, 32, 32}, dtype);
    ASSERT_TRUE(run(path, &causal) && run(path, &full));
    for (std::int64_t d = 0; d < 32; ++d) EXPECT_EQ(causal.o.get(0, 0, 1, d), full.o.get(0, 0, 1, d));
  });
  Attention a = small_problem();
  a.band = {.right = 0};
  EXPECT_EQ(make(a).code, Code::invalid);
  EXPECT_NE(make(a).why.find("band.align is unset"), std::string::npos);
}

TEST(Contract, WindowBounds) {
  planted(Case{"x", 1, 40, 20, 1, 1, 32, 32}.window(0, 0, Align::top_left), nothing, [](const Instance& x) {
    EXPECT_FLOAT_EQ(x.o.get(0, 7, 0, 3), x.v.get(0, 7, 0, 3));
    expect_empty(x, 0, 20);
  });
  planted(Case{"x", 1, 40, 40, 1, 1, 32, 32}.window(std::numeric_limits<std::int64_t>::max(), 1 << 20), nothing,
          agreed);
  Attention a = small_problem();
  a.band = Band::window(-2, 0, Align::bottom_right);
  EXPECT_EQ(make(a).why, "band.left = -2: it must be 0 or more, or unbounded (-1)");
  a.band = Band::window(0, -7, Align::bottom_right);
  EXPECT_EQ(make(a).why, "band.right = -7: it must be 0 or more, or unbounded (-1)");
}

// ---- scores ---------------------------------------------------------------------------------------------------------

TEST(Contract, SoftmaxScale) {
  planted(Case{"x", 1, 40, 70, 2, 2, 64, 64}.scale(-0.2f), nothing, agreed);
  on_every_path([](const Path& path, DType dtype) {  // A scale of 0 means 1/sqrt(d_qk).
    Instance asked = make_instance(Case{"x", 1, 9, 70, 2, 2, 64, 64}, dtype);
    Instance given = make_instance(Case{"x", 1, 9, 70, 2, 2, 64, 64}.scale(0.125f), dtype);
    ASSERT_TRUE(run(path, &asked) && run(path, &given));
    EXPECT_EQ(asked.o.get(0, 8, 1, 63), given.o.get(0, 8, 1, 63));
  });
  Attention a = small_problem();
  for (const float bad : {kNan, kInf, -kInf}) {
    a.score.scale = bad;
    EXPECT_EQ(make(a).code, Code::invalid) << bad;
  }
}

TEST(Contract, Softcap) {
  planted(Case{"x", 1, 80, 70, 2, 1, 64, 64}.softcap(1.5f).causal().row_max(), nothing, [](const Instance& x) {
    expect_empty(x, 0, 3);  // A cap that is applied after the mask would have lifted -inf to -1.5.
  });
  Attention a = small_problem();
  for (const float bad : {kNan, kInf, -1.f}) {
    a.score.softcap = bad;
    EXPECT_EQ(make(a).code, Code::invalid) << bad;
  }
}

/// When V is the identity, O is the thinned matrix of probabilities itself, and its zeros show which elements were
/// dropped.
TEST(Contract, DropoutBitsAreTheSameEverywhere) {
  planted(
      Case{"x", 2, 40, 200, 4, 2, 32, 200}.dropout(0.4f),
      [](Instance& x) { x.v.for_each([&](auto b, auto s, auto h, auto d) { x.v.set(b, s, h, d, s == d ? 1 : 0); }); },
      [](const Instance& x) {
        const DropoutMask mask = DropoutMask::make(x.problem.dropout, x.rng.seed, x.rng.offset);
        x.o.for_each([&](auto b, auto i, auto h, auto j) {
          ASSERT_EQ(x.o.get(b, i, h, j) != 0, mask.keep(0, b * 4 + h, i, j));
        });
      });
  planted(Case{"x", 1, 20, 30, 2, 2, 32, 32}.dropout(1.f), nothing, [](const Instance& x) {
    x.o.for_each([&](auto b, auto i, auto h, auto d) { ASSERT_EQ(x.o.get(b, i, h, d), 0); });
    EXPECT_TRUE(std::isfinite(x.lse.get(0, 0, 0, 0)));
  });
  Attention a = small_problem();
  for (const float bad : {kNan, -0.1f, 1.1f}) {
    a.dropout = bad;
    EXPECT_EQ(make(a).code, Code::invalid) << bad;
  }
}

TEST(Contract, LseIsANaturalLogarithmAndOptional) {
  planted(
      Case{"x", 1, 3, 5, 1, 1, 16, 16},
      [](Instance& x) { x.k.for_each([&](auto b, auto s, auto h, auto d) { x.k.set(b, s, h, d, 0); }); },
      [](const Instance& x) { EXPECT_NEAR(x.lse.get(0, 0, 2, 0), std::log(5.0), 1e-4); });
  planted(Case{"x", 1, 40, 50, 1, 1, 16, 16}.no_lse(), nothing, agreed);
}

}  // namespace
}  // namespace falchion::testing
