// examples/minimal/gpu_hello.cpp: one call of attention on a GPU's memory. It needs the CUDA runtime and no nvcc.
// Without a GPU it says so and returns 77.
#include <cuda_runtime.h>
#include <falchion/falchion.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device\n");
    return 77;
  }

  // q, k, v and o lie one behind the other: (b 1, s 64, h 2, d 32) in f32 each.
  constexpr std::size_t count = 64 * 2 * 32, bytes = count * sizeof(float);
  std::vector<float> host(3 * count, 0.5F);  // all keys are alike, so o is the mean of the values: 0.5
  float* device = nullptr;
  if (cudaMalloc(&device, 4 * bytes) != cudaSuccess) return 1;
  cudaMemcpy(device, host.data(), 3 * bytes, cudaMemcpyHostToDevice);

  const auto view = [&](std::size_t i) {
    return falchion::Tensor::dense(device + i * count, falchion::DType::f32, {1, 64, 2, 32});
  };
  // The call goes where its operands are, and only enqueues there: on the default stream, which null stands for.
  const falchion::Status status =
      falchion::attention({.q = view(0), .k = view(1), .v = view(2), .o = view(3)}, {}, {}, nullptr);
  if (!status) {
    std::fprintf(stderr, "refused: %s\n", status.why.c_str());
    return 1;
  }

  cudaMemcpy(host.data(), device + 3 * count, bytes, cudaMemcpyDeviceToHost);  // which waits for the stream
  cudaFree(device);
  std::printf("o[0] = %.3f, o[%zu] = %.3f\n", static_cast<double>(host[0]), count - 1,
              static_cast<double>(host[count - 1]));
  return std::abs(host[0] - 0.5F) < 1e-5F && std::abs(host[count - 1] - 0.5F) < 1e-5F ? 0 : 1;
}
