// tests/gemm_gpu_kinds_test.cpp: which of Hopper's tiles the plan takes for a GEMM, which tiles it cuts along k, what
// the workspace then holds, and when D goes through boxes of TMA. No GPU is needed.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "plan/gemm.hpp"
#include "plan/gemm_gpu.hpp"
#include "support/gemm.hpp"
#include "support/gemm_args.hpp"
#include "support/gemm_plan.hpp"
#include "support/tensor.hpp"

namespace falchion::testing {
namespace {

TEST(GemmGpuKinds, FollowTheShape) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    EXPECT_EQ(level_of(gemm(4096, 4096, 4096, dtype), on(90)), "sm90 plain wide");
    EXPECT_EQ(level_of(gemm(512, 6144, 4096, dtype), on(90)), "sm90 plain medium");
    EXPECT_EQ(level_of(gemm(32768, 128, 4096, dtype), on(90)), "sm90 plain slim");
    EXPECT_EQ(level_of(gemm(512, 28672, 4096, dtype), on(90)), "sm90 plain broad");
    EXPECT_EQ(level_of(gemm(5120, 5120, 5120, dtype), on(90)), "sm90 plain broad");
    EXPECT_EQ(level_of(gemm(1024, 1024, 1024, dtype), on(90)), "sm90 plain narrow");
  }
}

/// Each of these is the fastest of its type on an H200.
TEST(GemmGpuKinds, OfBytesFollowTheShape) {
  const auto taken = [](DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
    Gemm g = gemm(m, n, k, dtype);
    g.dtype_d = dtype == DType::i8 ? DType::i32 : DType::bf16;
    return level_of(g, on(90));
  };
  for (const std::int64_t size : {2048, 4096, 5120, 8192}) {
    EXPECT_EQ(taken(DType::e4m3, size, size, size), "sm90 bytes tall") << size;
    EXPECT_EQ(taken(DType::i8, size, size, size), "sm90 bytes") << size;
  }
  for (const auto& [n, k] : {std::pair{8192, 8192}, {6144, 4096}, {28672, 4096}}) {
    EXPECT_EQ(taken(DType::e4m3, 512, n, k), "sm90 bytes tall") << n;
    EXPECT_EQ(taken(DType::i8, 512, n, k), "sm90 bytes") << n;
  }
  EXPECT_EQ(taken(DType::e4m3, 128, 8192, 8192), "sm90 bytes");
  EXPECT_EQ(taken(DType::e4m3, 64, 6144, 4096), "sm90 bytes");
  EXPECT_EQ(taken(DType::i8, 128, 8192, 8192), "sm90 bytes");
  for (const DType dtype : {DType::e4m3, DType::i8}) EXPECT_EQ(taken(dtype, 1024, 1024, 1024), "sm90 bytes narrow");
}

TEST(GemmGpuKinds, EachHasItsColumns) {
  const auto columns = [](const Gemm& g) { return decided(g, on(90)).gemm().columns; };
  EXPECT_EQ(columns(gemm(4096, 4096, 4096)), 256);
  EXPECT_EQ(columns(gemm(512, 6144, 4096)), 192);
  EXPECT_EQ(columns(gemm(512, 28672, 4096)), 224);
  EXPECT_EQ(columns(gemm(32768, 128, 4096)), 128);
  EXPECT_EQ(columns(gemm(1024, 1024, 1024)), 128);
}

/// The plan weighs the kinds by time, so each that it leaves out would take no less than the one it takes, and it says
/// so.
TEST(GemmGpuKinds, TheStoryWeighsThem) {
  const std::string story = explain(gemm(1024, 1024, 1024), on(90));
  for (const char* kind : {"wide", "broad", "medium", "slim"}) {
    const std::size_t at = story.find(text("  sm90 plain ", kind, " bf16"));
    ASSERT_NE(at, std::string::npos) << kind << "\n" << story;
    const std::string line = story.substr(at, story.find('\n', at) - at);
    EXPECT_NE(line.find(" CTAs for 132 SMs: some "), std::string::npos) << line;
    EXPECT_NE(line.find(", and sm90 "), std::string::npos) << line;
  }
}

/// D is stored in boxes of 64 columns. Those of broad and medium have no whole boxes of gates and of their other
/// halves, so they are never taken.
TEST(GemmGpuKinds, OfSwigluAreWholeBoxes) {
  for (const std::int64_t m : {16, 65, 512, 1024, 4096})
    for (const std::int64_t n : {64, 512, 3072, 6144, 14336}) {
      Gemm g = gemm(m, n, 1024);
      g.activation = Activation::swiglu;
      for (const Backend backend : {Backend::best, Backend::sm90}) {
        const std::string level = level_of(g, on(90, backend));
        const bool sm80 = level == "sm80 plain" && backend == Backend::best;
        EXPECT_TRUE(level == "sm90 plain wide" || level == "sm90 plain slim" || level == "sm90 plain narrow" || sm80)
            << m << " x " << n << ": " << level;
      }
    }
  Gemm g = gemm(512, 6144, 4096);
  g.activation = Activation::swiglu;
  EXPECT_NE(explain(g, on(90)).find("half of its columns are no whole boxes of 64"), std::string::npos);
}

/// 1792 tiles of 256 x 256 are 27 rounds of 66 clusters, and 10 are left, whose k more clusters share.
TEST(GemmGpuCuts, TheLastTilesAlone) {
  const PlanData plan = decided(gemm(4096, 28672, 4096), on(90));
  const GemmGpuCut& cut = own_cut(plan);
  EXPECT_EQ(plan.variant->name(), "plain wide");
  EXPECT_EQ(cut.items, 1792);
  EXPECT_EQ(cut.whole, 1782);
  EXPECT_GT(cut.splits, 1);
  EXPECT_LE((cut.items - cut.whole) * cut.splits, 66);
  EXPECT_GE(plan.workspace, sizeof(float) * 256 * 256 * 10 * static_cast<std::size_t>(cut.splits));
}

/// What is cut are all tiles, or those left when others have filled the device some times, or once less. Parts are
/// whole blocks of k, of which none is empty.
TEST(GemmGpuCuts, AreOfWholeBlocksAndRounds) {
  for (const std::int64_t m : {65, 300, 1024, 5120, 8200})
    for (const std::int64_t n : {64, 2048, 5120, 6144, 28672})
      for (const std::int64_t k : {0, 8, 1024, 5120, 65536}) {
        SCOPED_TRACE(text(m, " x ", n, " x ", k));
        const PlanData plan = decided(gemm(m, n, k), on(90, Backend::sm90));
        const GemmGpuCut& cut = own_cut(plan);
        ASSERT_TRUE(cut.whole >= 0 && cut.whole <= cut.items);
        EXPECT_TRUE(cut.whole % 66 == 0 || cut.whole == cut.items) << cut.whole << " of " << cut.items;
        EXPECT_EQ(cut.splits == 1, cut.whole == cut.items);
        EXPECT_EQ(cut.depth % 64, 0);
        EXPECT_GE(cut.depth * cut.splits, k);
        if (k > 0) { EXPECT_LT(cut.depth * (cut.splits - 1), k); }
      }
}

/// Operands of which only addresses and strides are looked at. None is read.
class GemmViews {
 public:
  explicit GemmViews(const Gemm& g, std::int64_t n1 = 0, bool shared_b = true) {
    const std::int64_t columns = n1 == 0 ? g.n : n1, rows_b = g.activation == Activation::swiglu ? 2 * g.n : g.n;
    const DType dtype_d = g.dtype_d == DType::as_q ? g.dtype : g.dtype_d;
    x.a = Tensor::dense(&memory_, g.dtype, {g.batch, g.m, 1, g.k});
    x.b = Tensor::dense(&memory_, g.dtype, {shared_b ? 1 : g.batch, rows_b, 1, g.k});
    x.c = x.d = x.residual = Tensor::dense(&memory_, dtype_d, {g.batch, g.m, g.n / columns, columns});
    if (g.dtype_c != DType::as_q) x.c.dtype = g.dtype_c;
    x.bias_n = Tensor::dense(&memory_, dtype_d, {1, 1, 1, rows_b});
    x.bias_m = Tensor::dense(&memory_, dtype_d, {g.batch, g.m, 1, 1});
    x.scale_a = x.scale_b = Tensor::dense(&memory_, DType::f32, {1, 1, 1, 1});
  }
  GemmOperands x;

 private:
  alignas(1024) static inline unsigned char memory_ = 0;
};

/// Bytes of the sums of parts that a run writes.
std::size_t partials_of(const gpu::GemmArgs& a) {
  const std::int64_t cut_tiles = a.tiles_m * a.tiles_n * a.batch - a.whole;
  if (a.splits == 1 || cut_tiles == 0) return 0;
  return sizeof(float) * static_cast<std::size_t>(cut_tiles * a.splits * a.part_rows * a.part_columns);
}

/// The workspace is enough for the plan's own variant and for those that take operands that lie otherwise, each with
/// its own cut, whether the batch shares b or not.
TEST(GemmGpuCuts, AllFitIntoTheWorkspace) {
  const auto expect_room = [](const Gemm& g, const PlanData& plan) {
    for (const bool shared_b : {true, false}) {
      const GemmViews views(g, 0, shared_b);
      for (const Choice& choice : plan.gpu.choices) {
        const Variant* variant = choice.variant;
        if (variant->backend == Backend::sm90 && same(variant->level, "few")) continue;  // its parts are a cluster
        const gpu::GemmArgs args = to_gpu_gemm_args(plan, *variant, views.x, nullptr);
        EXPECT_EQ(args.whole == args.tiles_m * args.tiles_n * args.batch, args.splits == 1) << variant->level;
        EXPECT_LE(partials_of(args), plan.workspace) << variant->level;
      }
    }
  };
  for (const DType dtype : {DType::bf16, DType::f32, DType::e4m3, DType::i8})
    for (const std::int64_t batch : {1, 3})
      for (const std::int64_t m : {1, 16, 64, 65, 1024, 5120})
        for (const std::int64_t n : {64, 1000, 5120})
          for (const std::int64_t k : {0, 64, 4096, 65536})
            for (const int sm : {80, 90}) {
              SCOPED_TRACE(text(name(dtype), " ", batch, ": ", m, " x ", n, " x ", k, ", sm_", sm));
              Gemm g = gemm(m, n, k, dtype);
              g.batch = batch;
              if (size_of(dtype) == 1) g.dtype_d = DType::bf16;
              expect_room(g, decided(g, on(sm)));
            }
}

/// What is handed to Hopper's kernel for a problem and its operands.
gpu::GemmArgs args_of(const Gemm& g, const GemmOperands& x) {
  const PlanData plan = decided(g, on(90, Backend::sm90));
  return to_gpu_gemm_args(plan, *plan.variant, x, nullptr);
}
gpu::GemmArgs dense_args(const Gemm& g, std::int64_t n1 = 0) { return args_of(g, GemmViews(g, n1).x); }

/// TMA stores 16 bytes at a time, so a row must end with them.
TEST(GemmGpuBoxes, RowsEndWithSixteenBytes) {
  for (const std::int64_t n : {8, 64, 256, 264, 300, 260, 257}) {
    const gpu::GemmArgs x = dense_args(gemm(300, n, 128));
    EXPECT_EQ(x.d_boxes, n % 8 == 0) << n;
    EXPECT_EQ(x.plain, n % 8 == 0) << n;
  }
}

/// That rows begin with 16 bytes is not enough: a storm found words overwritten behind the end of a row.
TEST(GemmGpuBoxes, RowsWithPaddingEndWithSixteenBytesToo) {
  for (const std::int64_t n : {8, 12, 64, 154, 256, 257, 264, 300}) {
    const Gemm g = gemm(300, n, 128);
    GemmViews views(g);
    views.x.d.stride[1] = 320;
    EXPECT_EQ(args_of(g, views.x).d_boxes, n % 8 == 0) << n;
  }
}

/// Where n lies on two axes, a box of 64 columns is of one of them.
TEST(GemmGpuBoxes, HeadsAreWholeBoxes) {
  for (const std::int64_t n1 : {32, 64, 96, 128}) {
    const Gemm g = gemm(300, 4 * n1, 128);
    EXPECT_TRUE(dense_args(g, n1).d_boxes) << "one axis";
    GemmViews heads(g, n1);
    heads.x.d.stride = {300 * 4 * n1, n1, 300 * n1, 1};
    EXPECT_EQ(args_of(g, heads.x).d_boxes, n1 % 64 == 0) << n1;
    EXPECT_EQ(args_of(g, heads.x).n1, n1);
  }
}

/// D has 16 bits or is i32, and C has its type.
TEST(GemmGpuBoxes, TypesOfD) {
  Gemm g = gemm(300, 256, 128);
  g.beta = 1;
  EXPECT_TRUE(dense_args(g).d_boxes);
  g.dtype_c = DType::f32;
  EXPECT_FALSE(dense_args(g).d_boxes);
  g.dtype_c = g.dtype_d = DType::bf16;
  EXPECT_TRUE(dense_args(g).d_boxes);
  g.beta = 0;
  g.dtype_c = g.dtype_d = DType::f32;
  EXPECT_FALSE(dense_args(g).d_boxes);
  for (const DType dtype : {DType::e4m3, DType::i8}) {
    for (const DType of_d : {DType::bf16, DType::f16, DType::f32}) {
      g = gemm(300, 256, 128, dtype);
      g.dtype_d = of_d;
      EXPECT_EQ(dense_args(g).d_boxes, of_d != DType::f32);
      EXPECT_FALSE(dense_args(g).plain) << "scales, or sums of i8";
      g.beta = 1;
      EXPECT_EQ(dense_args(g).d_boxes, of_d != DType::f32);
      g.dtype_c = DType::f32;
      EXPECT_FALSE(dense_args(g).d_boxes);
    }
  }
}

/// Of i32 16 bytes are 4 columns, and a box has 32.
TEST(GemmGpuBoxes, SumsOfI8) {
  Gemm g = gemm(300, 256, 128, DType::i8);
  g.dtype_d = DType::i32;
  for (const std::int64_t n : {4, 64, 260, 258, 257}) {
    g.n = n;
    const gpu::GemmArgs x = dense_args(g);
    EXPECT_EQ(x.d_boxes, n % 4 == 0) << n;
    EXPECT_EQ(x.plain, n % 4 == 0) << n;
  }
  for (const std::int64_t n1 : {16, 32, 96}) {
    g.n = 4 * n1;
    GemmViews heads(g, n1);
    heads.x.d.stride = {300 * 4 * n1, n1, 300 * n1, 1};
    EXPECT_EQ(args_of(g, heads.x).d_boxes, n1 % 32 == 0) << n1;
  }
}

/// C and the residual come through TMA too, so that D goes another way where TMA cannot follow one of them.
TEST(GemmGpuBoxes, CAndTheResidualLieLikeBoxes) {
  Gemm g = gemm(300, 256, 128);
  g.beta = 1;
  g.residual = true;
  for (Tensor GemmOperands::*tensor : {&GemmOperands::c, &GemmOperands::d, &GemmOperands::residual}) {
    const auto boxes = [&](const auto& change) {
      GemmViews views(g);
      change(&(views.x.*tensor));
      return args_of(g, views.x).d_boxes;
    };
    EXPECT_TRUE(boxes([](Tensor*) {}));
    EXPECT_TRUE(boxes([](Tensor* t) { t->stride[1] = 264; }));
    EXPECT_FALSE(boxes([](Tensor* t) { t->stride[1] = 260; })) << "rows begin within 16 bytes";
    EXPECT_FALSE(boxes([](Tensor* t) { t->data = static_cast<unsigned char*>(t->data) + 2; }));
    EXPECT_FALSE(boxes([](Tensor* t) { t->stride = {256 * 300, 1, 0, 300}; })) << "columns";
    EXPECT_FALSE(boxes([](Tensor* t) { t->stride[1] = -256; })) << "rows in reverse";
  }
}

/// Alone with alpha, D needs nothing beside the sums. Every other term makes it not plain.
TEST(GemmGpuBoxes, PlainIsTheProductAlone) {
  const auto is_plain = [](const auto& change) {
    Gemm g = gemm(300, 256, 128);
    change(&g);
    const gpu::GemmArgs x = dense_args(g);
    EXPECT_TRUE(x.d_boxes);
    return x.plain;
  };
  EXPECT_TRUE(is_plain([](Gemm* g) { g->alpha = 0.5F; }));
  EXPECT_FALSE(is_plain([](Gemm* g) { g->beta = 1; }));
  EXPECT_FALSE(is_plain([](Gemm* g) { g->bias_n = true; }));
  EXPECT_FALSE(is_plain([](Gemm* g) { g->bias_m = true; }));
  EXPECT_FALSE(is_plain([](Gemm* g) { g->residual = true; }));
  EXPECT_FALSE(is_plain([](Gemm* g) { g->activation = Activation::relu; }));
  EXPECT_FALSE(is_plain([](Gemm* g) { g->activation = Activation::swiglu; }));
}

/// The cases that every path must get right have D in boxes with each activation, C, the residual and biases, also for
/// CTAs that have several tiles: then the producer loads the next tile's blocks into the stages where C was.
TEST(GemmGpuBoxes, CasesReachThem) {
  std::set<Activation> activations, of_several_tiles;
  std::set<std::int64_t> heads;
  bool c = false, residual = false, biases = false, in_place = false;
  for (const GemmCase& row : gemm_cases()) {
    const GemmInstance x = make_gemm_instance(row, DType::bf16);
    const PlanData plan = decided(x.problem, on(90, Backend::sm90));
    if (x.problem.batch * x.problem.m * x.problem.n == 0 || same(plan.variant->level, "few")) continue;
    const Choice* taken = first_that_fits(plan.gpu.choices, layout_of(plan, x.operands()).met);
    if (taken->variant != plan.variant) continue;
    const gpu::GemmArgs args = to_gpu_gemm_args(plan, *plan.variant, x.operands(), nullptr);
    if (!args.d_boxes || args.plain || args.whole == 0) continue;
    activations.insert(x.problem.activation);
    if (own_cut(plan).pieces() > args.walkers) of_several_tiles.insert(x.problem.activation);
    if (args.n1 < args.n) heads.insert(args.n1);
    c = c || x.problem.beta != 0;
    residual = residual || x.problem.residual;
    biases = biases || (x.problem.bias_n && x.problem.bias_m);
    in_place = in_place || x.in_place;
  }
  EXPECT_EQ(activations.size(), 6U);
  EXPECT_FALSE(of_several_tiles.empty());
  EXPECT_EQ(heads, (std::set<std::int64_t>{64, 128}));
  EXPECT_TRUE(c && residual && biases && in_place);
}

}  // namespace
}  // namespace falchion::testing
