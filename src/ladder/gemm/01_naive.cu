// src/ladder/gemm/01_naive.cu: the product as it is written on a blackboard, with a thread for each element of C, in
// f32.
#include "ladder/gemm/operands.cuh"

namespace falchion::ladder::gemm::on_gpu {
namespace {

constexpr int kSide = 32;  // a block has 32 x 32 threads

__global__ void multiply(Operands<float> x) {
  const int i = static_cast<int>(blockIdx.y * kSide + threadIdx.x);  // neighbouring threads have neighbouring rows
  const int j = static_cast<int>(blockIdx.x * kSide + threadIdx.y);
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

extern const Step naive;
const Step naive = {
    "naive",
    "A thread for each element of C",
    "01_naive.cu",
    "This step is the definition. A thread walks along a row of A and down a column of B. The 32 threads of a warp "
    "have "
    "32 rows, so for each multiplication they want 32 numbers of A that lie a whole row apart, in 32 lines of the "
    "cache, "
    "and then write C into 32 lines as well. Of each 32 bytes that are fetched 4 are used at once; the rest is used if "
    "it is still there when its turn comes.",
    DType::f32,
    no_workspace,
    run};

}  // namespace falchion::ladder::gemm::on_gpu
