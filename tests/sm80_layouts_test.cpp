// tests/sm80_layouts_test.cpp: walks through the shared memory of every sm80 tile of the forward pass with CuTe on the
// host, as the sm80 kernels do. There must be no bank conflict, no byte may belong to two elements, and nothing may be
// too large.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <cute/tensor.hpp>  // CuTe's headers need this one first.

#include "sm80/attention_forward/config.hpp"
#include "sm80/attention_forward/eight/config.hpp"
#include "support/banks.hpp"

namespace falchion::testing {
namespace {

using namespace cute;
using sm80::bf16, sm80::f16;

template <class Element_, int kD_, sm80::Kind kKind_, VariantTile kName_ = VariantTile::usual>
struct VariantConfig : sm80::AttentionForwardConfig<Element_, kD_, kKind_, kName_> {
  static std::string name() {
    return std::string(kKind_ == sm80::Kind::general ? "general "
                       : kKind_ == sm80::Kind::bytes ? "bytes "
                                                     : "plain ") +
           (kName_ == VariantTile::few ? "few " : "") + (std::is_same_v<Element_, bf16> ? "bf16 " : "f16 ") +
           std::to_string(kD_);
  }
};
/// Calls f(VariantConfig<...>{}) for every tile in bf16, and for tile few in f16 too. The layouts know of a type only
/// how wide it is, and each tile takes the compiler some 2 s.
template <class F>
void for_each_variant(F f) {
  int count = 0;
  const auto call = [&](auto variant) {
    SCOPED_TRACE(variant.name());
    f(variant);
    ++count;
  };
#define TILE_sm80_plain_usual(d) call(VariantConfig<bf16, d, sm80::Kind::plain>{});
#define TILE_sm80_plain_few(d)                                         \
  call(VariantConfig<bf16, d, sm80::Kind::plain, VariantTile::few>{}); \
  call(VariantConfig<f16, d, sm80::Kind::plain, VariantTile::few>{});
#define TILE_sm80_general_usual(d) call(VariantConfig<bf16, d, sm80::Kind::general>{});
#define TILE_sm80_bytes_usual(d) call(VariantConfig<bf16, d, sm80::Kind::bytes>{});
#define TILE_sm80_eight_usual(d)  // LayoutsOfEight, below
#define TILE_sm80_f32_usual(d)    // This kernel lays its tiles out by itself, without CuTe.
#define TILE_attention_forward_sm80(kind, d, tile, ...) TILE_sm80_##kind##_##tile(d)
#include "tiles/attention_forward/tiles.def"
  EXPECT_GE(count, 21);  // all tiles of the three kinds, and few in f16 too
}

// ---- What the kernel does: kernel.cuh and store.cuh of src/sm80/attention_forward
// ------------------------------------

template <class Config, class Layout_>
Access ldmatrix_q(Layout_ layout) {
  const auto sQ = tile<Config>(layout);
  const auto copy = make_tiled_copy_A(typename Config::CopyAtomQ{}, typename Config::TiledMma{});
  return walk(Config::kThreads, 16, sQ, [&](int thread) { return copy.get_thread_slice(thread).partition_S(sQ); });
}
template <class Config, class Layout_>
Access ldmatrix_k(Layout_ layout) {
  const auto sK = tile<Config>(layout);
  const auto copy = make_tiled_copy_B(typename Config::CopyAtomK{}, typename Config::TiledMma{});
  return walk(Config::kThreads, 16, sK, [&](int thread) { return copy.get_thread_slice(thread).partition_S(sK); });
}
template <class Config, class Layout_>
Access ldmatrix_v(Layout_ transposed) {
  const auto sVt = tile<Config>(transposed);
  const auto copy = make_tiled_copy_B(typename Config::CopyAtomV{}, typename Config::TiledMma{});
  return walk(Config::kThreads, 16, sVt, [&](int thread) { return copy.get_thread_slice(thread).partition_S(sVt); });
}
/// Q, K and V are written by cp.async or by ordinary stores of 16 bytes.
template <class Config, class Layout_>
Access load(Layout_ layout) {
  const auto sX = tile<Config>(layout);
  typename Config::GlobalCopy copy;
  return walk(Config::kThreads, 16, sX, [&](int thread) { return copy.get_slice(thread).partition_D(sX); });
}
template <class Config, class Layout_>
Access store_fragments(Layout_ layout) {
  const auto sO = tile<Config>(layout);
  const auto copy = make_tiled_copy_C(typename Config::CopyAtomO{}, typename Config::TiledMma{});
  return walk(Config::kThreads, 4, sO, [&](int thread) { return copy.get_thread_slice(thread).partition_D(sO); });
}

/// O is read again on its way to global memory.
template <class Config, class Layout_>
Access read_o(Layout_ layout) {
  return walk(Config::kThreads, Config::kSizeQ / Config::kThreads / 8, 16, [&](int thread, int i) {
    return layout(Config::chunk_of_o(thread / 32, i * 32 + thread % 32)) * std::ptrdiff_t{2};
  });
}

/// A matrix (rows, columns) of 16-bit elements in plain row-major order, which a kernel must not use.
template <int kRows, int kColumns>
using RowMajor = Layout<Shape<Int<kRows>, Int<kColumns>>, Stride<Int<kColumns>, _1>>;

bool covers(const std::set<std::ptrdiff_t>& chunks, int count) {
  return static_cast<int>(chunks.size()) == count && *chunks.begin() == 0 && *chunks.rbegin() == count - 1;
}
std::set<std::ptrdiff_t> all_of(const Access& access) {
  std::set<std::ptrdiff_t> all;
  for (const auto& of_warp : access.warp) all.insert(of_warp.begin(), of_warp.end());
  return all;
}
template <class Layout_>
bool is_bijection(Layout_ layout, int count) {
  std::vector<bool> taken(static_cast<std::size_t>(count));
  if (static_cast<int>(size(layout)) != count) return false;
  for (int i = 0; i < count; ++i) {
    const int to = layout(i);
    if (to < 0 || to >= count || taken[static_cast<std::size_t>(to)]) return false;
    taken[static_cast<std::size_t>(to)] = true;
  }
  return true;
}

// ---- The tests ------------------------------------------------------------------------------------------------------

TEST(Sm80Layouts, NoBankConflicts) {
  for_each_variant([](auto variant) {
    using Config = decltype(variant);
    const auto free = [](const char* what, const Access& access) {
      EXPECT_EQ(access.worst, 1) << what << ": ways of its worst phase";
      EXPECT_TRUE(access.whole) << what << ": accesses are aligned and contiguous";
    };
    free("ldmatrix of Q", ldmatrix_q<Config>(typename Config::LayoutQ{}));
    free("ldmatrix of K", ldmatrix_k<Config>(typename Config::LayoutK{}));
    free("ldmatrix of V", ldmatrix_v<Config>(typename Config::LayoutVt{}));
    free("load of Q", load<Config>(typename Config::LayoutQ{}));
    free("load of K", load<Config>(typename Config::LayoutK{}));
    free("load of V", load<Config>(typename Config::LayoutV{}));
    free("store of O", store_fragments<Config>(typename Config::LayoutO{}));
    free("read of O", read_o<Config>(typename Config::LayoutO{}));
  });
}

/// This shows that the test can fail. In row-major order every ldmatrix has conflicts.
TEST(Sm80Layouts, WithoutASwizzleThereAreConflicts) {
  for_each_variant([](auto variant) {
    using Config = decltype(variant);
    // Where rows have 64 or 192 bytes, each second one lies in other banks.
    constexpr int kWays = Config::kD % 64 == 0 ? 8 : 4;
    EXPECT_EQ(ldmatrix_q<Config>(RowMajor<Config::kRows, Config::kD>{}).worst, kWays);
    EXPECT_EQ(ldmatrix_k<Config>(RowMajor<Config::kKeys, Config::kD>{}).worst, kWays);
    const auto transposed = Layout<Shape<Int<Config::kD>, Int<Config::kKeys>>, Stride<_1, Int<Config::kD>>>{};
    EXPECT_EQ(ldmatrix_v<Config>(transposed).worst, kWays);
    EXPECT_EQ(store_fragments<Config>(RowMajor<Config::kRows, Config::kD>{}).worst, kWays);
  });
}
TEST(Sm80Layouts, Banks) {
  EXPECT_EQ(ways({0, 4, 124}, 4), 1);
  EXPECT_EQ(ways({0, 0, 0}, 4), 1) << "a broadcast";
  EXPECT_EQ(ways({0, 128, 256, 4}, 4), 3);
  EXPECT_EQ(ways({0, 16, 32, 48, 64, 80, 96, 112}, 16), 1);
  EXPECT_EQ(ways({0, 16, 128}, 16), 2);
}

TEST(Sm80Layouts, EveryElementHasItsPlace) {
  for_each_variant([](auto variant) {
    using Config = decltype(variant);
    EXPECT_TRUE(is_bijection(typename Config::LayoutQ{}, Config::kSizeQ));
    EXPECT_TRUE(is_bijection(typename Config::LayoutK{}, Config::kSizeK));
    EXPECT_TRUE(is_bijection(typename Config::LayoutV{}, Config::kSizeK));
    EXPECT_TRUE(is_bijection(typename Config::LayoutO{}, Config::kSizeQ));
    for (int n = 0; n < Config::kKeys; ++n)
      for (int d = 0; d < Config::kD; ++d)
        ASSERT_EQ(typename Config::LayoutVt{}(d, n), typename Config::LayoutV{}(n, d))
            << "V transposed, key " << n << " column " << d;
  });
}

TEST(Sm80Layouts, EveryChunkIsLoadedAndRead) {
  for_each_variant([](auto variant) {
    using Config = decltype(variant);
    EXPECT_TRUE(covers(all_of(load<Config>(typename Config::LayoutQ{})), Config::kSizeQ / 8));
    EXPECT_TRUE(covers(all_of(load<Config>(typename Config::LayoutK{})), Config::kSizeK / 8));
    const Access q = ldmatrix_q<Config>(typename Config::LayoutQ{}),
                 o = store_fragments<Config>(typename Config::LayoutO{}),
                 r = read_o<Config>(typename Config::LayoutO{});
    for (int warp = 0; warp < Config::kWarps; ++warp) {
      const auto at = static_cast<std::size_t>(warp);
      EXPECT_TRUE(covers(ldmatrix_k<Config>(typename Config::LayoutK{}).warp[at], Config::kSizeK / 8))
          << "warp " << warp;
      EXPECT_TRUE(covers(ldmatrix_v<Config>(typename Config::LayoutVt{}).warp[at], Config::kSizeK / 8))
          << "warp " << warp;
      // O takes the place of Q without a barrier of the whole CTA. So a warp may write only where it alone has read.
      std::set<std::ptrdiff_t> written;
      for (const std::ptrdiff_t pair : o.warp[at]) written.insert(pair / 4);
      EXPECT_EQ(written, q.warp[at]) << "warp " << warp;
      EXPECT_EQ(written, r.warp[at]) << "warp " << warp;
      for (std::size_t other = 0; other < at; ++other)
        for (const std::ptrdiff_t chunk : q.warp[at])
          ASSERT_FALSE(q.warp[other].contains(chunk)) << warp << " " << other;
    }
    EXPECT_TRUE(covers(all_of(q), Config::kSizeQ / 8));
  });
}

TEST(Sm80Layouts, SharedMemory) {
  for_each_variant([](auto variant) {
    using Config = decltype(variant);
    constexpr int kBytes = sizeof(typename Config::Element), kTiles = 2 * Config::kStages;
    EXPECT_GE(Config::kSharedBytes, (Config::kSizeQ + kTiles * Config::kSizeK) * kBytes);
    EXPECT_EQ(Config::kSizeQ * kBytes % 128, 0) << "K begins at the first bank";
    EXPECT_EQ(Config::kSizeK * kBytes % 128, 0) << "each stage begins at the first bank";
    EXPECT_LE(Config::kSharedBytes, 99 << 10) << "what one CTA may have on sm_86 and sm_89";
    EXPECT_LE(Config::kCtas * (Config::kSharedBytes + 1024), 228 << 10) << "what an SM of sm_90 has for its CTAs";
    EXPECT_LE(Config::kCtas * Config::kThreads, 1536) << "threads of an SM of sm_86 and sm_89";
  });
}

// ---- Kind eight: eight/kernel.cuh, eight/load.cuh ------------------------------------------------------------------

/// 16 bytes a thread, kLanes threads a row, as EightLoader writes them: a chunk of bytes, or numbers `first` on of it.
template <class Config, class Element, int kLanes, class Layout_>
Access store_chunks(Layout_ layout, int first) {
  constexpr int kPass = Config::kThreads / kLanes, kBoxes = Config::kD / (16 * kLanes);
  return walk(Config::kThreads, size<0>(layout) / kPass * kBoxes, 16, [&](int thread, int i) {
    return layout(thread / kLanes + i / kBoxes * kPass, thread % kLanes * 16 + i % kBoxes * (16 * kLanes) + first) *
           static_cast<std::ptrdiff_t>(sizeof(Element));
  });
}
struct OfBytes {
  using Element = sm80::i8;
};

template <class Type, int kD>
void expect_layouts_of_eight() {
  using Config = sm80::EightConfig<Type, kD>;
  using Q = typename Config::ByteLayoutQ;
  using K = typename Config::ByteLayoutK;
  using Element = typename Config::Element;
  constexpr int kLanes = Config::kLanesOfBytes, kLanesOfRaw = Config::kLanesOfRaw;
  typename Config::IntegerMma mma;
  const auto copy_q = make_tiled_copy_A(typename Config::CopyAtomOfBytes{}, mma);
  const auto copy_k = make_tiled_copy_B(typename Config::CopyAtomOfBytes{}, mma);
  const auto sQ = tile<OfBytes>(Q{});
  const auto sK = tile<OfBytes>(K{});
  const auto of_q = [&](int thread) { return copy_q.get_thread_slice(thread).partition_S(sQ); };
  const auto of_k = [&](int thread) { return copy_k.get_thread_slice(thread).partition_S(sK); };
  const Access q = walk(Config::kThreads, 16, sQ, of_q), k = walk(Config::kThreads, 16, sK, of_k);
  for (const Access& access :
       {q, k, store_chunks<Config, sm80::i8, kLanes>(Q{}, 0), store_chunks<Config, sm80::i8, kLanes>(K{}, 0),
        store_chunks<Config, Element, kLanesOfRaw>(typename Config::LayoutK{}, 0),
        store_chunks<Config, Element, kLanesOfRaw>(typename Config::LayoutV{}, 8)}) {
    EXPECT_EQ(access.worst, 1);
    EXPECT_TRUE(access.whole);
  }
  EXPECT_TRUE(is_bijection(Q{}, Config::kRows * kD));
  EXPECT_TRUE(is_bijection(K{}, Config::kKeys * kD));
  EXPECT_TRUE(covers(all_of(q), Config::kRows * kD / 16));
  EXPECT_TRUE(covers(all_of(store_chunks<Config, sm80::i8, kLanes>(Q{}, 0)), Config::kRows * kD / 16));
  for (const auto& of_warp : k.warp) EXPECT_TRUE(covers(of_warp, Config::kKeys * kD / 16));
  EXPECT_LE(Config::kSharedBytes, 99 << 10) << "what one CTA may have on sm_86 and sm_89";
  EXPECT_LE(Config::kCtas * (Config::kSharedBytes + 1024), 164 << 10) << "what an SM of sm_80 has for its CTAs";
}

TEST(Sm80Layouts, LayoutsOfEight) {
  const auto of_type = [](auto type) {
    using Type = decltype(type);
    expect_layouts_of_eight<Type, 64>();
    expect_layouts_of_eight<Type, 128>();
    expect_layouts_of_eight<Type, 256>();
  };
  of_type(bf16{});
  of_type(sm80::e4m3{});
  of_type(sm80::i8{});
}

}  // namespace
}  // namespace falchion::testing
