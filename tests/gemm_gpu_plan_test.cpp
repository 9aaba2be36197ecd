// tests/gemm_gpu_plan_test.cpp: what the plan decides for a GEMM on a GPU: the variant, the parts of k, the workspace,
// and which variant takes operands that lie otherwise. No GPU is needed, because target.sm names the architecture.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/gemm.hpp"
#include "plan/gemm_gpu.hpp"
#include "support/choices.hpp"
#include "support/gemm_args.hpp"
#include "support/gemm_plan.hpp"
#include "support/tensor.hpp"

namespace falchion::testing {
namespace {

TEST(GemmGpuPlan, Variants) {
  EXPECT_EQ(level_of(gemm(4096, 4096, 4096), on(90)), "sm90 plain wide");
  EXPECT_EQ(level_of(gemm(4096, 4096, 4096), on(80)), "sm80 plain");
  EXPECT_EQ(level_of(gemm(16, 4096, 4096), on(90)), "sm90 few");
  EXPECT_EQ(level_of(gemm(64, 4096, 4096, DType::f16), on(90)), "sm90 few");
  for (const int sm : {80, 90}) {
    EXPECT_EQ(level_of(gemm(4096, 4096, 4096, DType::f32), on(sm)), "sm80 plain");
    EXPECT_EQ(level_of(gemm(16, 4096, 4096, DType::f32), on(sm)), "sm80 plain few");
    EXPECT_GT(own_cut(decided(gemm(16, 4096, 4096, DType::f32), on(sm))).splits, 8);
  }
  EXPECT_EQ(level_of(gemm(16, 4096, 4096), on(90, Backend::sm80)), "sm80 plain");
  Gemm swiglu = gemm(16, 4096, 4096);
  swiglu.activation = Activation::swiglu;
  EXPECT_NE(level_of(swiglu, on(90)), "sm90 few");
}

/// The sums of a part of k lie in its place whatever their type, those of i8 as i32. A part is whole blocks of k.
TEST(GemmGpuPlan, EightBitTypes) {
  for (const DType dtype : {DType::e4m3, DType::i8}) {
    for (const int sm : {80, 89}) {
      Gemm g = gemm(256, 256, 65536, dtype);
      g.dtype_d = DType::bf16;
      const PlanData plan = decided(g, on(sm));
      EXPECT_EQ(level_of(g, on(sm)), "sm80 general");
      EXPECT_EQ(for_any(plan), plan.variant);
      EXPECT_GT(own_cut(plan).splits, 8);
      EXPECT_EQ(own_cut(plan).depth % (dtype == DType::i8 ? 64 : 16), 0);
      EXPECT_EQ(plan.workspace, static_cast<std::size_t>(own_cut(plan).splits) * 256 * 256 * sizeof(float));
    }
  }
}

/// Hopper has tiles of its own for them. Those of e4m3 are narrower, since their sums need more registers.
TEST(GemmGpuPlan, EightBitTypesOnHopper) {
  for (const DType dtype : {DType::e4m3, DType::i8}) {
    Gemm g = gemm(4096, 4096, 4096, dtype);
    g.dtype_d = DType::bf16;
    g.scaling = Scaling::row_col;
    const PlanData plan = decided(g, on(90));
    EXPECT_EQ(level_of(g, on(90)), dtype == DType::i8 ? "sm90 bytes" : "sm90 bytes tall");
    EXPECT_EQ(level_of(g, on(90, Backend::sm80)), "sm80 general");
    EXPECT_EQ(plan.gemm().rows, dtype == DType::i8 ? 256 : 512);
    EXPECT_EQ(plan.gemm().columns, dtype == DType::i8 ? 256 : 128);
    EXPECT_EQ(own_cut(plan).depth % 128, 0);
    EXPECT_STREQ(for_any(plan)->level, "general");
    const std::string story = explain(g, on(90));
    const std::string needs =
        "16-byte aligned, a and b contiguous along k, strides that TMA accepts (above 0; if k has two axes, the inner "
        "one a multiple of 128): ";
    EXPECT_NE(story.find(needs), std::string::npos) << story;
  }
}

TEST(GemmGpuPlan, ScalesOfBlocksAreForCpus) {
  Gemm g = gemm(4096, 4096, 4096, DType::e4m3);
  g.dtype_d = DType::bf16;
  g.scaling = Scaling::block128;
  for (const Backend backend : {Backend::best, Backend::sm80, Backend::sm90}) {
    PlanData plan;
    const Status status = plan_problem(g, Pass::forward, on(90, backend), &plan, true);
    EXPECT_EQ(status.code, Code::unsupported);
    EXPECT_NE(status.why.find("scales of blocks of 128 are built for CPUs alone"), std::string::npos) << status.why;
  }
}

/// k is cut where tiles alone would leave most SMs idle; the workspace holds the sums of each part, or those of the
/// variant for other operands where these are more.
TEST(GemmGpuPlan, PartsOfK) {
  for (const int sm : {80, 90}) {
    const PlanData large = decided(gemm(8192, 8192, 8192), on(sm)), deep = decided(gemm(256, 256, 65536), on(sm));
    EXPECT_EQ(own_cut(large).splits, 1);
    if (sm == 80) { EXPECT_EQ(large.workspace, 0U); }
    EXPECT_GT(own_cut(deep).splits, 8);
    const int most = std::max(own_cut(deep).splits, sm == 90 ? last_cut(deep).splits : 1);
    EXPECT_EQ(deep.workspace, static_cast<std::size_t>(most) * 256 * 256 * sizeof(float));
    EXPECT_EQ(own_cut(deep).depth % 64, 0);
    EXPECT_GE(own_cut(deep).splits * own_cut(deep).depth, 65536);
  }
  EXPECT_EQ(own_cut(decided(gemm(64, 64, 0), on(90))).splits, 1);
}

/// Few rows on Hopper: the parts of k are a cluster of 1 to 8 CTAs with blocks for each, tiles are narrower where SMs
/// would be idle, and most SMs have the same to load.
TEST(GemmGpuPlan, FewRowsAreCutIntoClusters) {
  for (const std::int64_t m : {1, 16, 64})
    for (const std::int64_t n : {256, 1024, 4096, 6144, 10240, 28672})
      for (const std::int64_t k : {64, 1024, 4096, 14336}) {
        const GemmGpuCut cut = own_cut(decided(gemm(m, n, k), on(90)));
        SCOPED_TRACE(text(m, " x ", n, " x ", k, ": ", cut.columns, " columns, ", cut.splits, " CTAs"));
        EXPECT_TRUE(cut.splits >= 1 && cut.splits <= 8);
        EXPECT_TRUE(cut.columns >= 16 && cut.columns <= 128 && cut.columns % 16 == 0);
        EXPECT_GE(cut.items * cut.columns, n);
        EXPECT_TRUE(cut.splits == 1 || k / 64 >= 4 * cut.splits);
        const std::int64_t ctas = cut.items * cut.splits, rounds = ctas / 132 + (ctas % 132 != 0);
        if (n >= 4096 && k >= 4096) { EXPECT_GE(ctas, rounds * 132 * 8 / 10); }
      }
}

/// A tile whose columns are no boxes of 64 is for operands along k; the best other tile takes those along their rows.
TEST(GemmGpuPlan, OperandsAlongRowsHaveATileOfWholeBoxes) {
  const PlanData plan = decided(gemm(5120, 5120, 5120), on(90));
  ASSERT_GE(plan.gpu.choices.size(), 2U);
  EXPECT_EQ(plan.gpu.choices[0].variant->name(), "plain broad");
  EXPECT_EQ(plan.gpu.choices[1].variant->name(), "plain wide");
}

/// The parts of the variants that take what TMA cannot follow are summed in the workspace, as before.
TEST(GemmGpuPlan, FewRowsThatLieOtherwiseHaveAWorkspace) {
  const PlanData plan = decided(gemm(16, 4096, 4096), on(90));
  const GemmGpuCut &own = own_cut(plan), &other = last_cut(plan);
  EXPECT_EQ(own.splits, 2);
  EXPECT_GT(other.splits, 1);
  EXPECT_EQ(other.columns, 0);
  EXPECT_EQ(plan.workspace, static_cast<std::size_t>(other.splits) * 16 * 4096 * sizeof(float));
}

/// As many CTAs share an SM as its shared memory has room for: 164 KB on sm_80, 100 KB on sm_86 and sm_89, 228 KB on
/// Hopper. Those of few take 47.5 KB, those of a tile 96 KB in 16 bits and 66 KB in f32, and each takes one more.
TEST(GemmGpuPlan, AsManyCtasAnSmAsSharedMemoryHasRoomFor) {
  const auto ctas = [](const Gemm& g, int sm) { return decided(g, on(sm, Backend::sm80)).gpu.ctas; };
  const Gemm few = gemm(16, 4096, 4096, DType::f32), single = gemm(4096, 4096, 4096, DType::f32),
             half = gemm(4096, 4096, 4096);
  for (const auto& [sm, of_few, of_single, of_half] :
       {std::array{80, 3, 2, 1}, {86, 2, 1, 1}, {89, 2, 1, 1}, {90, 4, 2, 2}}) {
    EXPECT_EQ(ctas(few, sm), of_few) << sm;
    EXPECT_EQ(ctas(single, sm), of_single) << sm;
    EXPECT_EQ(ctas(half, sm), of_half) << sm;
  }
  const std::string story = explain(few, on(80));
  const std::int64_t on_an_a100 = 32 * own_cut(decided(few, on(80))).splits;
  EXPECT_NE(story.find(text(on_an_a100, " CTAs, 3 an SM: 1 wave")), std::string::npos) << story;
}

/// A CTA of few has more of an SM that it has for itself than one of the four that are meant to share it. So what is
/// one CTA for each SM is not cut further, into parts of a few blocks that have to be written and added up.
TEST(GemmGpuPlan, ACtaAloneHasMoreThanItsShare) {
  const GemmGpuCut cut = own_cut(decided(gemm(16, 512, 4096, DType::f32), on(90)));
  EXPECT_EQ(cut.items, 4);
  EXPECT_EQ(cut.splits, 32);
}

TEST(GemmGpuPlan, AGridThatIsTooLargeIsRefused) {
  Gemm g = gemm(1, 1 << 20, 64);
  g.batch = std::int64_t{1} << 30;
  PlanData plan;
  const Status status = plan_problem(g, Pass::forward, on(80), &plan, true);
  EXPECT_EQ(status.code, Code::unsupported);
  EXPECT_NE(status.why.find("are over the grid's limit of 2147483647"), std::string::npos) << status.why;
}

TEST(GemmGpuPlan, TheStoryTellsWhatWasDecided) {
  const std::string wide = explain(gemm(4096, 4096, 4096), on(90)), few = explain(gemm(16, 4096, 4096), on(90));
  EXPECT_NE(wide.find("tile        256 x 256 of D by 2 CTAs together, over 64 of k at a time, 4 in flight"),
            std::string::npos)
      << wide;
  EXPECT_NE(wide.find("sm90 few bf16         it is for at most 64 rows of a, but here are 4096"), std::string::npos)
      << wide;
  EXPECT_NE(few.find("k in 2 parts, added up in order by the CTAs of a cluster"), std::string::npos) << few;
  EXPECT_NE(
      wide.find(
          "choices     a run takes the first that its operands fit\n"
          "  sm90 plain wide  16-byte aligned, strides that TMA accepts (above 0; if k has two axes, the inner one a "
          "multiple of 64): 256 tiles, k stays whole\n"
          "  sm80 plain       16-byte aligned: 1024 tiles, k stays whole\n"
          "  sm80 general     any operands: 1024 tiles, k stays whole\n"),
      std::string::npos)
      << wide;
  const std::string narrow = explain(gemm(32768, 128, 4096), on(90));
  EXPECT_NE(narrow.find("sm90 plain wide bf16    256 CTAs for 132 SMs: some "), std::string::npos) << narrow;
}

/// The workspace of a batch may be only for the parts of one matrix, so explain() mentions it.
TEST(GemmGpuPlan, TheStoryOfABatchTellsOfOneMatrix) {
  Gemm decode = gemm(1, 1024, 1024);
  decode.batch = 64;
  const GemmGpuCut merged = decided(decode, on(90)).gpu.choices.front().cut_as<GemmGpuCut>();
  const std::string story = explain(decode, on(90));
  EXPECT_NE(story.find(text(
                "  sm90 few      a batch that shares b and is one matrix of m = 64, 16-byte aligned, strides that TMA "
                "accepts (above 0; if k has two axes, the inner one a multiple of 64): ",
                merged.items, " tiles, ")),
            std::string::npos)
      << story;
  EXPECT_NE(story.find("one b       2.36 MB where the batch shares b: 57 flop/B"), std::string::npos) << story;
  EXPECT_EQ(explain(gemm(64, 1024, 1024), on(90)).find("one matrix"), std::string::npos);
}

/// How operands lie, and what takes them: a matrix m x k of a dense tensor, with its strides changed.
class GemmOperandsOnGpu : public ::testing::Test {
 protected:
  static constexpr std::int64_t kM = 512, kN = 256, kK = 128;
  GemmOperands operands() {
    GemmOperands x;
    x.a = Tensor::dense(memory_.data(), DType::bf16, {1, kM, 1, kK});
    x.b = Tensor::dense(memory_.data(), DType::bf16, {1, kN, 1, kK});
    x.d = Tensor::dense(memory_.data(), DType::bf16, {1, kM, 1, kN});
    return x;
  }
  static std::string taken(const GemmOperands& x, const Target& target) {
    const PlanData plan = decided(gemm(kM, kN, kK), target);
    return taken_for(plan, layout_of(plan, x));
  }
  static gpu::GemmArgs args(const GemmOperands& x, const Target& target) {
    const PlanData plan = decided(gemm(kM, kN, kK), target);
    return to_gpu_gemm_args(plan, *plan.variant, x, nullptr);
  }
  alignas(16) std::vector<std::uint16_t> memory_ = std::vector<std::uint16_t>(1 << 19);
  const Target sm80_ = on(90, Backend::sm80), sm90_ = on(90, Backend::sm90);
};

TEST_F(GemmOperandsOnGpu, DenseOnesAreMovedAlongK) {
  EXPECT_EQ(taken(operands(), sm80_), "sm80 plain");
  EXPECT_EQ(taken(operands(), sm90_), "sm90 plain narrow");
  const gpu::GemmArgs x = args(operands(), sm90_);
  EXPECT_TRUE(x.a_major == gpu::Major::k && x.b_major == gpu::Major::k && x.d_boxes && x.d_whole);
}

/// TMA loads a B that lies along its rows in boxes of 64 of them, so tiles for few rows are then as many columns wide.
TEST_F(GemmOperandsOnGpu, TilesForFewRowsAreWholeBoxes) {
  GemmOperands x = operands();
  const PlanData plan = decided(gemm(8, kN, kK), sm90_);
  const std::int64_t columns = own_cut(plan).columns;
  ASSERT_LT(columns, 64);
  x.a.shape[1] = x.d.shape[1] = 8;
  gpu::GemmArgs args = to_gpu_gemm_args(plan, *plan.variant, x, nullptr);
  EXPECT_EQ(args.columns, columns);
  EXPECT_EQ(args.tiles_n, kN / columns);
  x.b.stride = {kN * kK, 1, kN * kK, kN};
  args = to_gpu_gemm_args(plan, *plan.variant, x, nullptr);
  EXPECT_EQ(args.columns, 64);
  EXPECT_EQ(args.tiles_n, kN / 64);
  ASSERT_EQ(plan.gpu.choices.size(), 3U) << "few, tile and general";
  args = to_gpu_gemm_args(plan, *plan.gpu.choices[1].variant, x, nullptr);
  EXPECT_EQ(args.tiles_n, kN / 128);
}

TEST_F(GemmOperandsOnGpu, TransposedOnesAreMovedAlongRows) {
  GemmOperands x = operands();
  x.a.stride = {kM * kK, 1, kM * kK, kM};
  EXPECT_EQ(taken(x, sm80_), "sm80 plain");
  EXPECT_EQ(taken(x, sm90_), "sm90 plain narrow");
  EXPECT_TRUE(args(x, sm90_).a_major == gpu::Major::rows);
}

TEST_F(GemmOperandsOnGpu, OddStridesGoToTheGeneralVariant) {
  GemmOperands x = operands();
  x.a.stride = {kM * (kK + 1), kK + 1, kK, 1};
  EXPECT_EQ(taken(x, sm80_), "sm80 general unaligned");
  EXPECT_EQ(taken(x, sm90_), "sm80 general unaligned");
}

/// TMA follows no negative strides, which cp.async does.
TEST_F(GemmOperandsOnGpu, ReversedRowsGoFromTmaToTiles) {
  GemmOperands x = operands();
  x.a.data = memory_.data() + (kM - 1) * kK;
  x.a.stride = {kM * kK, -kK, kK, 1};
  EXPECT_EQ(taken(x, sm80_), "sm80 plain");
  EXPECT_EQ(taken(x, sm90_), "sm80 plain");
}

/// Of two axes of k the inner one may have one element; then the outer one is k, here of a transposed matrix.
TEST_F(GemmOperandsOnGpu, AnInnerAxisOfOneElementIsNone) {
  GemmOperands x = operands();
  x.a.shape = {1, kM, kK, 1};
  x.a.stride = {kM * kK, 1, kM, 5};
  x.b.shape = {1, kN, kK, 1};
  x.b.stride = {kN * kK, 1, kN, 5};
  EXPECT_EQ(taken(x, sm80_), "sm80 plain");
  EXPECT_EQ(taken(x, sm90_), "sm90 plain narrow");
  EXPECT_TRUE(args(x, sm90_).a_major == gpu::Major::rows);
}

/// Heads of 64 numbers are boxes of TMA, smaller ones are not.
TEST_F(GemmOperandsOnGpu, HeadsAreBoxesOfTma) {
  for (const std::int64_t k1 : {64, 16}) {
    GemmOperands x = operands();
    x.a.shape = {1, kM, kK / k1, k1};
    x.a.stride = {kM * kK, k1, kM * k1, 1};  // heads first
    x.b.shape = {1, kN, kK / k1, k1};
    x.b.stride = {kN * kK, kK, k1, 1};
    EXPECT_EQ(taken(x, sm80_), "sm80 plain");
    EXPECT_EQ(taken(x, sm90_), k1 == 64 ? "sm90 plain narrow" : "sm80 plain");
  }
}

/// The same for bytes, of which 16 are a chunk and 128 a box.
class GemmBytesOnGpu : public ::testing::Test {
 protected:
  static constexpr std::int64_t kM = 512, kN = 256, kK = 256;
  GemmOperands operands() {
    GemmOperands x;
    x.a = Tensor::dense(memory_.data(), DType::i8, {1, kM, 1, kK});
    x.b = Tensor::dense(memory_.data(), DType::i8, {1, kN, 1, kK});
    x.d = Tensor::dense(memory_.data(), DType::bf16, {1, kM, 1, kN});
    return x;
  }
  static PlanData plan_of(const Target& target) {
    Gemm g = gemm(kM, kN, kK, DType::i8);
    g.dtype_d = DType::bf16;
    return decided(g, target);
  }
  static std::string taken(const GemmOperands& x) {
    const PlanData plan = plan_of(on(90, Backend::sm90));
    return taken_for(plan, layout_of(plan, x));
  }
  alignas(16) std::vector<std::uint16_t> memory_ = std::vector<std::uint16_t>(1 << 19);
};

TEST_F(GemmBytesOnGpu, DenseOnesAreMovedAlongK) {
  EXPECT_EQ(taken(operands()), "sm90 bytes narrow");
  const PlanData plan = plan_of(on(90, Backend::sm90));
  const gpu::GemmArgs x = to_gpu_gemm_args(plan, *plan.variant, operands(), nullptr);
  EXPECT_TRUE(x.a_major == gpu::Major::k && x.b_major == gpu::Major::k && x.d_boxes && !x.plain);
}

/// wgmma takes bytes along k alone, and TMA rows that lie multiples of 16 bytes apart.
TEST_F(GemmBytesOnGpu, AllOthersGoToTheGeneralVariant) {
  GemmOperands x = operands();
  x.a.stride = {kM * kK, 1, kM * kK, kM};
  EXPECT_EQ(taken(x), "sm80 general");
  x = operands();
  x.b.stride = {kN * kK, 1, kN * kK, kN};
  EXPECT_EQ(taken(x), "sm80 general");
  x = operands();
  x.a.stride = {kM * (kK + 8), kK + 8, kK, 1};
  EXPECT_EQ(taken(x), "sm80 general unaligned");
  x = operands();
  x.a.data = reinterpret_cast<std::uint8_t*>(memory_.data()) + 8;
  EXPECT_EQ(taken(x), "sm80 general unaligned");
  x = operands();
  x.a.data = reinterpret_cast<std::uint8_t*>(memory_.data()) + (kM - 1) * kK;
  x.a.stride = {kM * kK, -kK, kK, 1};
  EXPECT_EQ(taken(x), "sm80 general");
}

TEST_F(GemmBytesOnGpu, HeadsAreBoxesOfTma) {
  for (const std::int64_t k1 : {128, 64}) {
    GemmOperands x = operands();
    x.a.shape = {1, kM, kK / k1, k1};
    x.a.stride = {kM * kK, k1, kM * k1, 1};  // heads first
    x.b.shape = {1, kN, kK / k1, k1};
    x.b.stride = {kN * kK, kK, k1, 1};
    EXPECT_EQ(taken(x), k1 == 128 ? "sm90 bytes narrow" : "sm80 general");
  }
}

}  // namespace
}  // namespace falchion::testing
