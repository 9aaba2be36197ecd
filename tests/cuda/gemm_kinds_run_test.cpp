// tests/cuda/gemm_kinds_run_test.cpp: each kind of Hopper's GEMM tiles by its name, whatever the plan would choose,
// also where one cluster walks over all tiles, so that it uses its stages again and again, and where tiles are cut
// along k.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/divide.hpp"
#include "device.hpp"
#include "gemm_hopper.hpp"
#include "plan/gemm.hpp"
#include "plan/gemm_gpu.hpp"
#include "support/gemm.hpp"
#include "support/gemm_args.hpp"

namespace falchion::testing {
namespace {

constexpr KindNames kEveryKind = {"plain wide", "plain broad", "plain medium", "plain slim", "plain narrow"};
/// Operands along their rows, and heads of D, need tiles whose columns are whole boxes of 64.
constexpr KindNames kOfWholeBoxes = {"plain wide", "plain medium", "plain slim", "plain narrow"};
/// With swiglu half of the columns of a tile are whole boxes of 64.
constexpr KindNames kForSwiglu = {"plain wide", "plain slim", "plain narrow"};
constexpr KindNames kEveryKindOfBytes = {"bytes", "bytes tall", "bytes narrow"};
constexpr KindNames kBytesForSwiglu = {"bytes", "bytes tall"};
using Types = std::initializer_list<DType>;
constexpr Types k16Bits = {DType::bf16, DType::f16}, k8Bits = {DType::e4m3, DType::i8};

/// How the tiles are shared out and cut.
struct Cut {
  const char* name;
  int walkers;  // clusters; 0: as many as the device holds
  int band;     // tiles are numbered in bands so many tiles high
  int whole;    // so many quarters of the tiles are not cut
  int parts;    // of k, of the others, where k has so many blocks
};
constexpr Cut kCuts[] = {
    {.name = "one cluster", .walkers = 1, .band = 8, .whole = 4, .parts = 1},
    {.name = "every cluster", .walkers = 0, .band = 2, .whole = 4, .parts = 1},
    {.name = "one cluster, three parts of k", .walkers = 1, .band = 8, .whole = 0, .parts = 3},
    {.name = "half of the tiles in blocks of k", .walkers = 3, .band = 2, .whole = 2, .parts = 64}};

struct KindCase {
  GemmCase row;
  bool a_across = false;  // the rows of a lie side by side, but d does not lie so
  bool shared_c = false;  // the batch has one c
};

GemmInstance make_instance(const KindCase& of, DType dtype) {
  GemmInstance x = make_gemm_instance(of.row, dtype, 7);
  const auto replace = [](HostTensor* tensor, const Shape& shape, Layout layout) {
    *tensor = HostTensor(tensor->view().dtype, shape, layout);
    tensor->fill_normal(77);
  };
  if (of.a_across) replace(&x.a, x.a.shape(), Layout::across);
  if (of.shared_c) replace(&x.c, {1, x.c.shape()[1], x.c.shape()[2], x.c.shape()[3]}, Layout::dense);
  return x;
}

GemmOperands operands_of(const GemmInstance& x, bool shared_c) {
  GemmOperands out = x.operands();
  if (shared_c) {
    out.c.shape[0] = x.problem.batch;
    out.c.stride[0] = 0;
  }
  return out;
}

/// Returns false where k has too few blocks for that cut.
bool cut_tiles(const Cut& cut, const gpu::GemmFacts& facts, gpu::GemmArgs* args) {
  const std::int64_t tiles = args->tiles_m * args->tiles_n * args->batch;
  const std::int64_t blocks = std::max<std::int64_t>(ceil_div(args->k, facts.depth), 1);
  const std::int64_t each = ceil_div(blocks, cut.parts);
  args->splits = static_cast<int>(ceil_div(blocks, each));
  args->depth = each * facts.depth;
  args->whole = tiles * cut.whole / 4;
  args->band = cut.band;
  if (cut.walkers > 0) args->walkers = cut.walkers;
  args->early = true;
  args->set_divisors();
  return cut.parts == 1 || args->splits > 1;
}

/// Runs of one case and one type, on memory that stays on the device. The constructor works on the host alone.
class RunsOfCase {
 public:
  RunsOfCase(const KindCase& of, DType dtype)
      : fresh_(make_instance(of, dtype)),
        x_(make_instance(of, dtype)),
        host_(operands_of(x_, of.shared_c)),
        reference_(fresh_.problem, operands_of(fresh_, of.shared_c)) {}

  Status to_device() {
    std::vector<cuda::Bytes> whole;
    for (const HostTensor* tensor :
         {&x_.a, &x_.b, &x_.c, &x_.d, &x_.residual, &x_.bias_n, &x_.bias_m, &x_.scale_a, &x_.scale_b})
      if (tensor->memory_bytes() > 0) whole.push_back({tensor->memory(), tensor->memory_bytes()});
    return cuda::CopyOf<GemmOperands>::make(x_.problem, host_, whole, &copy_);
  }

  /// Every cut of one kind. Returns how many runs there were. How tiles are shared out must not change a bit of D.
  int run(const Variant& variant) {
    PlanData plan;
    plan.backend = Backend::sm90;
    plan.variant = &variant;
    plan.gpu.sms = cuda::current_device().sms;
    plan.gpu.choices = {{&variant, Condition::aligned | Condition::tma, GemmGpuCut{}}};
    GemmPlan gemm;
    gemm.problem = x_.problem;
    plan.decided = gemm;
    int runs = 0;
    std::vector<std::byte> of_whole;
    for (const Cut& cut : kCuts) {
      SCOPED_TRACE(cut.name);
      bool ran = false;
      run_cut(plan, cut, &ran);
      if (::testing::Test::HasFatalFailure()) return runs;
      if (!ran) continue;
      ++runs;
      if (cut.parts == 1 && !of_whole.empty()) {
        EXPECT_EQ(std::memcmp(of_whole.data(), x_.d.memory(), of_whole.size()), 0) << "other bits than of one cluster";
        continue;
      }
      EXPECT_TRUE(matches(x_, reference_, judge::Sums::promoted));
      if (cut.parts == 1) of_whole.assign(x_.d.memory(), x_.d.memory() + x_.d.memory_bytes());
    }
    return runs;
  }

 private:
  /// Runs once and fetches d.
  void run_cut(const PlanData& plan, const Cut& cut, bool* ran) {
    ASSERT_NE(first_that_fits(plan.gpu.choices, layout_of(plan, copy_.operands()).met), nullptr)
        << "these operands are not the kernel's";
    gpu::GemmArgs args = to_gpu_gemm_args(plan, *plan.variant, copy_.operands(), nullptr);
    const int of_16_bytes = x_.problem.dtype_d == DType::i32 ? 4 : 8;
    ASSERT_EQ(args.d_boxes, x_.problem.dtype_d != DType::f32 && args.n % of_16_bytes == 0)
        << "d is stored in the other way";
    if (!cut_tiles(cut, plan.variant->facts_as<gpu::GemmFacts>(), &args)) return;
    const std::int64_t of_tile = std::int64_t{args.splits} * args.part_rows * args.part_columns;
    const std::int64_t parts = args.tiles_m * args.tiles_n * args.batch - args.whole;
    cuda::Memory partials;
    ASSERT_OK(cuda::Memory::make(static_cast<std::size_t>(parts * of_tile) * sizeof(float), &partials));
    args.partials = reinterpret_cast<float*>(partials.data());
    if (x_.in_place)
      std::memcpy(x_.d.memory(), fresh_.d.memory(), x_.d.memory_bytes());
    else
      x_.d.fill_poison();
    ASSERT_OK(copy_.upload());
    ASSERT_OK(cuda::synchronize());
    ASSERT_EQ(plan.variant->kernel_as<gpu::GemmKernel>()->launch(args, nullptr), 0);
    ASSERT_OK(cuda::synchronize());
    ASSERT_OK(copy_.download());
    *ran = true;
  }

  const GemmInstance fresh_;
  GemmInstance x_;
  GemmOperands host_;
  judge::GemmReference reference_;
  cuda::CopyOf<GemmOperands> copy_;
};

/// References in double take the most time, so all are computed side by side.
std::vector<std::future<std::unique_ptr<RunsOfCase>>> start_all(const std::vector<KindCase>& cases, DType dtype) {
  std::vector<std::future<std::unique_ptr<RunsOfCase>>> out;
  out.reserve(cases.size());
  for (const KindCase& of : cases)
    out.push_back(std::async(std::launch::async, [&of, dtype] { return std::make_unique<RunsOfCase>(of, dtype); }));
  return out;
}

/// Where a kind can run, each that is built must have run.
void expect_right_on_each_kind(KindNames kinds, const std::vector<KindCase>& cases, Types types = k16Bits) {
  if (const std::string why = why_no_kind_of_hopper(kinds); !why.empty()) GTEST_SKIP() << why;
  int all = 0;
  for (const DType dtype : types) {
    const std::vector<const Variant*> built = built_kinds_of_hopper(kinds, dtype);
    std::vector<int> runs(built.size());
    if (built.empty()) continue;
    auto started = start_all(cases, dtype);
    for (std::size_t at = 0; at < cases.size(); ++at) {
      const GemmCase& row = cases[at].row;
      SCOPED_TRACE(::testing::Message() << row.name << ", " << name(dtype) << ", batch " << row.batch << ", " << row.m
                                        << " x " << row.n << " x " << row.k);
      const std::unique_ptr<RunsOfCase> on_device = started[at].get();
      ASSERT_OK(on_device->to_device());
      for (std::size_t i = 0; i < built.size(); ++i) {
        SCOPED_TRACE(built[i]->level);
        runs[i] += on_device->run(*built[i]);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
    for (std::size_t i = 0; i < built.size(); ++i) {
      EXPECT_GT(runs[i], 0) << built[i]->level << " " << name(dtype) << " never ran";
      all += runs[i];
    }
  }
  EXPECT_GT(all, 0) << "nothing ran";
  std::printf("%d runs\n", all);
}

GemmCase all_terms(const char* name, std::int64_t m, std::int64_t n, std::int64_t k, Activation activation) {
  return GemmCase{name, 1, m, n, k}.alpha(0.5F).beta(2).biases().activation(activation).residual();
}

TEST(CudaGemmKinds, EachSize) {
  std::vector<KindCase> cases;
  for (const std::int64_t m : {1, 65, 300, 700})
    for (const std::int64_t n : {8, 64, 136, 320, 520}) cases.push_back({GemmCase{"plain", 1, m, n, 72}});
  for (const std::int64_t k : {0, 8, 64, 1000}) {
    cases.push_back({GemmCase{"long rows", 1, 65, 520, k}});
    cases.push_back({GemmCase{"two tiles of rows", 1, 300, 136, k}});
  }
  cases.push_back({GemmCase{"batch", 5, 65, 136, 72}});
  expect_right_on_each_kind(kEveryKind, cases);
}

TEST(CudaGemmKinds, EachTerm) {
  std::vector<KindCase> cases;
  const std::int64_t sizes[][3] = {{1, 64, 72}, {65, 520, 72}, {300, 136, 136}, {700, 320, 8}};
  for (const auto& [m, n, k] : sizes) {
    cases.push_back({GemmCase{"biases", 1, m, n, k}.biases()});
    cases.push_back({GemmCase{"c", 1, m, n, k}.beta(-1.5F)});
    cases.push_back({GemmCase{"residual", 1, m, n, k}.residual()});
    cases.push_back({GemmCase{"in place of c", 1, m, n, k}.beta(1).in_place()});
    cases.push_back({GemmCase{"in place of the residual", 1, m, n, k}.bias_n().residual().in_place()});
    cases.push_back({all_terms("all terms", m, n, k, Activation::gelu_tanh)});
  }
  for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu_erf, Activation::silu})
    cases.push_back({all_terms("all terms, each activation", 300, 136, 136, activation)});
  cases.push_back({all_terms("no product", 300, 320, 0, Activation::silu)});
  cases.push_back({all_terms("long k", 65, 320, 1000, Activation::silu)});
  cases.push_back({GemmCase{"biases in f32", 1, 300, 136, 72}.biases().biases_f32().residual()});
  cases.push_back({.row = GemmCase{"one c", 3, 65, 520, 72}.beta(2), .shared_c = true});
  cases.push_back({.row = GemmCase{"one c, and more", 3, 300, 136, 72}.beta(2).biases().residual(), .shared_c = true});
  expect_right_on_each_kind(kEveryKind, cases);
}

TEST(CudaGemmKinds, Swiglu) {
  std::vector<KindCase> cases;
  const std::int64_t sizes[][3] = {{1, 8, 72}, {65, 520, 72}, {300, 136, 136}, {700, 320, 8}, {65, 64, 1000}};
  for (const auto& [m, n, k] : sizes) {
    const auto swiglu = [&](const char* name) { return GemmCase{name, 1, m, n, k}.activation(Activation::swiglu); };
    cases.push_back({swiglu("swiglu")});
    cases.push_back({swiglu("swiglu, residual").residual()});
    cases.push_back({swiglu("swiglu, biases").alpha(0.5F).biases().residual().in_place()});
    cases.push_back({swiglu("swiglu, d in f32").biases().residual().d_f32()});
    cases.push_back({swiglu("swiglu, b across").layout_b(Layout::across).residual()});
  }
  cases.push_back({GemmCase{"batch", 3, 65, 136, 72}.activation(Activation::swiglu).residual()});
  cases.push_back({GemmCase{"no product", 1, 65, 136, 0}.activation(Activation::swiglu).biases().residual()});
  expect_right_on_each_kind(kForSwiglu, cases);
}

/// A whose rows lie side by side needs a multiple of 8 of them.
TEST(CudaGemmKinds, EachLayout) {
  std::vector<KindCase> cases;
  const std::int64_t sizes[][3] = {{72, 8, 72}, {304, 136, 136}, {704, 320, 8}, {72, 264, 520}};
  for (const auto& [m, n, k] : sizes) {
    cases.push_back({.row = GemmCase{"a across", 1, m, n, k}.bias_n(), .a_across = true});
    cases.push_back({GemmCase{"b across", 1, m, n, k}.layout_b(Layout::across).residual()});
    cases.push_back({.row = GemmCase{"both across", 2, m, n, k}.layout_b(Layout::across).beta(1), .a_across = true});
  }
  for (const std::int64_t m : {65, 300}) {
    cases.push_back({GemmCase{"heads", 2, m, 320, 72}.n2(5).layout(Layout::heads_first)});
    cases.push_back({all_terms("heads, all terms", m, 576, 72, Activation::silu).n2(9).layout(Layout::heads_first)});
    cases.push_back({GemmCase{"heads of k", 1, m, 136, 320}.k2(5).layout(Layout::heads_first)});
  }
  expect_right_on_each_kind(kOfWholeBoxes, cases);
}

TEST(CudaGemmKinds, WithoutBoxesOfD) {
  std::vector<KindCase> cases;
  const std::int64_t sizes[][3] = {{72, 8, 72}, {304, 136, 136}, {704, 320, 8}, {72, 264, 520}};
  for (const auto& [m, n, k] : sizes)
    cases.push_back({GemmCase{"d in f32", 1, m, n, k}.biases().beta(1).residual().d_f32()});
  cases.push_back({GemmCase{"d in f32, odd", 1, 300, 203, 72}.beta(1).d_f32()});
  cases.push_back({GemmCase{"no boxes of d", 1, 300, 203, 72}.bias_n().residual()});
  cases.push_back({GemmCase{"in place of c", 1, 300, 459, 72}.beta(1).in_place()});
  expect_right_on_each_kind(kEveryKind, cases);
}

/// Each way of scaling, and D in bf16 and f16.
std::vector<KindCase> scaled(const std::vector<GemmCase>& rows) {
  std::vector<KindCase> out;
  int turn = 0;
  for (GemmCase row : rows) {
    row.terms.scaling = static_cast<Scaling>(turn++ % 3);
    for (const DType d : {DType::bf16, DType::f16}) {
      if (row.terms.dtype_d != DType::f32) row.terms.dtype_d = d;
      out.push_back({row});
    }
  }
  return out;
}

/// k is a multiple of 16 and a block of it 128.
TEST(CudaGemmKinds, BytesOfEachSize) {
  std::vector<GemmCase> rows;
  for (const std::int64_t m : {1, 65, 300, 700})
    for (const std::int64_t n : {8, 64, 136, 320, 520}) rows.push_back(GemmCase{"scaled", 1, m, n, 144});
  for (const std::int64_t k : {0, 16, 128, 1040}) {
    rows.push_back(GemmCase{"long rows", 1, 65, 520, k});
    rows.push_back(GemmCase{"two tiles of rows", 1, 300, 136, k});
  }
  for (int i = 0; i < 3; ++i) {
    rows.push_back(GemmCase{"batch", 3, 65, 136, 144});
    rows.push_back(GemmCase{"no boxes of d", 1, 300, 203, 144}.bias_n().residual());
    rows.push_back(GemmCase{"heads", 2, 300, 320, 144}.n2(5).layout(Layout::heads_first));
    rows.push_back(GemmCase{"d in f32", 1, 300, 136, 144}.d_f32().biases().beta(1).residual());
  }
  expect_right_on_each_kind(kEveryKindOfBytes, scaled(rows), k8Bits);
}

TEST(CudaGemmKinds, BytesOfEachTerm) {
  std::vector<GemmCase> rows;
  const std::int64_t sizes[][3] = {{1, 64, 144}, {65, 520, 144}, {300, 136, 272}, {700, 320, 16}};
  for (const auto& [m, n, k] : sizes) {
    rows.push_back(GemmCase{"biases", 1, m, n, k}.biases());
    rows.push_back(GemmCase{"c", 1, m, n, k}.beta(-1.5F));
    rows.push_back(GemmCase{"in place of c", 1, m, n, k}.beta(1).in_place());
    rows.push_back(GemmCase{"in place of the residual", 1, m, n, k}.bias_n().residual().in_place());
    rows.push_back(all_terms("all terms", m, n, k, Activation::gelu_tanh));
  }
  for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu_erf, Activation::silu})
    rows.push_back(all_terms("all terms, each activation", 300, 136, 272, activation));
  rows.push_back(all_terms("no product", 300, 320, 0, Activation::silu));
  rows.push_back(GemmCase{"biases in f32", 1, 300, 136, 144}.biases().biases_f32().residual());
  expect_right_on_each_kind(kEveryKindOfBytes, scaled(rows), k8Bits);
}

TEST(CudaGemmKinds, BytesAndSwiglu) {
  std::vector<GemmCase> rows;
  const std::int64_t sizes[][3] = {{1, 8, 144}, {65, 520, 144}, {300, 136, 272}, {700, 320, 16}, {65, 64, 1040}};
  for (const auto& [m, n, k] : sizes) {
    const auto swiglu = [&](const char* name) { return GemmCase{name, 1, m, n, k}.activation(Activation::swiglu); };
    rows.push_back(swiglu("swiglu, residual").residual());
    rows.push_back(swiglu("swiglu, biases").alpha(0.5F).biases().residual().in_place());
  }
  expect_right_on_each_kind(kBytesForSwiglu, scaled(rows), k8Bits);
}

TEST(CudaGemmKinds, SumsOfI8) {
  std::vector<KindCase> cases;
  for (const std::int64_t m : {1, 65, 300, 700})
    for (const std::int64_t n : {4, 64, 100, 136, 203, 520}) cases.push_back({GemmCase{"i32", 1, m, n, 144}.d_i32()});
  for (const std::int64_t k : {0, 16, 128, 1040}) cases.push_back({GemmCase{"i32", 2, 300, 136, k}.d_i32()});
  cases.push_back({GemmCase{"heads", 2, 300, 160, 144}.d_i32().n2(5).layout(Layout::heads_first)});
  expect_right_on_each_kind(kEveryKindOfBytes, cases, {DType::i8});
}

}  // namespace
}  // namespace falchion::testing
