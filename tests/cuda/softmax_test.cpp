// tests/cuda/softmax_test.cpp: tests that on Hopper the bits of a row of O do not depend on the rows beside it,
// although a warp decides for all of its rows whether any needs a new maximum (src/gpu/blocks/sm90_softmax.cuh). Packed
// sequences rely on it, because the last warp of one may have rows of the next.
#include <cstdint>
#include <string>

#include "device.hpp"
#include "runtime/runtime.hpp"

namespace falchion::testing {
namespace {

/// Plants keys whose scores rise by `bits` from 64 keys to the next 64, in the direction in which Hopper's kernel goes,
/// for the rows that `rises` names. All other rows have random scores of about 1.
template <class Rises>
void plant(Instance* x, float bits, const Rises& rises) {
  const std::int64_t s_k = x->problem.s_k;
  x->q.for_each([&](auto b, auto i, auto h, auto d) {
    if (d == 0) x->q.set(b, i, h, d, rises(i) ? 1.f : 0.f);
  });
  x->k.for_each([&](auto b, auto j, auto h, auto d) {
    if (d == 0) x->k.set(b, j, h, d, bits * 0.6931472f * static_cast<float>((s_k - 1 - j) / 64));
  });
}

/// Returns the bits of O and LSE in the rows that `counts` names.
template <class Counts>
std::string bits_of(const Instance& x, const Counts& counts) {
  std::string out;
  const auto add = [&out](float value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); };
  x.o.for_each([&](auto b, auto i, auto h, auto d) {
    if (counts(i)) add(x.o.get(b, i, h, d));
  });
  x.lse.for_each([&](auto b, auto h, auto i, auto one) {
    if (counts(i)) add(x.lse.get(b, h, i, one));
  });
  return out;
}

TEST(HopperSoftmax, RowsDoNotDependOnTheRowsBesideThem) {
  if (const cuda::Device device = cuda::current_device(); device.sm != 90) GTEST_SKIP() << "no Hopper";
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const std::int64_t d : {64, 128, 192, 256}) {
      for (const float bits : {5.f, 9.f, 200.f}) {
        SCOPED_TRACE(::testing::Message() << name(dtype) << ", d " << d << ", " << bits << " bits");
        const auto calm = [](std::int64_t i) { return i % 3 != 1; };
        std::string expected;
        for (const bool beside : {false, true}) {
          Instance x = make_instance(Case{"x", 1, 150, 700, 2, 1, d, d}.scale(0.125f), dtype);
          plant(&x, 8 * bits, [&](std::int64_t i) { return beside && !calm(i); });
          OnDevice hopper(Path{Backend::sm90, ""}, &x);
          ASSERT_OK(hopper.status());
          ASSERT_OK(hopper.run());
          ASSERT_OK(hopper.download());
          if (!beside) expected = bits_of(x, calm);
          EXPECT_TRUE(bits_of(x, calm) == expected) << (beside ? "beside rows that rise" : "");
        }
      }
    }
  }
}

}  // namespace
}  // namespace falchion::testing
