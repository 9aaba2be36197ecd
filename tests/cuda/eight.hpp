// tests/cuda/eight.hpp: what the device tests of the kinds for q of 8 bits share.
#pragma once

#include <cmath>
#include <vector>

#include "api/data_of.hpp"
#include "device.hpp"
#include "plan/plan_data.hpp"
#include "support/compare.hpp"
#include "support/eight.hpp"

namespace falchion::testing {

/// Runs it on the kind, twice with the same bits, and compares it with the definition.
inline void expect_right_on(const Path& path, VariantKind kind, Instance* x) {
  OnDevice device(path, x);
  ASSERT_OK(device.status());
  ASSERT_EQ(data_of(device.plan())->variant->kind, kind);
  const Reference reference(*x);
  std::vector<float> first;
  for (const int round : {0, 1}) {
    ASSERT_OK(device.upload());
    ASSERT_OK(device.spoil_workspace(1));
    ASSERT_OK(device.run());
    ASSERT_OK(device.download());
    if (round == 0) { EXPECT_TRUE(matches(*x, reference)); }
    std::vector<float> o;
    x->o.for_each([&](auto b, auto i, auto h, auto d) { o.push_back(x->o.get(b, i, h, d)); });
    if (round == 0) first = o;
    for (std::size_t n = 0; n < o.size(); ++n)
      ASSERT_TRUE(o[n] == first[n] || (std::isnan(o[n]) && std::isnan(first[n]))) << "element " << n << " of run 2";
  }
}

}  // namespace falchion::testing
