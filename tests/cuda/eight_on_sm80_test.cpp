// tests/cuda/eight_on_sm80_test.cpp: attention of q and k of 8 bits on sm80's kind eight, in every type and at every
// head dim, and in its place where Hopper's kernels cannot move the operands. The contract's rules run on it, too:
// tests/contract_eight_test.cpp.
#include <cstdint>
#include <string>

#include "eight.hpp"

namespace falchion::testing {
namespace {

const Path kSm80{Backend::sm80, ""};

class EightOnSm80 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = kSm80.why_not(); !why.empty()) GTEST_SKIP() << why;
  }
};

void expect_right(Instance* x) { expect_right_on(kSm80, VariantKind::eight, x); }

/// f(d, types) of each.
template <class F>
void in_each_form(const F& f) {
  for (const std::int64_t d : {64, 128, 256}) {
    for (const EightTypes& types : kEightTypes) {
      SCOPED_TRACE(text("d ", d, ", ", name(types)));
      f(d, types);
    }
  }
}

TEST_F(EightOnSm80, UnderEachFeature) {
  in_each_form([](std::int64_t d, const EightTypes& types) {
    const Case cases[] = {Case{"full", 1, 150, 300, 2, 1, d, d},
                          Case{"causal", 1, 300, 300, 2, 1, d, d}.causal(),
                          Case{"window", 1, 400, 400, 1, 1, d, d}.window(150, 20),
                          Case{"softcap", 1, 200, 300, 2, 1, d, d}.causal().softcap(2.F),
                          Case{"one row", 2, 1, 700, 8, 2, d, d},
                          Case{"one key", 2, 70, 1, 2, 2, d, d},
                          Case{"narrow", 1, 200, 260, 1, 1, d - 16, d - 32}.causal(),
                          Case{"odd", 1, 70, 140, 2, 1, d - 3, d - 7}.causal().layout(Layout::odd),
                          Case{"sinks", 1, 150, 300, 2, 2, d, d}.sinks(),
                          Case{"split", 1, 4, 9000, 2, 1, d, d},
                          Case{"packed", 4, 200, 400, 2, 1, d, d}.packed({3, 200, 0, 129}, {130, 400, 5, 257}).causal(),
                          Case{"used", 3, 150, 400, 2, 1, d, d}.used_k({0, 129, 400})};
    for (const Case& row : cases) {
      SCOPED_TRACE(row.name);
      Instance x = make_eight(row, types, Shares::token);
      expect_right(&x);
    }
  });
}

TEST_F(EightOnSm80, ScalesOfEachKindAndPartsOfTheKeys) {
  in_each_form([](std::int64_t d, const EightTypes& types) {
    for (const Shares shares : kAllShares) {
      SCOPED_TRACE(static_cast<int>(shares));
      Instance x = make_eight(Case{"parts", 1, 70, 1000, 2, 1, d, d}.causal(), types, shares);
      x.problem.split_keys = 192;
      expect_right(&x);
    }
  });
}

/// The largest sums of int8, exact: all numbers are -128, or 127 against -128.
TEST_F(EightOnSm80, LargestSums) {
  in_each_form([](std::int64_t d, const EightTypes& types) {
    if (types.q != DType::i8) return;
    Instance x = make_eight(Case{"x", 1, 130, 300, 1, 1, d, d}, types, Shares::no);
    x.problem.score.scale = 1.F / 2048;
    x.q.for_each([&](auto b, auto s, auto h, auto c) { x.q.set(b, s, h, c, s % 2 == 0 ? -128.F : 127.F); });
    x.k.for_each([&](auto b, auto s, auto h, auto c) { x.k.set(b, s, h, c, s % 3 == 0 ? -128.F : 127.F); });
    expect_right(&x);
  });
}

/// A plan for Hopper's kernels has this one beside it, whether or not the back end was named. Rows that begin anywhere
/// are copied byte by byte.
TEST_F(EightOnSm80, TakesOperandsThatHopperCannotMove) {
  if (const std::string why = kHopper.why_not(); !why.empty()) GTEST_SKIP() << why;
  for (const Path& path : {Path{Backend::best, ""}, kHopper}) {
    for (const EightTypes& types : kEightTypes) {
      SCOPED_TRACE(text(path.name(), ", ", name(types)));
      Instance x = make_eight(Case{"x", 2, 70, 300, 4, 2, 64, 64}.layout(Layout::odd), types, Shares::token);
      OnDevice device(path, &x);
      ASSERT_OK(device.status());
      ASSERT_EQ(data_of(device.plan())->variant->backend, Backend::sm90);
      ASSERT_OK(device.upload());
      ASSERT_OK(device.run());
      ASSERT_OK(device.download());
      EXPECT_TRUE(matches(x, Reference(x)));
    }
  }
}

}  // namespace
}  // namespace falchion::testing
