// tests/cuda/minimal_example_test.cpp: examples/minimal/cuda_graph.cpp, run on the device.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#define main cuda_graph_of_the_example
#include "../../examples/minimal/cuda_graph.cpp"
#undef main

namespace falchion::testing {

TEST(MinimalExample, AGraphOfAttention) {
  const int result = cuda_graph_of_the_example();
  if (result == kSkipped) GTEST_SKIP() << "no GPU is here, or this build has no kernel for bf16 and head dim 128";
  EXPECT_EQ(result, 0);
}

}  // namespace falchion::testing
