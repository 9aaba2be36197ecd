// tests/sm90_maps_test.cpp: tensor maps on the host: the arguments of the driver's function, and the maps that a thread
// keeps between launches: a map that differs in any number is another one, and those of all layers of a model are kept.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "gpu/blocks/sm90_map_cache.hpp"

namespace falchion::testing {
namespace {

sm90::MapRequest request(int n) {
  sm90::MapRequest out{.type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, .rank = 4};
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

/// A box of bytes is as wide as one of 16-bit numbers in bytes: twice as many.
TEST(MapRequest, OfBytes) {
  const View x{nullptr, {512 * 256, 256, 128, 1}};
  const sm90::TensorBox box{2, 512, 2, 128, 128, 1, 64};
  int never_null = 0;
  const auto request = sm90::tensor_request(CU_TENSOR_MAP_DATA_TYPE_UINT8, x, box, &never_null);
  EXPECT_EQ(request.stride[0], 128U);
  EXPECT_EQ(request.stride[1], 256U);
  EXPECT_EQ(request.stride[2], 512U * 256);
  EXPECT_EQ(static_cast<int>(request.box[0]) * sm90::element_bytes(request.type), 128);
}

TEST(MapCache, EveryNumberCounts) {
  sm90::MapCache cache;
  cache.keep(request(1), map_of(1));
  const auto is_another = [&](const auto& change) {
    sm90::MapRequest other = request(1);
    change(&other);
    EXPECT_EQ(cache.find(other), nullptr);
    EXPECT_FALSE(other == request(1));
  };
  is_another([](sm90::MapRequest* x) { x->data = x; });
  is_another([](sm90::MapRequest* x) { x->type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16; });
  is_another([](sm90::MapRequest* x) { ++x->rank; });
  for (std::size_t i = 0; i < 5; ++i) {
    is_another([i](sm90::MapRequest* x) { ++x->shape[i]; });
    is_another([i](sm90::MapRequest* x) { ++x->box[i]; });
    if (i < 4) is_another([i](sm90::MapRequest* x) { ++x->stride[i]; });
  }
}

TEST(MapCache, TheOldestGoesFirst) {
  sm90::MapCache cache;
  constexpr int kPlaces = static_cast<int>(sm90::MapCache::kPlaces);
  for (int n = 0; n <= kPlaces; ++n) cache.keep(request(n), map_of(n));
  EXPECT_EQ(cache.find(request(0)), nullptr);
  for (int n = 1; n <= kPlaces; ++n) {
    ASSERT_NE(cache.find(request(n)), nullptr) << n;
    EXPECT_EQ(number_in(*cache.find(request(n))), n);
  }
}

/// q, k and v of 30 layers, whatever lies between two of them: each map is made once, however often the layers run.
TEST(MapCache, KeepsTheMapsOfAllLayers) {
  for (std::uintptr_t bytes = 512; bytes <= std::uintptr_t{3} << 25;
       bytes = bytes % 3 == 0 ? bytes / 3 * 4 : bytes * 3 / 2) {
    sm90::MapCache cache;
    int made = 0;
    for (int i = 0; i < 3 * 90; ++i) {
      sm90::MapRequest x = request(1);
      x.data = reinterpret_cast<void*>(0x7f0000000000 + static_cast<std::uintptr_t>(i % 90) * bytes);
      if (cache.find(x) != nullptr) continue;
      cache.keep(x, map_of(1));
      ++made;
    }
    EXPECT_EQ(made, 90) << bytes << " bytes from one to the next";
  }
}

/// A fake driver, which records its last arguments.
struct Asked {
  int times = 0;
  CUresult answer = CUDA_SUCCESS;
  CUtensorMapDataType type{};
  std::vector<cuuint64_t> shape, stride;
  std::vector<cuuint32_t> box, step;
  void* data = nullptr;
  CUtensorMapSwizzle swizzle{};
};
Asked asked;
CUresult encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data, const cuuint64_t* shape,
                const cuuint64_t* stride, const cuuint32_t* box, const cuuint32_t* step, CUtensorMapInterleave,
                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  asked = {
      asked.times + 1,     asked.answer, type,   {shape, shape + rank}, {stride, stride + rank - 1}, {box, box + rank},
      {step, step + rank}, data,         swizzle};
  *map = map_of(asked.times);
  return asked.answer;
}
cudaError_t find_encoder(sm90::EncodeTensorMap* out) {
  *out = encode;
  return cudaSuccess;
}
constexpr sm90::TensorBox kBox{2, 100, 4, 128, 64, 2, 32};  // batch, rows, heads, d; a box of columns, heads, rows
using Extents = std::vector<cuuint64_t>;
using Box = std::vector<cuuint32_t>;

/// Strides are in elements in a View and in bytes in a map; the axes go from the innermost to the batch.
TEST(TensorMap, AsksTheDriverWithEveryNumber) {
  asked = {};
  int memory = 0;
  const View x{&memory, {60000, 600, 150, 1}};
  sm90::MapCache cache;
  CUtensorMap map;
  const auto request = sm90::tensor_request(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, x, kBox, nullptr);
  ASSERT_EQ(sm90::write_tensor_map(request, find_encoder, &cache, &map), cudaSuccess);
  EXPECT_EQ(asked.type, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  EXPECT_EQ(asked.data, &memory);
  EXPECT_EQ(asked.shape, (Extents{128, 4, 100, 2}));
  EXPECT_EQ(asked.stride, (Extents{300, 1200, 120000}));
  EXPECT_EQ(asked.box, (Box{64, 2, 32, 1}));
  EXPECT_EQ(asked.step, (Box{1, 1, 1, 1}));
  EXPECT_EQ(asked.swizzle, CU_TENSOR_MAP_SWIZZLE_128B);
}

TEST(TensorMap, RowsOfSeveralLinesHaveAnAxisMore) {
  asked = {};
  int memory = 0;
  const View x{&memory, {60000, 600, 150, 1}};
  sm90::MapCache cache;
  CUtensorMap map;
  const auto request = sm90::lines_request(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, x, kBox);
  ASSERT_EQ(sm90::write_tensor_map(request, find_encoder, &cache, &map), cudaSuccess);
  EXPECT_EQ(asked.shape, (Extents{32, 100, 4, 4, 2}));
  EXPECT_EQ(asked.stride, (Extents{2400, 128, 600, 240000}));
  EXPECT_EQ(asked.box, (Box{32, 32, 2, 2, 1}));
  EXPECT_EQ(asked.swizzle, CU_TENSOR_MAP_SWIZZLE_128B);
}

/// A map knows no extent of 0 and no stride that is not a multiple of 16 bytes, and it needs an address.
TEST(TensorMap, OfAnEmptyTensorAndOfAxesWithOneEntry) {
  int never_null = 0;
  const sm90::TensorBox box{1, 0, 1, 64, 32, 1, 64};
  const auto request =
      sm90::tensor_request(CU_TENSOR_MAP_DATA_TYPE_FLOAT16, View{nullptr, {3, 5, 7, 1}}, box, &never_null);
  EXPECT_EQ(request.data, &never_null);
  EXPECT_EQ(request.shape, (std::array<cuuint64_t, 5>{64, 1, 1, 1, 0}));
  EXPECT_EQ(request.stride, (std::array<cuuint64_t, 4>{16, 16, 16, 0}));
  asked = {};
  sm90::MapCache cache;
  CUtensorMap map;
  ASSERT_EQ(sm90::write_tensor_map(request, find_encoder, &cache, &map), cudaSuccess);
  EXPECT_EQ(asked.swizzle, CU_TENSOR_MAP_SWIZZLE_64B);  // 32 columns of 2 bytes
}

TEST(TensorMap, IsMadeOnceAndNeverKeptAfterAFailure) {
  asked = {};
  int memory = 0;
  View x{&memory, {60000, 600, 150, 1}};
  sm90::MapCache cache;
  CUtensorMap map;
  const auto write = [&] {
    return sm90::write_tensor_map(sm90::tensor_request(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, x, kBox, nullptr),
                                  find_encoder, &cache, &map);
  };
  asked.answer = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(write(), cudaErrorInvalidValue);
  asked.answer = CUDA_SUCCESS;
  EXPECT_EQ(write(), cudaSuccess);
  EXPECT_EQ(write(), cudaSuccess);
  EXPECT_EQ(asked.times, 2);  // the failure, and the map that was kept
  EXPECT_EQ(number_in(map), 2);
  x.stride[1] += 8;
  EXPECT_EQ(write(), cudaSuccess);
  EXPECT_EQ(asked.times, 3);
}

}  // namespace
}  // namespace falchion::testing
