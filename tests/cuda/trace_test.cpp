// tests/cuda/trace_test.cpp: docs/trace.md on a device: the time of a line is the host's and the line says so, lengths
// on the device are read for a dump alone, a dump has the device's operands, and lines do not disturb a capture.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "child.hpp"
#include "device.hpp"

namespace falchion::testing {
namespace {

Case packed() { return Case{"packed", 3, 150, 200, 4, 2, 64, 64}.packed({150, 3, 40}, {200, 100, 0}).causal(); }

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(CudaTrace, LinesAndADump) {
  const std::string dump = (std::filesystem::temp_directory_path() / "falchion_cuda_dump.safetensors").string();
  setenv("FALCHION_TRACE", "1", 1);
  setenv("FALCHION_TRACE_DUMP", dump.c_str(), 1);
  expect_child_passes("CudaTrace.DISABLED_ChildLinesAndADump", nullptr);
  unsetenv("FALCHION_TRACE_DUMP");
  expect_child_passes("CudaTrace.DISABLED_ChildCaptures", nullptr);
  unsetenv("FALCHION_TRACE");
  std::filesystem::remove(dump);
}

TEST(CudaTrace, DISABLED_ChildLinesAndADump) {
  const Path path = usable_paths().front();
  const DType dtype = path.has(DType::bf16) ? DType::bf16 : path.has(DType::f16) ? DType::f16 : DType::f32;
  Instance x = make_instance(packed(), dtype, 11);
  OnDevice device(path, &x);
  ASSERT_OK(device.status());
  ::testing::internal::CaptureStderr();
  const Status status = device.run();
  const std::string trace = ::testing::internal::GetCapturedStderr();
  ASSERT_OK(status);
  EXPECT_EQ(trace.find("falchion: run " + device.plan().describe() + "; "), 0u) << trace;
  EXPECT_NE(trace.find(" us on the host, to enqueue it; falchion verify --problem 'op=attention "), std::string::npos)
      << trace;
  EXPECT_NE(trace.find("cu_seqlens_q lies on the device and was not read"), std::string::npos) << trace;
  const std::string dump = contents(std::getenv("FALCHION_TRACE_DUMP"));
  EXPECT_NE(dump.find("lengths_q=150,3,40 lengths_k=200,100,0"), std::string::npos) << dump.substr(0, 2000);
  const std::string row(static_cast<const char*>(x.operands().q.data), std::size_t{64} * 2);
  EXPECT_NE(dump.find(row), std::string::npos) << "the first row of q";
  ASSERT_OK(device.download());
  EXPECT_TRUE(matches(x, Reference(x)));
}

TEST(CudaTrace, DISABLED_ChildCaptures) {
  const Path path = usable_paths().front();
  const DType dtype = path.has(DType::bf16) ? DType::bf16 : path.has(DType::f16) ? DType::f16 : DType::f32;
  Instance x = make_instance(packed(), dtype, 11);
  OnDevice device(path, &x);
  ASSERT_OK(device.status());
  const OwnStream stream;
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  const Status status = device.run(stream);
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_OK(status);
  ASSERT_CUDA(cudaGraphDestroy(graph));
}

}  // namespace
}  // namespace falchion::testing
