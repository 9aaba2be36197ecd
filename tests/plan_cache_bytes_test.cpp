// tests/plan_cache_bytes_test.cpp: which kernel of a GPU takes an 8-bit cache. No GPU is needed, because target.sm
// names the architecture.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "support/gpu_plan.hpp"

namespace falchion::testing {
namespace {

Attention chunk(DType bytes, std::int64_t page_size, std::int64_t d = 128) {
  Attention a = problem(4, 500, 8192, 32, 8, d);
  a.cache = a.used_k = true;
  a.page_size = page_size;
  a.dtype_k = a.dtype_v = bytes;
  return a;
}

TEST(CacheBytesPlan, KindBytesTakesRowsAndPages) {
  for (const int sm : {80, 90}) {
    for (const DType bytes : {DType::e4m3, DType::i8}) {
      for (const std::int64_t page_size : {0, 1, 16, 256}) {
        SCOPED_TRACE(text("sm ", sm, ", ", name(bytes), ", pages of ", page_size));
        Attention a = chunk(bytes, page_size);
        EXPECT_EQ(variant_of(a, on(sm)), "sm80 bytes bf16 128");
        a.k_scale = a.append = a.packed = true;
        a.rotary_dim = 64;
        a.score.softcap = 30;
        EXPECT_EQ(variant_of(a, on(sm)), "sm80 bytes bf16 128");
        a.dtype = DType::f16;
        EXPECT_EQ(variant_of(a, on(sm)), "sm80 bytes f16 128");
      }
      EXPECT_EQ(variant_of(chunk(bytes, 16, 40), on(sm)), "sm80 bytes bf16 64");
      EXPECT_EQ(variant_of(chunk(bytes, 0, 129), on(sm)), "sm80 bytes bf16 256");
    }
  }
  for (const std::int64_t page_size : {0, 16}) {
    Attention a = chunk(DType::e4m3, page_size);
    a.split_keys = 1024;
    EXPECT_EQ(variant_of(a, on(80)), "sm80 bytes bf16 128");
  }
}

TEST(CacheBytesPlan, WhyOtherKindsDoNotTakeThem) {
  for (const std::int64_t page_size : {0, 16}) {
    const std::string story = story_of(chunk(DType::i8, page_size), on(80));
    EXPECT_NE(story.find("an 8-bit cache needs a "), std::string::npos) << story;
    EXPECT_NE(story.find("k and v of i8"), std::string::npos) << story;
    Attention a = chunk(DType::i8, page_size);
    a.dtype = DType::f32;
    EXPECT_NE(variant_of(a, on(80)).find("an 8-bit cache needs another type"), std::string::npos)
        << variant_of(a, on(80));
    a = chunk(DType::as_q, page_size);
    EXPECT_EQ(story_of(a, on(80)).find("8-bit"), std::string::npos) << story_of(a, on(80));
  }
}

/// Its kind for q of 8 bits is no kind for caches, and none of these takes q of 8 bits.
TEST(EightPlan, Sm80HasAKindOfItsOwnForQOf8Bits) {
  Attention a = problem(4, 500, 8192, 32, 8, 128);
  a.dtype = DType::i8;
  a.dtype_v = DType::bf16;
  EXPECT_EQ(variant_of(a, on(80)), "sm80 eight bf16 128");
  a.dtype_v = DType::e4m3;
  EXPECT_EQ(variant_of(a, on(80)), "sm80 eight i8 128");
}

}  // namespace
}  // namespace falchion::testing
