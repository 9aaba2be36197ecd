// tests/cuda/minimal_example_test.cpp: the programs of examples/minimal that need a GPU, run on the device.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#define main cuda_graph_of_the_example
#include "../../examples/minimal/cuda_graph.cpp"
#undef main
#define main gpu_hello_of_the_example
#include "../../examples/minimal/gpu_hello.cpp"
#undef main

namespace falchion::testing {

void expect_success(int result) {
  if (result == kSkipped) GTEST_SKIP() << "no GPU is here, or this build has no kernel for bf16 and head dim 128";
  EXPECT_EQ(result, 0);
}

TEST(MinimalExample, AGraphOfAttention) { expect_success(cuda_graph_of_the_example()); }
TEST(MinimalExample, HelloFromAGpu) { expect_success(gpu_hello_of_the_example()); }

}  // namespace falchion::testing
