// tests/contract_eight_test.cpp: attention of q of 8 bits: each rule of docs/contract.md, on every path that takes it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "support/contract.hpp"
#include "support/eight.hpp"

namespace falchion::testing {
namespace {

/// Those of 16-bit types, and of the CPU's levels that of scores of i8.
std::vector<Path> eight_paths() {
  std::vector<Path> out = usable_paths();
#if !defined(FALCHION_TEST_CUDA)
  const Path vnni{Backend::cpu, "vnni"};
  if (vnni.has(DType::i8) && vnni.why_not().empty()) out.push_back(vnni);
#endif
  return out;
}

/// f(path, types) for each path and all types of which the CPU has a kernel: it has the type of q or of o.
template <class F>
void on_eight_paths(const F& f) {
  for (const Path& path : eight_paths()) {
    for (const EightTypes& types : kEightTypes) {
      if (path.backend == Backend::cpu && !path.has(types.q) && !path.has(types.o)) continue;
      SCOPED_TRACE(text(path.name(), " ", name(types)));
      f(path, types);
    }
  }
}

/// Whether the instance ran. A GPU may refuse what its kernels do not take; ref takes all of it.
bool ran(const Path& path, Instance* x) {
  const Status status = run(path, x);
  if (path.on_gpu() && status.code == Code::unsupported) return false;
  EXPECT_TRUE(status) << status.why;
  return static_cast<bool>(status);
}

template <class Plant, class Check>
void planted_eight(const Case& row, Shares shares, const Plant& plant, const Check& check) {
  on_eight_paths([&](const Path& path, const EightTypes& types) {
    Instance x = make_eight(row, types, shares, 7);
    plant(x);
    if (!ran(path, &x)) return;
    EXPECT_TRUE(matches(x, Reference(x)));
    check(x);
  });
}
void same_as_defined(const Case& row, std::initializer_list<Shares> all = {Shares::token}) {
  for (const Shares shares : all) {
    SCOPED_TRACE(text("scales ", static_cast<int>(shares)));
    planted_eight(row, shares, nothing, agreed);
  }
}

Case rows(std::int64_t s_q = 33, std::int64_t s_k = 300, std::int64_t d = 64) {
  return Case{"eight", 2, s_q, s_k, 4, 2, d, d};
}
Case packed_rows() {
  return Case{"eight", 4, 40, 299, 4, 2, 64, 64, {.lse = true}, Case::Bias::none, {3, 40, 0, 9}, {130, 299, 5, 0}};
}

TEST(EightContract, ScalesOfATensorAHeadATokenAndABlock) {
  const std::initializer_list<Shares> all = {Shares::no, Shares::tensor, Shares::head, Shares::token};
  same_as_defined(rows(), all);
  same_as_defined(rows(1).causal(), all);
  same_as_defined(packed_rows().causal(), all);
}

TEST(EightContract, UnderEachFeature) {
  same_as_defined(rows().window(40, 0));
  same_as_defined(rows().window(40, 9, Align::top_left));
  same_as_defined(rows().causal(Align::at, 100));
  same_as_defined(rows().softcap(2.F).causal());
  same_as_defined(rows().scale(-0.2F));
  same_as_defined(rows().sinks());
  same_as_defined(packed_rows().sinks().softcap(2.F), {Shares::head});
  same_as_defined(rows().used_q({33, 7}).causal());
  same_as_defined(rows().used_k({0, 129}).causal());
  same_as_defined(packed_rows().used_q({3, 20, 0, 9}).used_k({1, 200, 5, 0}));
  same_as_defined(rows(5, 129, 37));
  same_as_defined(rows(130, 130, 256).causal().no_lse());
  same_as_defined(Case{"eight", 1, 9, 200, 6, 1, 128, 48}.causal());
  same_as_defined(Case{"eight", 1, 9, 200, 3, 3, 64, 64}.layout(Layout::heads_first));
  same_as_defined(Case{"eight", 1, 9, 200, 3, 3, 60, 30}.layout(Layout::odd));
  same_as_defined(Case{"eight", 1, 9, 200, 3, 3, 64, 64}.layout(Layout::reversed));
  same_as_defined(Case{"eight", 1, 1, 4000, 2, 1, 64, 64}, {Shares::token, Shares::head});
}

TEST(EightContract, PartsOfTheKeys) {
  planted_eight(
      rows(), Shares::token, [](Instance& x) { x.problem.split_keys = 128; }, agreed);
}

/// A row without keys needs no scale.
TEST(EightContract, ARowThatSeesNoKey) {
  planted_eight(
      rows(4, 2).causal(), Shares::token,
      [](Instance& x) {
        for (std::int64_t h = 0; h < 4; ++h) x.q_scale.set(1, 0, h, 0, kNan);
      },
      [](const Instance& x) { expect_empty(x, 1, 0); });
}

TEST(EightContract, AScaleOfZeroMakesScoresOfZero) {
  planted_eight(
      rows(5, 140).no_lse(), Shares::token, [](Instance& x) { x.q_scale.set(1, 3, 2, 0, 0); },
      [](const Instance& x) {
        double mean = 0, scale = 1;
        for (std::int64_t j = 0; j < 140; ++j) mean += double{x.v.get(1, j, 1, 9)} / 140;
        if (x.problem.v_scale) scale = x.v_scale.get(1, 0, 1, 0);
        EXPECT_NEAR(x.o.get(1, 3, 2, 9), mean * scale, 0.01 * std::abs(mean * scale) + 1e-3);
      });
  planted_eight(
      rows(5, 300), Shares::token, [](Instance& x) { x.k_scale.set(1, 1, 1, 0, 0); }, agreed);
  planted_eight(
      rows(5, 300), Shares::token, [](Instance& x) { x.k_scale.set(1, 1, 1, 0, -0.F); }, agreed);
  planted_eight(
      rows(5, 300), Shares::head,
      [](Instance& x) {
        if (x.problem.v_scale) x.v_scale.set(1, 0, 1, 0, 0);
      },
      [](const Instance& x) {
        if (x.problem.v_scale) { EXPECT_EQ(x.o.get(1, 4, 2, 9), 0); }
      });
}

TEST(EightContract, AScaleThatIsNegativeNanOrInfiniteMakesItsRowsNan) {
  for (const float scale : {-1.F, -1e-30F, kNan, kInf, -kInf}) {
    SCOPED_TRACE(scale);
    planted_eight(
        rows(5, 300), Shares::token, [&](Instance& x) { x.q_scale.set(1, 3, 2, 0, scale); },
        [](const Instance& x) {
          EXPECT_TRUE(row_has(x, 1, 3, 2, is_nan) && is_nan(x.lse.get(1, 2, 3, 0)));
          EXPECT_TRUE(row_has(x, 1, 3, 1, is_finite) && row_has(x, 1, 2, 2, is_finite));
        });
    // Of keys 128 to 255 of one head: rows 0 and 1 do not see them.
    planted_eight(
        rows(5, 300).causal(Align::at, 126), Shares::token, [&](Instance& x) { x.k_scale.set(0, 1, 0, 0, scale); },
        [](const Instance& x) {
          for (std::int64_t i = 0; i < 5; ++i)
            for (std::int64_t h = 0; h < 4; ++h) {
              const bool nan = i >= 2 && h < 2;
              EXPECT_TRUE(row_has(x, 0, i, h, nan ? is_nan : is_finite)) << i << " " << h;
              EXPECT_EQ(is_nan(x.lse.get(0, h, i, 0)), nan);
            }
        });
  }
}

/// V is positive, so that O is not near 0, where an infinite factor would show each rounding.
TEST(EightContract, AScaleOfVIsAFactor) {
  for (const float scale : {-3.F, 1e-20F, kInf, kNan}) {
    SCOPED_TRACE(scale);
    planted_eight(
        rows(5, 300), Shares::head,
        [&](Instance& x) {
          if (x.problem.v_scale) x.v_scale.set(1, 0, 1, 0, scale);
          x.v.for_each([&](auto b, auto s, auto h, auto d) { x.v.set(b, s, h, d, std::abs(x.v.get(b, s, h, d))); });
        },
        agreed);
  }
}

/// i8 has no NaN; its -128 is a number.
TEST(EightContract, ANanOfQOrKIsInTheRowsThatSeeIt) {
  planted_eight(
      rows(5, 300).causal(Align::at, 200), Shares::head,
      [](Instance& x) {
        x.q.set(1, 1, 3, 5, x.problem.dtype == DType::i8 ? -128.F : kNan);
        x.k.set(0, 203, 1, 7, x.problem.dtype == DType::i8 ? -128.F : kNan);
      },
      [](const Instance& x) {
        const bool has_nan = x.problem.dtype == DType::e4m3;
        for (std::int64_t i = 0; i < 5; ++i) {
          EXPECT_EQ(row_has(x, 0, i, 2, is_nan), has_nan && i >= 3) << i;
          EXPECT_EQ(row_has(x, 0, i, 2, is_finite), !has_nan || i < 3) << i;
          EXPECT_EQ(row_has(x, 1, i, 3, is_nan), has_nan && i == 1) << i;
        }
      });
}

TEST(EightContract, ANanOfVisibleVIsInItsColumn) {
  planted_eight(
      rows(5, 300).causal(Align::at, 200), Shares::head, [](Instance& x) { x.v.set(0, 203, 1, 7, kNan); },
      [](const Instance& x) {
        for (std::int64_t i = 0; i < 5; ++i) {
          if (i >= 3) { EXPECT_TRUE(is_nan(x.o.get(0, i, 2, 7))); }
          if (i < 3) { EXPECT_TRUE(row_is_clean(x, 0, i, 2)); }
          EXPECT_TRUE(is_finite(x.o.get(0, i, 2, 6)) && is_finite(x.lse.get(0, 2, i, 0)));
        }
      });
}

/// All 256 codes, in q, k and v.
TEST(EightContract, EachCodeIsItsNumber) {
  planted_eight(
      Case{"codes", 1, 8, 256, 1, 1, 32, 16}.scale(1e-4F), Shares::no,
      [](Instance& x) {
        const auto each = [](HostTensor& y) {
          if (size_of(y.view().dtype) != 1) return;
          std::uint32_t code = 0;
          y.for_each([&](auto b, auto s, auto h, auto d) {
            auto* bytes = static_cast<std::uint8_t*>(y.view().data);
            const bool nan = y.view().dtype == DType::e4m3 && (code & 0x7FU) == 0x7F;
            bytes[y.offset(b, s, h, d)] = static_cast<std::uint8_t>(nan ? 0 : code);
            code = (code + (d % 2 == 0 ? 1 : 6)) % 256;
          });
        };
        each(x.q);
        each(x.k);
        each(x.v);
      },
      agreed);
}

/// O is divided by the sum of the P that were multiplied, so rounding them is no matter where V is the same.
TEST(EightContract, AConstantVComesBack) {
  for (const std::int64_t s_k : {1, 5, 300, 2000}) {
    SCOPED_TRACE(s_k);
    planted_eight(
        rows(5, s_k).no_lse(), Shares::no,
        [](Instance& x) { x.v.for_each([&](auto b, auto s, auto h, auto d) { x.v.set(b, s, h, d, 1.25F); }); },
        [](const Instance& x) {
          x.o.for_each([&](auto b, auto i, auto h, auto d) {
            const float unit = x.o.view().dtype == DType::bf16 ? 0x1p-7F : 0x1p-10F;
            EXPECT_NEAR(x.o.get(b, i, h, d), 1.25F, x.problem.dtype_v == x.o.view().dtype ? unit : 0x1p-7F);
          });
        });
  }
}

/// Flat rows over many keys, a V of mean 1, and one strong key first or last: what stops an accumulator of few bits.
TEST(EightContract, ManyKeys) {
  for (const int kind : {0, 1, 2}) {
    SCOPED_TRACE(kind);
    planted_eight(
        Case{"many", 1, 2, 8000, 2, 1, 16, 32}.scale(0.125F), Shares::no,
        [&](Instance& x) {
          const float one = x.problem.dtype == DType::i8 ? 8.F : 4.F;
          x.q.for_each([&](auto b, auto s, auto h, auto d) { x.q.set(b, s, h, d, d == 0 ? one : 0); });
          x.k.for_each([&](auto b, auto s, auto h, auto d) {
            const bool strong = (kind == 1 && s == 0) || (kind == 2 && s == 7999);
            x.k.set(b, s, h, d, d == 0 && strong ? 2 * one : 0);
          });
          x.v.for_each([&](auto b, auto s, auto h, auto d) { x.v.set(b, s, h, d, 1 + x.v.get(b, s, h, d) / 4); });
        },
        agreed);
  }
}

TEST(EightContract, LargeScores) {
  for (const float scale : {4.F, -4.F}) planted_eight(rows(33, 300).scale(scale).causal(), Shares::no, nothing, agreed);
}

/// The LSE is that of probabilities that are not rounded. Only on a GPU may a kernel sum the P that it multiplies.
TEST(EightContract, TheLseIsNotRounded) {
  on_eight_paths([&](const Path& path, const EightTypes& types) {
    Instance x = make_eight(rows(5, 3), types, Shares::no, 7);
    x.k.for_each([&](auto b, auto s, auto h, auto d) { x.k.set(b, s, h, d, s == 0 ? x.k.get(b, s, h, d) : 0); });
    if (!ran(path, &x)) return;
    EXPECT_TRUE(matches(x, Reference(x)));
    const double limit = path.on_gpu() && types.v == DType::e4m3 ? 0.085 : 2e-3;
    const float scale = x.problem.score.scale != 0 ? x.problem.score.scale : 0.125F;
    for (std::int64_t i = 0; i < 5; ++i) {
      double dot = 0;
      for (std::int64_t d = 0; d < 64; ++d) dot += double{x.q.get(1, i, 3, d)} * double{x.k.get(1, 0, 1, d)};
      EXPECT_NEAR(x.lse.get(1, 3, i, 0), std::log(std::exp(scale * dot) + 2), limit);
    }
  });
}

}  // namespace
}  // namespace falchion::testing
