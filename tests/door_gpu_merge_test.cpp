// tests/door_gpu_merge_test.cpp: tests on machines without a GPU on which side merge() works, and what it hands to its
// kernel. The driver and the runtime are fakes (tests/fake_cuda), and so is the launch.
#include <string>
#include <vector>

#include "fake_cuda/load.hpp"
#include "fake_cuda/runtime.hpp"
#include "falchion/falchion.hpp"

namespace falchion::testing {
namespace {

/// merge() is a GPU's where any tensor lies in its memory or in managed memory, and then all must.
TEST(GpuMerge, IsOnTheSideOfItsTensors) {
  FakeRuntime& cuda = fake_runtime();
  const FakeDriver& driver = FakeDriver::loaded();
  const DeviceMemory memory;
  std::vector<float> host(6 * 64, 1.F);
  int stream = 0;
  const auto state = [](float* data, DType dtype) { return Tensor::dense(data, dtype, {2, 3, 1, 8}); };
  const auto row = [](float* data) { return Tensor::dense(data, DType::f32, {2, 1, 3, 1}); };
  const auto merged = [&](float* from, float* moved) {
    return merge(state(from, DType::f32), row(from + 64), state(from + 128, DType::f16), row(moved),
                 state(from + 256, DType::bf16), row(from + 320), &stream);
  };
  float* device = memory.data<float>();
  EXPECT_EQ(merged(device, device + 192).why, "");
  EXPECT_EQ(cuda.merges, 1);
  EXPECT_EQ(cuda.merge_stream, &stream);
  const gpu::MergeArgs& args = cuda.merge;
  EXPECT_TRUE(args.parts == 2 && args.rows == 6 && args.s == 3 && args.h == 1 && args.d == 8 && args.aligned);
  EXPECT_TRUE(args.part[0].type == Number::f32 && args.part[1].type == Number::f16);
  EXPECT_TRUE(args.merged.type == Number::bf16 && args.merged.o.data == device + 256);
  EXPECT_EQ(args.part[1].lse.data, device + 192);
  EXPECT_EQ(args.part[1].o.stride[0], 24);
  EXPECT_EQ(merged(device + 1, device + 193).why, "");
  EXPECT_FALSE(args.aligned) << "rows begin 4 bytes past a multiple of 16";
  EXPECT_EQ(merged(device, host.data()).why, "lse_b lies in host memory, but o on a GPU: merge takes all on one side");
  EXPECT_EQ(merged(host.data(), device).why, "lse_b lies on a GPU, but o in host memory: merge takes all on one side");
  const DeviceMemory peer(false);
  EXPECT_EQ(merged(device, peer.data<float>()).why,
            "lse_b lies on a GPU other than the current one, which may not use its memory");
  EXPECT_EQ(cuda.merges, 2);
  EXPECT_EQ(merged(host.data(), host.data() + 192).why, "");
  driver.add(host.data(), host.size() * sizeof(float), FakeKind::pinned, true);
  EXPECT_EQ(merged(host.data(), host.data() + 192).why, "");
  EXPECT_EQ(cuda.merges, 2) << "the host's";
  EXPECT_EQ(merged(device, host.data()).why, "") << "pinned memory is either side's";
  driver.add(host.data(), host.size() * sizeof(float), FakeKind::managed, true);
  EXPECT_EQ(merged(host.data(), host.data() + 192).why, "");
  EXPECT_EQ(cuda.merges, 4);
  cuda.next = cudaErrorInvalidConfiguration;
  EXPECT_EQ(merged(device, device + 192).code, Code::device);
}

TEST(GpuMerge, ABrokenContextIsSaidBeforeTheLaunch) {
  FakeRuntime& cuda = fake_runtime();
  cuda = {};
  const DeviceMemory memory;
  cuda.last = cudaErrorIllegalAddress;
  cuda.sticky = true;
  const Tensor o = Tensor::dense(memory.data(), DType::f32, {1, 1, 1, 8});
  const Tensor lse = Tensor::dense(memory.data<float>() + 8, DType::f32, {1, 1, 1, 1});
  const Status status = merge(&o, &lse, 1, o, lse);
  EXPECT_EQ(status.code, Code::device);
  EXPECT_NE(status.why.find("cudaErrorIllegalAddress"), std::string::npos);
  EXPECT_EQ(cuda.merges, 0);
}

}  // namespace
}  // namespace falchion::testing
