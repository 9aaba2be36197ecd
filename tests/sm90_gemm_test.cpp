// tests/sm90_gemm_test.cpp: walks on the host through the shared memory of every GEMM tile of tiles/gemm/tiles.def
// for Hopper. TMA must write each element of A and B where wgmma looks for it, and of C and the residual where the lane
// that has its sum looks for it; D must lie where TMA fetches it; shared memory and registers must suffice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED  // as src/sm90/gemm/plain.cuh
#include <cute/tensor.hpp>                     // CuTe's headers need this one first.

#include "support/host_warp.hpp"  // It has the functions that the config's headers call on a device.

#include "gpu/blocks/lane_blocks.hpp"
#include "sm90/gemm/config.hpp"

namespace falchion::testing {
namespace {

using namespace cute;
using gpu::LaneBlocks;
using gpu::Major;
using sm90::GemmConfig, sm90::GemmKind;

/// Calls f(Config{}) for every tile, in every way in which its operands may lie. Bytes lie along k alone.
template <class F>
void for_each_variant(F f) {
  int count = 0;
  const auto call = [&](auto config, const char* kind) {
    using Config = decltype(config);
    SCOPED_TRACE(std::string(kind) + (Config::kMajorA == Major::k ? ", a along k" : ", a along rows") +
                 (Config::kMajorB == Major::k ? ", b along k" : ", b along rows"));
    f(config);
    ++count;
  };
  constexpr auto k = Major::k, rows = Major::rows;
  const auto call_all = [&]<GemmKind kind, VariantTile tile>(std::integral_constant<GemmKind, kind>,
                                                             std::integral_constant<VariantTile, tile>,
                                                             const char* name) {
    if constexpr (kind == GemmKind::e4m3) {
      call(GemmConfig<sm90::e4m3, k, k, tile>{}, name);
    } else if constexpr (kind == GemmKind::i8) {
      call(GemmConfig<sm90::i8, k, k, tile>{}, name);
    } else {
      call(GemmConfig<sm90::bf16, k, k, tile>{}, name);
      if constexpr (!sm90::gemm_tiles(kind, tile).only_along_k()) {
        call(GemmConfig<sm90::f16, k, rows, tile>{}, name);
        call(GemmConfig<sm90::bf16, rows, k, tile>{}, name);
        call(GemmConfig<sm90::f16, rows, rows, tile>{}, name);
      }
    }
  };
#define TILE_gemm_sm90(kind, d, tile, ...)                     \
  call_all(std::integral_constant<GemmKind, GemmKind::kind>{}, \
           std::integral_constant<VariantTile, VariantTile::tile>{}, #kind " " #tile);
#include "tiles/gemm/tiles.def"
  EXPECT_GE(count, 22);  // four tiles of 16 bits, lying in four ways, one along k alone, and five of bytes
}

/// Where TMA puts an element of a box whose lines have 128 bytes, counted in elements: the 16-byte chunks of a line are
/// swizzled.
int in_box(int line, int at, int element_bytes) {
  const int chunk = 16 / element_bytes;
  return line * (128 / element_bytes) + (at / chunk ^ line % 8) * chunk + at % chunk;
}
/// The same of a stage of an operand that has so many rows for each block of k. Along k the boxes of a stage are the
/// rows one after another; along rows each box has 64 of them, with a line for each k.
int in_stage(Major major, int row, int k, int depth, int element_bytes) {
  if (major == Major::k) return in_box(row, k, element_bytes);
  return row / 64 * (64 * depth) + in_box(k, row % 64, element_bytes);
}

template <class Config>
typename Config::Shared& shared_memory() {
  alignas(1024) static std::byte memory[sizeof(typename Config::Shared)];
  return *reinterpret_cast<typename Config::Shared*>(memory);
}

/// Every element of an operand lies where TMA puts it, and no two at one place.
template <Major kMajor, class Config, class Element, class Layout_>
void expect_as_tma_writes(Element* first, Layout_ layout, int rows) {
  const auto x = make_tensor(make_smem_ptr(first), layout);
  std::vector<bool> taken(static_cast<std::size_t>(rows * Config::kDepth * Config::kStages));
  for (int stage = 0; stage < Config::kStages; ++stage)
    for (int row = 0; row < rows; ++row)
      for (int k = 0; k < Config::kDepth; ++k) {
        const auto place = static_cast<int>(&x(row, k, stage) - first);
        const int of_tma =
            stage * rows * Config::kDepth + in_stage(kMajor, row, k, Config::kDepth, static_cast<int>(sizeof(Element)));
        ASSERT_EQ(place, of_tma) << "row " << row << ", k " << k << ", stage " << stage;
        ASSERT_FALSE(taken[static_cast<std::size_t>(place)]);
        taken[static_cast<std::size_t>(place)] = true;
      }
}

TEST(Sm90GemmLayouts, TmaWritesWhereWgmmaReads) {
  for_each_variant([](auto variant) {
    using Config = decltype(variant);
    auto& shared = shared_memory<Config>();
    expect_as_tma_writes<Config::kMajorA, Config>(shared.a[0], typename Config::LayoutA{}, Config::kRows);
    expect_as_tma_writes<Config::kMajorB, Config>(shared.b[0], typename Config::LayoutB{}, Config::kColumns);
  });
}

/// The CTAs of a cluster load the boxes of B in turns, and each row of B is in one of them.
TEST(Sm90GemmLayouts, BoxesAreTheWholeOfB) {
  for_each_variant([](auto variant) {
    using Config = decltype(variant);
    std::vector<int> loaded(Config::kColumns);
    for (int rank = 0; rank < Config::kCluster; ++rank)
      for (int first = rank * Config::kBoxRows; first < Config::kColumns; first += Config::kCluster * Config::kBoxRows)
        for (int row = first; row < first + Config::kBoxRows; ++row) ++loaded[static_cast<std::size_t>(row)];
    EXPECT_EQ(loaded, std::vector<int>(Config::kColumns, 1));
    EXPECT_LE(std::max(Config::kRows, Config::kBoxRows), 256) << "rows of a box";
  });
}

/// The hardware swizzles address bits, so whatever is moved by TMA begins at a multiple of 1024 bytes.
TEST(Sm90GemmLayouts, BoxesAreAligned) {
  for_each_variant([](auto variant) {
    using Config = decltype(variant);
    constexpr auto kBytes = sizeof(typename Config::Element);
    auto& shared = shared_memory<Config>();
    const auto at = [](const auto& x) { return reinterpret_cast<std::uintptr_t>(&x) % 1024; };
    EXPECT_EQ(at(shared.a), 0U);
    EXPECT_EQ(at(shared.b), 0U);
    EXPECT_EQ(at(shared.out), 0U);
    EXPECT_EQ(sizeof(shared.a[0]) % 1024, 0U);
    EXPECT_EQ(sizeof(shared.b[0]) % 1024, 0U);
    EXPECT_EQ(sizeof(shared.out[0]) % 1024, 0U);
    EXPECT_EQ(Config::kBoxRows * Config::kDepth * kBytes % 1024, 0U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&shared.of_columns) % 8, 0U) << "two columns are read at a time";
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&shared.full) % 8, 0U) << "barriers";
  });
}

TEST(Sm90GemmLayouts, SharedMemory) {
  for_each_variant([](auto variant) {
    using Config = decltype(variant);
    EXPECT_LE(Config::kSharedBytes, 227 << 10) << "what one CTA may have";
    EXPECT_EQ(Config::kSharedBytes, sm90::gemm_facts(Config::kTile.kind, Config::kTile.name).shared_bytes);
  });
}

/// setmaxnreg only redistributes the registers that the CTA was started with: 168 for each of three warpgroups.
TEST(Sm90GemmLayouts, Registers) {
  for_each_variant([](auto variant) {
    using Config = decltype(variant);
    constexpr int kEntry = 65536 / Config::kThreads / 8 * 8;
    if (Config::kConsumerRegisters == 0) {  // two warpgroups, whose threads have up to 255 as it is
      EXPECT_EQ(Config::kProducerRegisters, 0);
      EXPECT_GE(kEntry, 256);
      return;
    }
    EXPECT_LE(Config::kConsumers * Config::kConsumerRegisters + Config::kProducerRegisters,
              kEntry * (Config::kConsumers + 1));
    for (const int registers : {Config::kConsumerRegisters, Config::kProducerRegisters})
      EXPECT_TRUE(registers % 8 == 0 && registers >= 24 && registers <= 256) << registers;
    EXPECT_GE(Config::kConsumerRegisters, kEntry) << "setmaxnreg.inc";
    EXPECT_LE(Config::kProducerRegisters, kEntry) << "setmaxnreg.dec";
    const int accumulators = Config::kPromoted ? (Config::kWaves == 1 ? 2 : 1) : 0;
    EXPECT_GE(Config::kConsumerRegisters, Config::kNumbers + accumulators * Config::kColumns / 2 + 40) << "the sums";
  });
}

// ---- What follows the sums ------------------------------------------------------------------------------------------

/// Calls f for each tile with operands that lie in one way, since what follows the sums is the same in all.
template <class F>
void for_each_tile(F f) {
  for_each_variant([&](auto variant) {
    using Config = decltype(variant);
    if constexpr (Config::kMajorA == Major::k && Config::kMajorB == Major::k) f(variant);
  });
}

/// Calls f(warp, lane, number, row, column) for each sum of each lane, as CuTe says wgmma leaves them: row and column
/// of the tile.
template <class Config, class F>
void for_each_sum(F f) {
  const auto places = make_identity_tensor(Shape<Int<Config::kRows>, Int<Config::kColumns>>{});
  for (int thread = 0; thread < 128 * Config::kConsumers; ++thread) {
    const auto own = typename Config::Mma{}.get_thread_slice(thread).partition_C(places);
    ASSERT_EQ(static_cast<int>(size(own)), Config::kNumbers);
    for (int i = 0; i < static_cast<int>(size(own)); ++i)
      f(thread / 32, thread % 32, i, static_cast<int>(get<0>(own(i))), static_cast<int>(get<1>(own(i))));
  }
}

/// The byte from which ldmatrix gives a lane number 0 to 7 of a block of 16 x 16, and at which stmatrix puts it, where
/// `address(lane)` are the 16 bytes that each lane names.
template <class Address>
int byte_of_number(int lane, int number, Address address) {
  const int matrix = number / 2;
  return static_cast<int>(address(8 * matrix + lane / 4)) + lane % 4 * 4 + number % 2 * 2;
}

/// The epilogue counts on that: number 4 atom + 2 half + column of a lane in a wave is of 8 atom + 2 (lane % 4) +
/// column, in the row lane / 4 + 8 half of the warp.
TEST(Sm90GemmLayouts, SumsArePairsOfColumns) {
  for_each_tile([](auto variant) {
    using Config = decltype(variant);
    for_each_sum<Config>([](int warp, int lane, int i, int row, int column) {
      const int wave = i / (Config::kColumns / 2), in_wave = i % (Config::kColumns / 2);
      ASSERT_EQ(row, Config::row_of(wave, warp) + lane / 4 + i / 2 % 2 * 8);
      ASSERT_EQ(column, in_wave / 4 * 8 + lane % 4 * 2 + i % 2);
    });
  });
}

/// A stage of the ring has room for the boxes of C or the residual, and what is waited for are their bytes.
TEST(Sm90GemmLayouts, AStageHoldsBoxesOfC) {
  for_each_tile([](auto variant) {
    using Config = decltype(variant);
    auto& shared = shared_memory<Config>();
    EXPECT_EQ(sizeof(shared.a[0]), Config::kRows * 128U);
    EXPECT_TRUE(Config::kAddendColumns == 64 || sizeof(shared.b[0]) >= Config::kRows * 128U);
    EXPECT_EQ(Config::kColumns % 32, 0);
  });
}

/// Each lane finds C of its own sums where TMA has put it: in place of A, or of 128 columns the last 64 in place of B.
TEST(Sm90GemmLayouts, LanesFindCOfTheirSums) {
  for_each_tile([](auto variant) {
    using Config = decltype(variant);
    for_each_sum<Config>([](int warp, int lane, int i, int row, int column) {
      constexpr int kOfWave = Config::kColumns / 2;
      const int block = i % kOfWave / 8 % (Config::kAddendColumns / 16);  // of 16 columns, among those of a stage
      ASSERT_EQ(i % kOfWave / 8 * 16, column / 16 * 16);
      ASSERT_EQ(block / 4, column % Config::kAddendColumns / 64) << "in place of A or of B";
      const auto address = [&](int of) {
        const int first = Config::row_of(i / kOfWave, warp);
        const LaneBlocks rows = LaneBlocks{LaneBlocks::down_first(of)}.from<Config::kRows>(first, 0);
        return rows.at<Config::kRows>(0, block % 4 * 16);
      };
      ASSERT_EQ(byte_of_number(lane, i % 8, address), 2 * in_box(row, column % 64, 2)) << row << ", " << column;
    });
  });
}

/// A warp puts 64 columns of its 16 rows of D where TMA looks for them. Each column is in a box, and none in more than
/// two.
TEST(Sm90GemmLayouts, TmaFindsDOfTheSums) {
  for_each_tile([](auto variant) {
    using Config = decltype(variant);
    for_each_sum<Config>([](int warp, int lane, int i, int row, int column) {
      constexpr int kOfWave = Config::kColumns / 2;
      const int row_of_box = row - Config::row_of(i / kOfWave, warp);
      int boxes = 0;
      for (int box = 0; box < Config::kBoxes; ++box) {
        const int begin = Config::box_column(box), in = i % kOfWave - begin / 2;  // among the sums of the box
        ASSERT_EQ(in >= 0 && in < 32, column >= begin && column < begin + 64) << "the box";
        if (in < 0 || in >= 32) continue;
        ++boxes;
        const auto address = [&](int of) { return LaneBlocks{LaneBlocks::down_first(of)}.at<16>(0, in / 8 * 16); };
        ASSERT_EQ(byte_of_number(lane, in % 8, address), 2 * in_box(row_of_box, column - begin, 2));
      }
      ASSERT_TRUE(boxes == 1 || (boxes == 2 && Config::kColumns % 64 != 0)) << boxes;
    });
  });
}

/// The same of D in i32, of which a box has 32 columns.
TEST(Sm90GemmLayouts, TmaFindsDInI32) {
  for_each_tile([](auto variant) {
    using Config = decltype(variant);
    if constexpr (std::is_same_v<typename Config::Sum, std::int32_t>)
      for_each_sum<Config>([](int warp, int lane, int i, int row, int column) {
        constexpr int kOfWave = Config::kColumns / 2;
        ASSERT_EQ(i % kOfWave / 16, column / 32) << "the box";
        const int half = i / 2 % 2, atom = i % 16 / 4;
        const int byte = sm90::byte_of_pair(lane / 4 + 8 * half, 8 * atom + 2 * (lane % 4)) + i % 2 * 4;
        ASSERT_EQ(byte, 4 * in_box(row - Config::row_of(i / kOfWave, warp), column % 32, 4));
      });
  });
}

}  // namespace
}  // namespace falchion::testing
