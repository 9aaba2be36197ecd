// src/ladder/gemm/02_coalesced.cu: the kernel of step 01 with the two axes of the threads exchanged, so that a warp
// works along a row of C.
#include "ladder/gemm/operands.cuh"

namespace falchion::ladder::gemm::on_gpu {
namespace {

constexpr int kSide = 32;

__global__ void multiply(Operands<float> x) {
  const int i = static_cast<int>(blockIdx.y * kSide + threadIdx.y);
  const int j = static_cast<int>(blockIdx.x * kSide + threadIdx.x);  // neighbouring threads have neighbouring columns
  if (i >= x.m || j >= x.n) return;
  float sum = 0;
  for (int l = 0; l < x.k; ++l) sum += x.A[i][l] * x.B[l][j];
  x.C[i][j] = sum;
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return launch(multiply, dim3(divide_up(p.n, kSide), divide_up(p.m, kSide)), dim3(kSide, kSide), 0, stream,
                operands_of<float>(p, t));
}

}  // namespace

extern const Step coalesced;
const Step coalesced = {
    "coalesced",
    "A warp along a row of C",
    "02_coalesced.cu",
    "Two letters have changed places. The 32 threads of a warp now have 32 neighbouring columns. For each "
    "multiplication they want one number of A, which is fetched once and handed to all of them, and 32 neighbouring "
    "numbers of B, which are one line of the cache. What was 33 lines is 2. Still each multiplication has two loads of "
    "its own, and the units that load can do a quarter of what the units that multiply can.",
    DType::f32,
    no_workspace,
    run};

}  // namespace falchion::ladder::gemm::on_gpu
