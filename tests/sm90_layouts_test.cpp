// tests/sm90_layouts_test.cpp: walks on the host through the shared memory of every sm90 tile of the forward pass. TMA
// must write each element where wgmma looks for it, wgmma must meet no bank conflicts, and shared memory and registers
// must suffice.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED  // The tiles of head dim 192 need it: they have 80 keys.
#include <cute/tensor.hpp>                     // CuTe's headers need this one first.

#include "support/host_warp.hpp"  // It has the functions that the config's headers call on a device.

#include "sm90/attention_forward/config.hpp"
#include "sm90/attention_forward/fp8/config.hpp"

namespace falchion::testing {
namespace {

using namespace cute;
using sm90::bf16, sm90::f16;

template <class Element_, int kD_, sm90::Kind kKind, VariantTile kName>
struct VariantConfig : sm90::AttentionForwardConfig<Element_, kD_, kKind, kName> {
  static std::string name(const char* kind) {
    return std::string(kind) + (std::is_same_v<Element_, bf16> ? " bf16 " : " f16 ") + std::to_string(kD_);
  }
};
/// Calls f(VariantConfig<...>{}) for every tile, in both types.
template <class F>
void for_each_variant(F f) {
  int count = 0;
  const auto call = [&]<int kD, sm90::Kind kKind, VariantTile kTile>(const char* kind) {
    const auto call_in = [&](auto variant) {
      SCOPED_TRACE(variant.name(kind));
      f(variant);
      ++count;
    };
    if constexpr (kKind != sm90::Kind::fp8) {  // it has a config of its own: KindFp8
      call_in(VariantConfig<bf16, kD, kKind, kTile>{});
      call_in(VariantConfig<f16, kD, kKind, kTile>{});
    }
  };
#define TILE_attention_forward_sm90(kind, d, tile, ...) \
  call.template operator()<d, sm90::Kind::kind, VariantTile::tile>(#kind " " #tile);
#include "tiles/attention_forward/tiles.def"
  EXPECT_GE(count, 30);  // fifteen tiles, in two types
}

// ---- TMA, written from CUDA's documentation and without code of ours ------------------------------------------------

/// The columns of a box and the bytes of a number.
struct Box {
  int columns, bytes;
  int of_chunk() const { return 16 / bytes; }  // numbers
};

/// Returns where TMA puts an element of a tile of so many rows, counted in elements. The tile consists of boxes, one
/// after another. The rows of a box are contiguous, and the 16-byte chunks of a row are swizzled.
int tma_place(Box b, int rows, int row, int column) {
  const int box = column / b.columns, chunk = column % b.columns / b.of_chunk();
  // The first case has rows of 128 bytes, and the second has rows of 64 bytes.
  const int at = b.columns * b.bytes == 128 ? chunk ^ row % 8 : chunk ^ row / 2 % 4;
  return (box * rows + row) * b.columns + at * b.of_chunk() + column % b.of_chunk();
}

/// Returns the first element of stages x rows x columns for which place(row, column, stage) is not where TMA puts it,
/// or "".
template <class Place>
std::string differs_from_tma(Box box, int rows, int columns, int stages, Place place) {
  for (int stage = 0; stage < stages; ++stage)
    for (int row = 0; row < rows; ++row)
      for (int column = 0; column < columns; ++column) {
        const int ours = place(row, column, stage);
        const int expected = stage * rows * columns + tma_place(box, rows, row, column);
        if (ours != expected)
          return "row " + std::to_string(row) + " column " + std::to_string(column) + " stage " +
                 std::to_string(stage) + ": " + std::to_string(ours) + ", TMA " + std::to_string(expected);
      }
  return "";
}

/// wgmma reads core matrices, which are 16 bytes of each of 8 neighbouring rows, whichever of the two directions it
/// takes for K. Returns how many of the 8 lie in the same 4 banks in the worst case, where 1 means no conflict, and 9
/// where the 16 bytes are not in one piece.
template <class Place>
int ways(Box box, int rows, int columns, Place place) {
  const int chunk = box.of_chunk();
  int worst = 0;
  for (int row = 0; row < rows; row += 8)
    for (int column = 0; column < columns; column += chunk) {
      std::array<int, 8> in_group{};
      for (int r = row; r < row + 8; ++r) {
        const int first = place(r, column, 0);
        for (int c = 0; c < chunk; ++c)
          if (place(r, column + c, 0) != first + c || first % chunk != 0) return 9;
        ++in_group[static_cast<std::size_t>(first / chunk % 8)];
      }
      worst = std::max(worst, *std::max_element(in_group.begin(), in_group.end()));
    }
  return worst;
}

/// Whether every element of rows x columns x stages has a place of its own, and none lies beyond the last place.
template <class Place>
bool is_bijection(int rows, int columns, int stages, Place place) {
  std::vector<bool> taken(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns * stages));
  for (int stage = 0; stage < stages; ++stage)
    for (int row = 0; row < rows; ++row)
      for (int column = 0; column < columns; ++column) {
        const auto at = static_cast<std::size_t>(place(row, column, stage));
        if (at >= taken.size() || taken[at]) return false;
        taken[at] = true;
      }
  return true;
}

/// Returns a CTA's shared memory, of which only the addresses are used.
template <class Config>
typename Config::Shared& shared_memory() {
  alignas(1024) static std::byte memory[sizeof(typename Config::Shared)];
  return *reinterpret_cast<typename Config::Shared*>(memory);
}
/// Returns place(i, j, stage), which says how many elements behind the first one the kernel's tensor has its element.
template <class Element, class Layout_>
auto place_in(Element* first, Layout_ layout) {
  return [first, x = make_tensor(make_smem_ptr(first), layout)](int i, int j, int stage) {
    return static_cast<int>(&x(i, j, stage) - first);
  };
}
template <class Config>
auto place_of_v() {
  const auto transposed = place_in(shared_memory<Config>().v[0], typename Config::LayoutVt{});
  return [transposed](int key, int column, int stage) { return transposed(column, key, stage); };
}

/// Calls f(what, box, rows, columns, stages, place) for Q, K and V.
template <class Config, class F>
void for_each_operand(F f) {
  auto& shared = shared_memory<Config>();
  const Box of_qk{Config::kBox, sizeof(typename Config::ElementQk)},
      of_v{Config::kBoxV, sizeof(typename Config::Element)};
  f("Q", of_qk, Config::kRows, Config::kWidth, Config::kStagesQ, place_in(shared.q[0], typename Config::LayoutQ{}));
  f("K", of_qk, Config::kKeys, Config::kWidth, Config::kStages, place_in(shared.k[0], typename Config::LayoutK{}));
  f("V", of_v, Config::kKeys, Config::kWidthV, Config::kStages, place_of_v<Config>());
}

// ---- The tests ------------------------------------------------------------------------------------------------------

TEST(Sm90Layouts, TmaWritesWhereWgmmaReads) {
  for_each_variant([](auto variant) {
    using Config = decltype(variant);
    for_each_operand<Config>([](const char* what, Box box, int rows, int columns, int stages, auto place) {
      EXPECT_EQ(differs_from_tma(box, rows, columns, stages, place), "") << what;
      EXPECT_TRUE(is_bijection(rows, columns, stages, place)) << what;
    });
  });
}

TEST(Sm90Layouts, NoBankConflicts) {
  for_each_variant([](auto variant) {
    using Config = decltype(variant);
    for_each_operand<Config>([](const char* what, Box box, int rows, int columns, int, auto place) {
      EXPECT_EQ(ways(box, rows, columns, place), 1) << what;
    });
  });
}

/// This shows that the tests can fail. TMA does not write rows one after the other without a swizzle. In that order all
/// rows of a core matrix lie in the same 4 banks, or half of them where a row has 64 or 192 bytes.
TEST(Sm90Layouts, WithoutASwizzleThereAreConflicts) {
  for_each_variant([](auto variant) {
    using Config = decltype(variant);
    for_each_operand<Config>([](const char* what, Box box, int rows, int columns, int stages, auto) {
      const int all_ways = box.columns * box.bytes == 128 ? 8 : 4;
      const auto boxes = [=](int r, int c, int) {
        return (c / box.columns * rows + r) * box.columns + c % box.columns;
      };
      const auto whole_rows = [=](int r, int c, int stage) { return (stage * rows + r) * columns + c; };
      EXPECT_EQ(ways(box, rows, columns, boxes), all_ways) << what;
      EXPECT_EQ(ways(box, rows, columns, whole_rows), all_ways) << what;
      EXPECT_NE(differs_from_tma(box, rows, columns, stages, whole_rows), "") << what;
      EXPECT_TRUE(is_bijection(rows, columns, stages, whole_rows)) << what;
      EXPECT_FALSE(is_bijection(rows, columns, 2, boxes)) << what << ": both stages in one place";
    });
  });
}
/// A swizzle other than that of the box is found too.
TEST(Sm90Layouts, AnotherSwizzleIsFound) {
  alignas(1024) static bf16 memory[64 * 128];
  const auto place = [](auto atom) { return place_in(memory, tile_to_shape(atom, Shape<_64, _128, _1>{})); };
  const auto rows_of_128_bytes = place(GMMA::Layout_K_SW128_Atom<bf16>{});
  const auto rows_of_64_bytes = place(GMMA::Layout_K_SW64_Atom<bf16>{});
  EXPECT_EQ(differs_from_tma({64, 2}, 64, 128, 1, rows_of_128_bytes), "");
  EXPECT_EQ(differs_from_tma({32, 2}, 64, 128, 1, rows_of_64_bytes), "");
  EXPECT_EQ(differs_from_tma({64, 2}, 64, 128, 1, rows_of_64_bytes), "row 0 column 32 stage 0: 2048, TMA 32");
  EXPECT_EQ(differs_from_tma({32, 2}, 64, 128, 1, rows_of_128_bytes), "row 0 column 32 stage 0: 32, TMA 2048");
}

/// Kind halves takes each part of Q and K as a tile of its own, and of each part of V the columns of one product. These
/// tiles must lie where the layout of all parts has them.
TEST(Sm90Layouts, PartsAreTilesOfTheirOwn) {
  int count = 0;
  for_each_variant([&](auto variant) {
    using Config = decltype(variant);
    if constexpr (Config::kParts == 2) {
      auto& shared = shared_memory<Config>();
      const auto compare = [](const char* what, int rows, int columns, int first, const auto& all, const auto& part) {
        for (int row = 0; row < rows; ++row)
          for (int column = 0; column < columns; ++column)
            ASSERT_EQ(all(row, first + column, 0), part(row, column)) << what << " row " << row << " column " << column;
      };
      const auto at = [](auto* base, int offset, auto layout) {
        return [base, x = make_tensor(make_smem_ptr(base + offset), layout)](int i, int j) {
          return static_cast<int>(&x(i, j) - base);
        };
      };
      const auto q = place_in(shared.q[0], typename Config::LayoutQ{});
      const auto k = place_in(shared.k[0], typename Config::LayoutK{});
      for (int part = 0; part < 2; ++part) {
        const int first = part * Config::kD;
        compare("Q", Config::kRows, Config::kD, first, q,
                at(shared.q[0], part * (Config::kSizeQ / 2), typename Config::PartOfQ{}));
        compare("K", Config::kKeys, Config::kD, first, k,
                at(shared.k[0], part * (Config::kSizeK / 2), typename Config::PartOfK{}));
        for (int column = 0; column < Config::kDv; column += Config::kColumns) {
          const int offset = part * (Config::kSizeV / 2) + column * Config::kKeys;
          const auto transposed = at(shared.v[0], offset, typename Config::ColumnsOfVt{});
          compare("V", Config::kKeys, Config::kColumns, part * Config::kDv + column, place_of_v<Config>(),
                  [&](int key, int c) { return transposed(c, key); });
        }
      }
      ++count;
    }
  });
  EXPECT_EQ(count, 6) << "three head dims, in two types";
}

/// For keys past the end, the kernel clears chunk i of a stage of V when this function says that chunk i belongs to one
/// of them.
TEST(Sm90Layouts, EachChunkOfVIsOfOneKey) {
  for_each_variant([](auto variant) {
    using Config = decltype(variant);
    const auto place = place_of_v<Config>();
    for (int key = 0; key < Config::kKeys; ++key)
      for (int column = 0; column < Config::kWidthV; ++column) {
        const int chunk = place(key, column, 0) / 8;
        ASSERT_EQ(chunk / (Config::kBoxV / 8) % Config::kKeys, key) << "column " << column;
      }
  });
}

/// A product of wgmma leaves element i of a thread where mma m16n8, with as many warps one below the other, leaves it.
/// The kernel's softmax, mask and store rely on that. wgmma also wants element i of P, as operand A, in that same
/// place.
TEST(Sm90Layouts, FragmentsAreThoseOfMma) {
  for_each_variant([](auto variant) {
    using Config = decltype(variant);
    constexpr int kM = Config::kRows, kOwn = Config::kKeys / 2, kOwnO = Config::kDv / 2;
    const auto cS = make_identity_tensor(Shape<Int<kM>, Int<Config::kKeys>>{});
    const auto cO = make_identity_tensor(Shape<Int<kM>, Int<Config::kDv>>{});
    for (int thread = 0; thread < 128 * Config::kConsumers; ++thread) {
      const auto mma = typename Config::MmaOfRows{}.get_thread_slice(thread);
      const auto S = mma.partition_C(cS), O = mma.partition_C(cO);
      const auto qk = typename Config::MmaQk{}.get_thread_slice(thread).partition_C(cS);
      const auto pv = typename Config::MmaPv{}.get_thread_slice(thread);
      const auto p = pv.partition_A(cS);
      const auto o = pv.partition_C(cO);
      ASSERT_TRUE(size(S) == kOwn && size(qk) == kOwn && size(p) == kOwn && size(O) == kOwnO && size(o) == kOwnO);
      for (int i = 0; i < kOwn; ++i) {
        ASSERT_EQ(S(i), qk(i)) << "S: thread " << thread << " element " << i;
        ASSERT_EQ(S(i), p(i)) << "P: thread " << thread << " element " << i;
      }
      for (int i = 0; i < kOwnO; ++i) ASSERT_EQ(O(i), o(i)) << "O: thread " << thread << " element " << i;
    }
  });
}

/// The hardware swizzles address bits. That is a swizzle of rows only where a box begins at a pattern of 8 rows.
TEST(Sm90Layouts, BoxesAreAligned) {
  for_each_variant([](auto variant) {
    using Config = decltype(variant);
    using Shared = typename Config::Shared;
    constexpr std::size_t kBytes = sizeof(typename Config::ElementQk), kBytesV = sizeof(typename Config::Element);
    constexpr std::size_t kPattern = 8 * Config::kBox * kBytes, kPatternV = 8 * Config::kBoxV * kBytesV;
    alignas(1024) static unsigned char memory[sizeof(Shared)];
    const auto& shared = *reinterpret_cast<const Shared*>(memory);
    const auto offset = [](const auto& member) { return reinterpret_cast<const unsigned char*>(&member) - memory; };
    EXPECT_EQ(alignof(Shared), 1024u);
    EXPECT_EQ(offset(shared.q) % 1024, 0);
    EXPECT_EQ(offset(shared.k) % 1024, 0);
    EXPECT_EQ(offset(shared.v) % 1024, 0);
    EXPECT_EQ(Config::kSizeQ * kBytes % 1024, 0u) << "the second stage of Q";
    EXPECT_EQ(Config::kSizeK * kBytes % 1024, 0u) << "further stages of K";
    EXPECT_EQ(Config::kSizeV * kBytesV % 1024, 0u) << "further stages of V";
    EXPECT_EQ(Config::kRows * Config::kBox * kBytes % kPattern, 0u) << "further boxes of Q";
    EXPECT_EQ(Config::kKeys * Config::kBox * kBytes % kPattern, 0u) << "further boxes of K";
    EXPECT_EQ(Config::kKeys * Config::kBoxV * kBytesV % kPatternV, 0u) << "further boxes of V";
    EXPECT_EQ(offset(shared.full_q) % 8, 0) << "barriers";
    EXPECT_EQ(Config::kBoxes * Config::kBox, Config::kWidth);
    EXPECT_EQ(Config::kBoxesV * Config::kBoxV, Config::kWidthV);
    EXPECT_EQ(Config::kWidth, Config::kParts * Config::kD);
    EXPECT_EQ(Config::kWidthV, Config::kParts * Config::kDv);
    EXPECT_LE(Config::kBox * kBytes, 128u) << "the widest swizzle";
    EXPECT_LE(Config::kBoxV * kBytesV, 128u) << "the widest swizzle";
    EXPECT_LE(std::max(Config::kRows, Config::kKeys), 256) << "rows of a box";
  });
}

TEST(Sm90Layouts, SharedMemory) {
  for_each_variant([](auto variant) {
    using Config = decltype(variant);
    constexpr int kBytes = sizeof(typename Config::ElementQk), kBytesV = sizeof(typename Config::Element);
    EXPECT_GE(Config::kSharedBytes, (Config::kStagesQ * Config::kSizeQ + Config::kStages * Config::kSizeK) * kBytes +
                                        Config::kStages * Config::kSizeV * kBytesV);
    EXPECT_LE(Config::kSharedBytes, 227 << 10) << "what one CTA may have";
    EXPECT_LE(Config::kCtas * (Config::kSharedBytes + 1024), 228 << 10) << "what an SM has for its CTAs";
  });
}

/// setmaxnreg only redistributes the registers that the CTA was started with. A CTA that asked for more would wait
/// forever.
TEST(Sm90Layouts, Registers) {
  for_each_variant([](auto variant) {
    using Config = decltype(variant);
    constexpr int kAll = 128 * (Config::kConsumers * Config::kConsumerRegisters + Config::kProducerRegisters);
    EXPECT_EQ(Config::kThreads, 128 * (Config::kConsumers + 1));
    EXPECT_EQ(Config::kRows, 64 * Config::kConsumers);
    EXPECT_LE(kAll, Config::kEntryRegisters * Config::kThreads);
    EXPECT_LE(Config::kEntryRegisters * Config::kThreads, 65536);
    for (const int registers : {Config::kConsumerRegisters, Config::kProducerRegisters})
      EXPECT_TRUE(registers % 8 == 0 && registers >= 24 && registers <= 256) << registers;
    EXPECT_GE(Config::kConsumerRegisters, Config::kEntryRegisters) << "setmaxnreg.inc";
    EXPECT_LE(Config::kProducerRegisters, Config::kEntryRegisters) << "setmaxnreg.dec";
  });
}

/// Kind fp8 has V^T with rows of ones below, in numbers of 8 bits.
TEST(Sm90Layouts, KindFp8) {
  using Config = sm90::Fp8Config<sm90::e4m3, 128>;
  alignas(1024) static sm90::e4m3 memory[(128 + Config::kOnes) * 128 * Config::kStages];
  const auto check = [&](const char* what, int rows, int stages, auto layout) {
    const auto place = place_in(memory, layout);
    EXPECT_EQ(differs_from_tma(Box{128, 1}, rows, 128, stages, place), "") << what;
    EXPECT_TRUE(is_bijection(rows, 128, stages, place)) << what;
    EXPECT_EQ(ways(Box{128, 1}, rows, 128, place), 1) << what;
  };
  check("Q", Config::kRows, Config::kStagesQ, Config::LayoutQ{});
  check("K", Config::kKeys, Config::kStages, Config::LayoutK{});
  check("V^T", Config::kDv + Config::kOnes, Config::kStages, Config::LayoutVt{});
  EXPECT_EQ(sizeof(Config::TurnedV), (Config::kDv + Config::kOnes) * 128) << "a stage of LayoutVt";
  EXPECT_LE(Config::kSharedBytes, 227 << 10) << "what one CTA may have";
  EXPECT_EQ(Config::kSharedBytes, Config::kTile.shared_bytes(Config::kStagesQ));
}

}  // namespace
}  // namespace falchion::testing
