// tests/cuda/gemm_few_run_test.cpp: Hopper's GEMM kernel for few rows with every cluster, every width and many widths
// of tiles, whatever the plan would choose, where a cluster has several tiles and where parts of k are empty.
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "api/data_of.hpp"
#include "base/divide.hpp"
#include "device.hpp"
#include "gemm_hopper.hpp"
#include "kernels.hpp"
#include "plan/gemm_gpu.hpp"
#include "plan/gemm_gpu_few.hpp"
#include "plan/plan_data.hpp"
#include "support/gemm.hpp"
#include "support/gemm_args.hpp"

namespace falchion::testing {
namespace {

constexpr KindNames kFew = {"few"};

/// Calls f(device, instance) for each type. The path sm90 by its name takes this kernel for all that it can move.
template <class F>
void on_few_of_hopper(const GemmCase& row, const F& f) {
  const Path hopper{Backend::sm90, ""};
  for (const DType dtype : {DType::bf16, DType::f16}) {
    if (built_kinds_of_hopper(kFew, dtype).empty()) continue;
    SCOPED_TRACE(name(dtype));
    GemmInstance x = make_gemm_instance(row, dtype, 7);
    Plan plan;
    const Status made = Plan::make(x.problem, hopper.target(), &plan);
    ASSERT_OK(made);
    ASSERT_TRUE(is_few_of_hopper(*data_of(plan)->variant)) << "the plan took " << data_of(plan)->variant->level;
    std::vector<cuda::Bytes> whole;
    for (const HostTensor* tensor : {&x.a, &x.b, &x.c, &x.d, &x.residual, &x.bias_n, &x.bias_m})
      if (tensor->memory_bytes() > 0) whole.push_back({tensor->memory(), tensor->memory_bytes()});
    PlanOnDevice<GemmOperands> device(made, plan, x.problem, x.operands(), whole);
    ASSERT_OK(device.status());
    f(device, x);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

/// Where the kernel is built and the device is a Hopper, a test that ran nothing has failed. Elsewhere it is skipped.
class CudaGemmFew : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_kind_of_hopper(kFew); !why.empty()) GTEST_SKIP() << why;
    runs = 0;
  }
  void TearDown() override {
    if (IsSkipped()) return;
    EXPECT_GT(runs, 0) << "nothing ran";
    std::printf("%d runs\n", runs);
  }

 public:
  static inline int runs = 0;
};

/// Runs with so many CTAs in a cluster and columns in a tile, and fetches d.
void run_cut(PlanOnDevice<GemmOperands>& device, GemmInstance& x, int ctas, int columns) {
  x.d.fill_poison();
  ASSERT_OK(device.upload());
  const PlanData& plan = *data_of(device.plan());
  ASSERT_EQ(first_that_fits(plan.gpu.choices, layout_of(plan, device.operands()).met)->variant, plan.variant)
      << "these operands are not the kernel's";
  gpu::GemmArgs args = to_gpu_gemm_args(plan, *plan.variant, device.operands(), nullptr);
  if (args.b_major == gpu::Major::rows && columns % 64 != 0) columns = 64;
  args.splits = ctas;
  args.columns = columns;
  args.tiles_n = ceil_div(args.n, std::int64_t{columns});
  ASSERT_EQ(plan.variant->kernel_as<gpu::GemmKernel>()->launch(args, nullptr), 0);
  ASSERT_OK(cuda::synchronize());
  ASSERT_OK(device.download());
  ++CudaGemmFew::runs;
}

void expect_right_however_it_is_cut(const GemmCase& row) {
  SCOPED_TRACE(::testing::Message() << row.name << ", m " << row.m << ", k " << row.k);
  on_few_of_hopper(row, [](PlanOnDevice<GemmOperands>& device, GemmInstance& x) {
    const judge::GemmReference reference(x.problem, x.operands());
    for (const int ctas : {1, 2, 3, 4, 8})
      for (const int columns : {16, 48, 112, 128}) {
        SCOPED_TRACE(::testing::Message() << ctas << " CTAs, " << columns << " columns");
        run_cut(device, x, ctas, columns);
        if (::testing::Test::HasFatalFailure()) return;
        ASSERT_TRUE(matches(x, reference));
        const HostTensor first = x.d.like();
        std::memcpy(first.memory(), x.d.memory(), x.d.memory_bytes());
        run_cut(device, x, ctas, columns);
        ASSERT_EQ(std::memcmp(first.memory(), x.d.memory(), first.memory_bytes()), 0) << "other bits the second time";
      }
  });
}

/// With 16 columns 4 x 44 tiles are more than clusters of any size that run at a time.
TEST_F(CudaGemmFew, EachClusterAndWidth) {
  for (const std::int64_t m : {1, 8, 9, 20, 37, 64}) {
    expect_right_however_it_is_cut(GemmCase{"many tiles", 4, m, 700, 1096});
    expect_right_however_it_is_cut(GemmCase{"across", 1, m, 704, 1096}.layout_b(Layout::across));
    expect_right_however_it_is_cut(GemmCase{"one block", 1, m, 136, 8});
    expect_right_however_it_is_cut(GemmCase{"two blocks", 1, m, 136, 72});
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST_F(CudaGemmFew, EachTermAndLayout) {
  for (const std::int64_t m : {8, 40}) {
    expect_right_however_it_is_cut(
        GemmCase{"terms", 2, m, 200, 600}.alpha(0.5F).beta(2).biases().activation(Activation::silu).residual());
    expect_right_however_it_is_cut(GemmCase{"f32", 1, m, 203, 600}.beta(1).d_f32());
    expect_right_however_it_is_cut(GemmCase{"heads", 1, m, 192, 640}.k2(5).n2(3).layout(Layout::heads_first));
    expect_right_however_it_is_cut(GemmCase{"rows of one matrix", 3, m, 200, 640}.shared_b());
    expect_right_however_it_is_cut(GemmCase{"both across", 1, m, 200, 640}.layout(Layout::across));
    expect_right_however_it_is_cut(
        GemmCase{"shared b", 3, m, 192, 640}.shared_b().k2(5).n2(3).layout(Layout::heads_first));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

/// Sums of ones are exact: a block of k that is left out, comes twice or meets another tile's sums would show.
TEST_F(CudaGemmFew, OnesSumToK) {
  for (const std::int64_t k : {8, 64, 72, 520, 4096, 14336})
    on_few_of_hopper(GemmCase{"ones", 1, 64, 2304, k}.d_f32(),
                     [&](PlanOnDevice<GemmOperands>& device, GemmInstance& x) {
                       for (HostTensor* tensor : {&x.a, &x.b})
                         tensor->for_each([&](auto... at) { tensor->set(at..., 1); });
                       for (const int ctas : {1, 2, 3, 4, 8})
                         for (const int columns : {16, 96, 128})
                           for (int turn = 0; turn < 3; ++turn) {
                             run_cut(device, x, ctas, columns);
                             if (::testing::Test::HasFatalFailure()) return;
                             std::int64_t wrong = 0;
                             x.d.for_each([&](auto... at) { wrong += x.d.get(at...) != static_cast<float>(k); });
                             ASSERT_EQ(wrong, 0) << k << ", " << ctas << " CTAs, " << columns << " columns";
                           }
                     });
}

/// What src/plan/gemm_gpu_few.cpp counts on for an H100 with 132 SMs. One cluster too many in the model would cost a
/// round, so the device must hold as many; a tenth more is right too, since GPCs differ from one chip to the next.
TEST(CudaGemmFewModel, ClustersThatRunAtATime) {
  const cuda::Device device = cuda::current_device();
  if (device.sm < 90) GTEST_SKIP() << "this GPU has no clusters";
  constexpr std::pair<int, int> kModel[] = {{1, 132}, {2, 66}, {3, 39}, {4, 29}, {8, 14}};
  for (const auto& [ctas, expected] : kModel) {
    const int clusters = clusters_at_once(ctas);
    std::printf("clusters of %d CTAs at a time: %d\n", ctas, clusters);
    EXPECT_GT(clusters, 0);
    if (device.sm == 90 && device.sms == 132) {
      EXPECT_GE(clusters, expected) << "of " << ctas << " CTAs";
      EXPECT_LE(clusters, 1.1 * expected) << "of " << ctas << " CTAs";
    }
  }
}

}  // namespace
}  // namespace falchion::testing
