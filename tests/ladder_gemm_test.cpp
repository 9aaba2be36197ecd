// tests/ladder_gemm_test.cpp: compares every step of the ladder of matrix products with the definition, on sizes that
// no tile divides.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "judge/gemm.hpp"
#include "ladder/gemm/order.hpp"
#include "ladder/gemm/parts.hpp"
#include "ladder/gemm/shares.hpp"
#include "ladder/gemm/step.hpp"
#include "runtime/runtime.hpp"
#include "support/ladder.hpp"
#include "support/tensor.hpp"

namespace falchion::testing {
namespace {

// The corner cases come first: nothing to write, nothing to add up, one number. Then come rows that are and are not
// pieces of 16 bytes, and sizes around a tile.
constexpr ladder::gemm::Problem kSizes[] = {{0, 5, 3},       {5, 0, 3},       {5, 7, 0},       {1, 1, 1},
                                            {3, 5, 7},       {1, 300, 70},    {300, 1, 70},    {33, 31, 65},
                                            {128, 128, 64},  {129, 127, 63},  {120, 136, 72},  {260, 264, 136},
                                            {257, 515, 130}, {130, 1032, 33}, {2100, 520, 24}, {400, 4000, 9}};
// More tiles than a wave of blocks, and more of k than a ring has stages. In the second and the third one tiles are cut
// along k. In the third one both blocks of a cluster have rows of C, and so have both halves of each block's tile, so
// that the parts of all four are looked at. The branches that split k have two parts in the fourth one, some more in
// the fifth, and all that they want in the last.
constexpr ladder::gemm::Problem kLongSizes[] = {{1, 51000, 400}, {1, 35000, 1410}, {200, 300, 9000},
                                                {67, 41, 600},   {130, 264, 4097}, {20, 30, 65530}};

struct Matrices {
  HostTensor a, b, c;

  Matrices(const ladder::gemm::Problem& p, DType dtype)
      : a(dtype, {1, p.m, 1, p.k}), b(dtype, {1, p.k, 1, p.n}), c(dtype, {1, p.m, 1, p.n}) {
    a.fill_normal(1);
    b.fill_normal(2);
  }
  judge::GemmReference reference(const ladder::gemm::Problem& p, DType dtype) const {
    GemmOperands x;
    x.a = a.view();
    x.b = {b.view().data, dtype, {1, p.n, 1, p.k}, {0, 1, 0, p.n}};
    x.d = c.view();
    return {Gemm{.dtype = dtype, .m = p.m, .n = p.n, .k = p.k}, x};
  }
};

Status run_on_cpu(const ladder::gemm::Step& step, const ladder::gemm::Problem& p, const Matrices& x) {
  std::vector<char> workspace(step.workspace_bytes(p) + 1);
  return step.run(p, {x.a.view().data, x.b.view().data, x.c.view().data, workspace.data()}, nullptr);
}

Status run_on_gpu(const ladder::gemm::Step& step, const ladder::gemm::Problem& p, const Matrices& x) {
  const OnDevice a(x.a.memory_bytes()), b(x.b.memory_bytes()), c(x.c.memory_bytes()),
      workspace(step.workspace_bytes(p));
  const auto copy = [](void* to, const void* from, std::size_t bytes) {
    return bytes == 0 ? Status{} : cuda::copy(to, from, bytes);
  };
  for (const Status& status :
       {copy(a.data(), x.a.memory(), x.a.memory_bytes()), copy(b.data(), x.b.memory(), x.b.memory_bytes()),
        copy(c.data(), x.c.memory(), x.c.memory_bytes())})
    if (!status) return status;
  if (const std::size_t bytes = step.workspace_bytes(p); bytes > 0)
    if (Status status = cuda::fill(workspace.data(), 0xFF, bytes); !status) return status;
  if (Status status = step.run(p, {a.data(), b.data(), c.data(), workspace.data()}, nullptr); !status) return status;
  if (Status status = cuda::synchronize(); !status) return status;
  return copy(x.c.memory(), c.data(), x.c.memory_bytes());
}

template <class Run>
void check_steps(std::span<const ladder::gemm::Problem> sizes, const std::vector<const ladder::gemm::Step*>& steps,
                 const Run& run) {
  for (const ladder::gemm::Problem& p : sizes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (std::none_of(steps.begin(), steps.end(), [&](const auto* step) { return step->dtype == dtype; })) continue;
      Matrices x(p, dtype);
      const judge::GemmReference reference = x.reference(p, dtype);
      for (const ladder::gemm::Step* step : steps) {
        if (step->dtype != dtype) continue;
        SCOPED_TRACE(std::string(step->name) + " " + std::to_string(p.m) + " x " + std::to_string(p.n) + " x " +
                     std::to_string(p.k));
        x.c.fill_poison();
        const Status status = run(*step, p, x);
        ASSERT_TRUE(status) << status.why;
        const judge::ErrorReport report = reference.check(x.c.view());
        EXPECT_TRUE(report.passed()) << report.why;
      }
    }
  }
}

TEST(GemmLadder, CpuStepsGiveTheDefinition) {
  const auto steps = ladder::gemm::cpu_steps();
  check_steps(kSizes, {steps.begin(), steps.end()}, run_on_cpu);
}

TEST(GemmLadder, GpuStepsGiveTheDefinition) {
  if (ladder::gemm::gpu_steps().empty()) GTEST_SKIP() << "this build has no GPU steps (FALCHION_CUDA off)";
  const cuda::Device device = cuda::current_device();
  if (device.sm == 0) GTEST_SKIP() << device.why_not;
  std::vector<const ladder::gemm::Step*> steps;
  for (const ladder::gemm::Step* step : ladder::gemm::gpu_steps())
    if (step->runs_on(device.sm)) steps.push_back(step);
  for (const ladder::gemm::Branch& branch : ladder::gemm::gpu_branches())
    if (branch.step->runs_on(device.sm)) steps.push_back(branch.step);
  check_steps(kSizes, steps, run_on_gpu);
  check_steps(kLongSizes, steps, run_on_gpu);
}

/// Each tile once, whatever the numbers of rows and columns of tiles are.
TEST(GemmLadder, BandsHaveEachTileOnce) {
  for (const auto& [rows, columns] : {std::pair{1, 1}, {1, 40}, {40, 1}, {7, 9}, {8, 8}, {17, 5}, {33, 32}}) {
    std::vector<int> seen(static_cast<std::size_t>(rows * columns));
    for (int tile = 0; tile < rows * columns; ++tile) {
      const ladder::gemm::TilePlace place = ladder::gemm::place_in_bands<8>(tile, rows, columns);
      ASSERT_TRUE(place.row >= 0 && place.row < rows && place.column >= 0 && place.column < columns) << tile;
      ++seen[static_cast<std::size_t>(place.row * columns + place.column)];
    }
    for (const int times : seen) EXPECT_EQ(times, 1) << rows << " x " << columns;
  }
}

/// Each product of each tile is computed once, and the part that begins a tile knows the number of other parts, which
/// the workers after it have in the order of k. A worker's part of another worker's tile comes first, so there is no
/// cycle of waits.
TEST(GemmLadder, SharesHaveEachProductOnce) {
  for (const auto& [tiles, blocks, workers] : {std::tuple{0, 9, 4},
                                               {1, 30, 66},
                                               {3, 500, 66},
                                               {70, 80, 66},
                                               {400, 80, 66},
                                               {400, 64, 66},
                                               {256, 64, 66},
                                               {67, 21, 66},
                                               {66, 100, 66},
                                               {131, 100, 66},
                                               {5, 0, 66},
                                               {7, 1024, 4}}) {
    SCOPED_TRACE(std::to_string(tiles) + " tiles of " + std::to_string(blocks));
    const ladder::gemm::Shares shares(tiles, blocks, workers);
    std::vector<std::vector<int>> owner(static_cast<std::size_t>(tiles), std::vector<int>(blocks, -1));
    for (int worker = 0; worker < workers; ++worker) {
      int number = 0;
      shares.for_each(worker, [&](const ladder::gemm::Share& share) {
        ASSERT_TRUE(share.tile >= 0 && share.tile < tiles && share.first <= share.end && share.end <= blocks);
        EXPECT_TRUE(share.first == 0 || number == 0);
        ++number;
        for (int block = share.first; block < share.end; ++block) {
          int& by = owner[static_cast<std::size_t>(share.tile)][static_cast<std::size_t>(block)];
          EXPECT_EQ(by, -1) << "tile " << share.tile << ", product " << block;
          by = worker;
        }
      });
    }
    for (int worker = 0; worker < workers; ++worker) {
      shares.for_each(worker, [&](const ladder::gemm::Share& share) {
        if (share.first > 0 || blocks == 0) return;
        const std::vector<int>& by = owner[static_cast<std::size_t>(share.tile)];
        EXPECT_EQ(by.back(), worker + shares.others(worker, share));
        EXPECT_TRUE(std::is_sorted(by.begin(), by.end()));
      });
    }
    for (const auto& by : owner)
      for (const int worker : by) EXPECT_GE(worker, 0);
  }
}

/// Each block of k once, in the order of the parts, which are as many as are wanted, unless they would be too short.
TEST(GemmLadder, PartsHaveEachBlockOnce) {
  for (const int blocks : {0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 224, 225, 1023, 1024, 16384}) {
    for (const int wanted : {1, 2, 4, 64, 128}) {
      SCOPED_TRACE(std::to_string(blocks) + " blocks, " + std::to_string(wanted) + " parts wanted");
      const int parts = ladder::gemm::parts_of(blocks, wanted);
      EXPECT_TRUE(parts >= 1 && parts <= wanted);
      if (parts < wanted) { EXPECT_LT(blocks, (parts + 1) * ladder::gemm::kLeastBlocks); }
      int end = 0;
      for (int number = 0; number < parts; ++number) {
        const ladder::gemm::Part part = ladder::gemm::part_of(blocks, number, parts);
        EXPECT_EQ(part.first, end);
        end = part.end;
        const int length = part.end - part.first;
        EXPECT_TRUE(length == blocks / parts || length == blocks / parts + 1) << "part " << number;
        if (parts > 1) { EXPECT_GE(length, ladder::gemm::kLeastBlocks); }
      }
      EXPECT_EQ(end, blocks);
      for (const int number : {parts, parts + 1, parts + 7}) {
        const ladder::gemm::Part part = ladder::gemm::part_of(blocks, number, parts);
        EXPECT_EQ(part.first, part.end);
      }
    }
  }
}

/// The warps of a block have each 16 of a stage once, and as many as each other.
TEST(GemmLadder, SlicesHaveEachSixteenOnce) {
  constexpr int kWarps = 8, kSlices = 2;
  std::vector<int> seen(kWarps * kSlices);
  for (int warp = 0; warp < kWarps; ++warp)
    for (int number = 0; number < kSlices; ++number)
      ++seen.at(static_cast<std::size_t>(ladder::gemm::slice_of(number, warp, kWarps)));
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), kWarps * kSlices);
}

TEST(GemmLadder, EveryStepSaysWhatAndWhy) {
  check_texts(ladder::gemm::cpu_steps());
  check_texts(ladder::gemm::gpu_steps());
  std::vector<const ladder::gemm::Step*> branches;
  for (const ladder::gemm::Branch& branch : ladder::gemm::gpu_branches()) branches.push_back(branch.step);
  check_texts(branches);
}

TEST(GemmLadder, CommandPrintsEveryStepAsJson) {
  check_ladder_command("gemm --cpu --m 70 --n 90 --k 130", ladder::gemm::cpu_steps().size() + 1, {"c"});
}

/// Where all branches run the same problem they are one group, in which each of their parents stands once.
TEST(GemmLadder, CommandPrintsTheBranchesBesideTheirParents) {
  const cuda::Device device = cuda::current_device();
  if (device.sm == 0) GTEST_SKIP() << device.why_not;
  std::set<const ladder::gemm::Step*> steps;
  for (const ladder::gemm::Branch& branch : ladder::gemm::gpu_branches()) {
    if (!branch.step->runs_on(device.sm)) continue;
    steps.insert(branch.step);
    steps.insert(branch.parent);
  }
  if (steps.empty()) GTEST_SKIP() << "no branch runs here";
  check_ladder_command("gemm --branches --m 70 --n 90 --k 600", steps.size(), {"c"});
}

/// A branch and the step that it comes from have the same type, and the branch is no step of the ladder.
TEST(GemmLadder, BranchesComeFromSteps) {
  const auto steps = ladder::gemm::gpu_steps();
  for (const ladder::gemm::Branch& branch : ladder::gemm::gpu_branches()) {
    EXPECT_EQ(std::count(steps.begin(), steps.end(), branch.parent), 1) << branch.step->name;
    EXPECT_EQ(std::count(steps.begin(), steps.end(), branch.step), 0) << branch.step->name;
    EXPECT_EQ(branch.step->dtype, branch.parent->dtype) << branch.step->name;
  }
}

}  // namespace
}  // namespace falchion::testing
