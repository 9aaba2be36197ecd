// tests/cuda/merge_test.cpp: merge() of tensors on the device against merge() of the same ones on the host, which
// computes in double (tests/contract_merge_test.cpp).
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include "device.hpp"

namespace falchion::testing {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

/// A tensor of the host and its copy on the device, which lies in the same way.
struct Both {
  HostTensor host;
  cuda::Memory memory;
  Tensor view;

  Both(DType dtype, const Shape& shape, Layout layout = Layout::dense) : host(dtype, shape, layout), view(host.view()) {
    EXPECT_TRUE(cuda::Memory::make(host.memory_bytes(), &memory));
    view.data = memory.data() + (static_cast<std::byte*>(host.view().data) - host.memory());
  }
  Status upload() const {
    Status status = cuda::copy(memory.data(), host.memory(), host.memory_bytes());
    return status ? cuda::synchronize() : status;
  }
  HostTensor download() const {
    HostTensor out = host.like();
    EXPECT_TRUE(cuda::copy(out.memory(), memory.data(), host.memory_bytes()));
    return out;
  }
};

std::string bytes_of(const HostTensor& x) { return {reinterpret_cast<const char*>(x.memory()), x.memory_bytes()}; }

/// Parts of random numbers. Part p has no key in each fourth row, and nobody has one in row 5.
struct States {
  std::deque<Both> o, lse;
  Both out, out_lse;

  States(std::size_t parts, const Shape& shape, DType dtype, Layout layout = Layout::dense, bool mixed = false)
      : out(dtype, shape, layout), out_lse(DType::f32, {shape[0], shape[2], shape[1], 1}) {
    for (std::size_t p = 0; p < parts; ++p) {
      o.emplace_back(mixed ? kTypes[p % 3] : dtype, shape, mixed && p % 4 == 3 ? Layout::reversed : layout);
      lse.emplace_back(DType::f32, out_lse.host.shape(), p % 2 == 0 ? Layout::gaps : Layout::dense);
    }
    fill(1);
  }
  void fill(std::uint64_t seed) {
    for (std::size_t p = 0; p < o.size(); ++p) {
      o[p].host.fill_normal(seed + 2 * p);
      lse[p].host.fill_normal(seed + 2 * p + 1);
      std::size_t row = 0;
      lse[p].host.for_each([&](auto b, auto h, auto i, auto) {
        if (row++ != 5 && (row + p) % 4 != 0) return;
        lse[p].host.set(b, h, i, 0, -kInf);
        for (std::int64_t d = 0; d < o[p].host.shape()[3]; ++d) o[p].host.set(b, i, h, d, kNan);
      });
      ASSERT_OK(o[p].upload());
      ASSERT_OK(lse[p].upload());
    }
    out.host.fill_poison();
    out_lse.host.fill_poison();
    ASSERT_OK(out.upload());
    ASSERT_OK(out_lse.upload());
  }
  Status merge_on_device(Stream stream = nullptr) const {
    std::vector<Tensor> os, lses;
    for (const Both& x : o) os.push_back(x.view);
    for (const Both& x : lse) lses.push_back(x.view);
    return merge(os.data(), lses.data(), os.size(), out.view, out_lse.view, stream);
  }
  Status merge_on_host() const {
    std::vector<Tensor> os, lses;
    for (const Both& x : o) os.push_back(x.host.view());
    for (const Both& x : lse) lses.push_back(x.host.view());
    return merge(os.data(), lses.data(), os.size(), out.host.view(), out_lse.host.view());
  }
};

void expect_near(const HostTensor& got, const HostTensor& wanted) {
  const DType dtype = wanted.view().dtype;
  const double unit = dtype == DType::f32 ? 4e-6 : dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
  double worst = 0;
  wanted.for_each([&](auto i, auto j, auto k, auto l) {
    const double x = got.get(i, j, k, l), y = wanted.get(i, j, k, l);
    if (x == y) return;
    const double error = std::abs(x - y) / (unit * std::max(1., std::abs(y)));
    worst = std::isnan(error) ? HUGE_VAL : std::max(worst, error);
  });
  EXPECT_LE(worst, 1);
  EXPECT_EQ(got.written(), wanted.written()) << "gaps stay as they are";
}

void expect_as_on_host(const States& x) {
  ASSERT_OK(x.merge_on_device());
  ASSERT_OK(x.merge_on_host());
  expect_near(x.out.download(), x.out.host);
  expect_near(x.out_lse.download(), x.out_lse.host);
}

TEST(CudaMerge, IsThatOfTheHost) {
  for (const std::int64_t d : {8, 128, 192, 7, 100, 1024, 2200}) {
    for (const std::size_t parts : {1, 2, 3, 5, 32}) {
      for (const DType dtype : kTypes) {
        SCOPED_TRACE(text("d ", d, ", ", parts, " parts, ", dtype));
        expect_as_on_host(States(parts, {2, 3, 5, d}, dtype));
        expect_as_on_host(States(parts, {2, 3, 5, d}, dtype, Layout::heads_first, true));
      }
    }
  }
}

TEST(CudaMerge, TakesAnyStrides) {
  for (const Layout layout : {Layout::gaps, Layout::odd, Layout::transposed, Layout::across}) {
    for (const DType dtype : kTypes) expect_as_on_host(States(3, {2, 3, 5, 64}, dtype, layout, true));
  }
  expect_as_on_host(States(2, {1, 70000, 1, 16}, DType::bf16));
}

TEST(CudaMerge, OfTwoIsCommutativeAndWorksInPlace) {
  for (const std::int64_t d : {100, 2200}) {
    for (const DType dtype : kTypes) {
      States x(2, {2, 3, 5, d}, dtype);
      ASSERT_OK(x.merge_on_device());
      const std::string o = bytes_of(x.out.download()), lse = bytes_of(x.out_lse.download());
      ASSERT_OK(merge(x.o[1].view, x.lse[1].view, x.o[0].view, x.lse[0].view, x.out.view, x.out_lse.view));
      EXPECT_EQ(bytes_of(x.out.download()), o);
      EXPECT_EQ(bytes_of(x.out_lse.download()), lse);
      ASSERT_OK(merge(x.o[0].view, x.lse[0].view, x.o[1].view, x.lse[1].view, x.o[0].view, x.lse[1].view));
      EXPECT_EQ(bytes_of(x.o[0].download()), o);
      EXPECT_EQ(bytes_of(x.lse[1].download()), lse);
    }
  }
}

/// A captured merge computes with whatever the tensors hold when the graph is launched.
TEST(CudaMerge, AGraphIsReplayedOnNewInputs) {
  States x(5, {2, 3, 5, 128}, DType::bf16);
  const OwnStream stream;
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  const Status status = x.merge_on_device(stream);
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_TRUE(status) << status.why;
  cudaGraphExec_t executable = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  for (const std::uint64_t seed : {100, 200}) {
    x.fill(seed);
    ASSERT_CUDA(cudaGraphLaunch(executable, stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    const std::string replayed = bytes_of(x.out.download());
    expect_as_on_host(x);
    EXPECT_EQ(bytes_of(x.out.download()), replayed);
  }
  ASSERT_CUDA(cudaGraphExecDestroy(executable));
  ASSERT_CUDA(cudaGraphDestroy(graph));
}

TEST(CudaMerge, AnLseOfNoStateMakesItsRowNaN) {
  for (const float bad : {kInf, kNan}) {
    for (const std::int64_t d : {8, 7}) {
      States x(3, {1, 6, 1, d}, DType::f32);
      x.lse[1].host.set(0, 0, 2, 0, bad);
      x.lse[1].host.set(0, 0, 5, 0, bad);  // the other parts of this row are empty
      ASSERT_OK(x.lse[1].upload());
      ASSERT_OK(x.merge_on_device());
      const HostTensor o = x.out.download(), lse = x.out_lse.download();
      for (std::int64_t i = 0; i < 6; ++i) {
        EXPECT_EQ(std::isnan(o.get(0, i, 0, d - 1)), i == 2 || i == 5);
        EXPECT_EQ(std::isnan(lse.get(0, 0, i, 0)), i == 2 || i == 5);
      }
    }
  }
}

TEST(CudaMerge, RefusesMixedPlaces) {
  const States x(2, {1, 2, 1, 8}, DType::f32);
  const Status status =
      merge(x.o[0].view, x.lse[0].view, x.o[1].view, x.lse[1].host.view(), x.out.view, x.out_lse.view);
  EXPECT_EQ(status.code, Code::invalid);
  EXPECT_EQ(status.why, "lse_b lies in host memory, but o on a GPU: merge takes all on one side");
}

}  // namespace
}  // namespace falchion::testing
