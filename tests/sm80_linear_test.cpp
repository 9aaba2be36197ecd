// tests/sm80_linear_test.cpp: walks through the shared memory of linear attention on sm80 with CuTe on the host, as the
// kernels do.
#include <gtest/gtest.h>

#include <string>

#include <cute/tensor.hpp>  // CuTe's headers need this one first.

#include "sm80/linear_attention/config.hpp"
#include "support/banks.hpp"

namespace falchion::testing {
namespace {

using sm80::bf16, sm80::f16, sm80::LinearKind;

template <class F>
void for_each_config(F f) {
  const auto call = [&](auto config) {
    SCOPED_TRACE("d " + std::to_string(config.kD));
    f(config);
  };
  call(sm80::LinearAttentionConfig<bf16, 64, LinearKind::plain>{});
  call(sm80::LinearAttentionConfig<f16, 64, LinearKind::normalise>{});
  call(sm80::LinearAttentionConfig<bf16, 128, LinearKind::plain>{});
  call(sm80::LinearAttentionConfig<bf16, 256, LinearKind::general>{});
}

template <class Config, class Copy, class Layout_>
Access read(Copy copy, Layout_ layout) {
  const auto sX = tile<Config>(layout);
  return walk(Config::kThreads, 16, sX, [&](int thread) { return copy.get_thread_slice(thread).partition_S(sX); });
}

TEST(Sm80Linear, NoBankConflicts) {
  for_each_config([](auto config) {
    using Config = decltype(config);
    const auto free = [](const char* what, const Access& access) {
      EXPECT_EQ(access.worst, 1) << what << ": ways of its worst phase";
      EXPECT_TRUE(access.whole) << what << ": accesses are aligned and contiguous";
    };
    const auto a = make_tiled_copy_A(typename Config::CopyAtom{}, typename Config::TiledMma{});
    const auto b = make_tiled_copy_B(typename Config::CopyAtom{}, typename Config::TiledMma{});
    const auto at = make_tiled_copy_A(typename Config::CopyAtomT{}, typename Config::TiledMma{});
    const auto bt = make_tiled_copy_B(typename Config::CopyAtomT{}, typename Config::TiledMma{});
    free("Q, rows of P", read<Config>(a, typename Config::LayoutQ{}));
    free("K, columns of P", read<Config>(b, typename Config::LayoutQ{}));
    free("V^T", read<Config>(at, typename Config::LayoutVt{}));
    free("K^T", read<Config>(bt, typename Config::LayoutKt{}));
    free("P^T", read<Config>(b, typename Config::LayoutP{}));
    const auto sP = tile<Config>(typename Config::LayoutP{});
    const auto p = make_tiled_copy_C(typename Config::CopyAtomP{}, typename Config::TiledMma{});
    free("P", walk(Config::kThreads, 4, sP, [&](int thread) { return p.get_thread_slice(thread).partition_D(sP); }));
    // This is stage_o of the kernel.
    free("O", walk(Config::kThreads, 16, 4, [](int thread, int i) {
           const int warp = thread / 32, lane = thread % 32;
           const int t = 8 * (i / 2) + lane / 4, m = 16 * warp + 8 * (i % 2) + lane % 4 * 2;
           return typename Config::LayoutV{}(t, m) * std::ptrdiff_t{2};
         }));
    // This is store_o of the kernel.
    free("rows of O", walk(Config::kThreads, 4, 16, [](int thread, int i) {
           return typename Config::LayoutV{}(16 * i + thread / 8, thread % 8 * 8) * std::ptrdiff_t{2};
         }));
  });
}

TEST(Sm80Linear, WithoutASwizzleThereAreConflicts) {
  using Config = sm80::LinearAttentionConfig<bf16, 64, LinearKind::plain>;
  const auto b = make_tiled_copy_B(typename Config::CopyAtom{}, typename Config::TiledMma{});
  EXPECT_EQ(read<Config>(b, Layout<Shape<_64, _64>, Stride<_64, _1>>{}).worst, 8);
}

TEST(Sm80Linear, SharedMemory) {
  for_each_config([](auto config) {
    using Config = decltype(config);
    EXPECT_LE(Config::kCtas * (Config::kSharedBytes + 1024), 228 << 10) << "what an SM of sm_90 has for its CTAs";
    if (Config::kD <= 128) { EXPECT_LE(Config::kSharedBytes, 163 << 10) << "what one CTA may have on sm_80"; }
    EXPECT_EQ(offsetof(typename Config::Shared, k) % 128, 0u) << "each tile begins at the first bank";
    EXPECT_EQ(offsetof(typename Config::Shared, p) % 128, 0u);
  });
}

/// Checks the exact variants, in which a lane accesses 4 or 8 bytes. The lanes lie as in LinearExactChunks.
template <class Config>
void expect_no_conflicts_of_exact() {
  const auto free = [](const char* what, int bytes, auto element) {
    const Access access = walk(Config::kThreads, 1, bytes, [&](int thread, int) {
      return element(thread % 32 / 4, thread % 4) * std::ptrdiff_t{4};
    });
    EXPECT_EQ(access.worst, 1) << what << ": ways of its worst phase";
  };
  constexpr std::ptrdiff_t kQ = Config::kStrideQ, kV = Config::kStrideV, kP = Config::kStrideP;
  free("pairs of Q and K", 8, [](int g, int t) { return g * kQ + 2 * t; });
  free("K^T", 4, [](int g, int t) { return t * kQ + g; });
  free("V^T", 4, [](int g, int t) { return t * kV + g; });
  free("P^T", 4, [](int g, int t) { return g * kP + t; });
}
TEST(Sm80Linear, NoBankConflictsInTheExactVariants) {
  expect_no_conflicts_of_exact<sm80::LinearExactConfig<float, 64, LinearKind::exact>>();
  expect_no_conflicts_of_exact<sm80::LinearExactConfig<float, 128, LinearKind::exact>>();
  expect_no_conflicts_of_exact<sm80::LinearExactConfig<bf16, 256, LinearKind::exact>>();
}

}  // namespace
}  // namespace falchion::testing
