// tests/sm90_maps_test.cpp: the tensor maps that a thread keeps between launches, on the host: one that differs in any
// number is another one, and the oldest goes first.
#include <gtest/gtest.h>

#include <cstring>

#include "blocks/sm90_map_cache.hpp"

namespace falchion::testing {
namespace {

sm90::MapRequest request(int n) {
  sm90::MapRequest out{.type = 1, .rank = 4};
  out.shape = {128, 4, 100, 2, static_cast<std::uint64_t>(n)};
  out.stride = {256, 1024, 102400, 0};
  out.box = {64, 1, 128, 1, 0};
  return out;
}
CUtensorMap map_of(int n) {
  CUtensorMap map;
  std::memset(&map, n, sizeof map);
  return map;
}
int number_in(const CUtensorMap& map) { return static_cast<int>(*reinterpret_cast<const unsigned char*>(&map)); }

TEST(MapCache, FindsWhatWasKept) {
  sm90::MapCache cache;
  EXPECT_EQ(cache.find(request(1)), nullptr);
  EXPECT_EQ(cache.find(sm90::MapRequest{.rank = 4}), nullptr);
  cache.keep(request(1), map_of(1));
  ASSERT_NE(cache.find(request(1)), nullptr);
  EXPECT_EQ(number_in(*cache.find(request(1))), 1);
}

TEST(MapCache, EveryNumberCounts) {
  sm90::MapCache cache;
  cache.keep(request(1), map_of(1));
  const auto is_another = [&](const auto& change) {
    sm90::MapRequest other = request(1);
    change(&other);
    EXPECT_EQ(cache.find(other), nullptr);
  };
  is_another([](sm90::MapRequest* x) { x->data = x; });
  is_another([](sm90::MapRequest* x) { ++x->type; });
  is_another([](sm90::MapRequest* x) { ++x->rank; });
  for (std::size_t i = 0; i < 5; ++i) {
    is_another([i](sm90::MapRequest* x) { ++x->shape[i]; });
    is_another([i](sm90::MapRequest* x) { ++x->box[i]; });
    if (i < 4) is_another([i](sm90::MapRequest* x) { ++x->stride[i]; });
  }
}

TEST(MapCache, TheOldestGoesFirst) {
  sm90::MapCache cache;
  for (int n = 1; n <= 9; ++n) cache.keep(request(n), map_of(n));
  EXPECT_EQ(cache.find(request(1)), nullptr);
  for (int n = 2; n <= 9; ++n) {
    ASSERT_NE(cache.find(request(n)), nullptr) << n;
    EXPECT_EQ(number_in(*cache.find(request(n))), n);
  }
}

}  // namespace
}  // namespace falchion::testing
