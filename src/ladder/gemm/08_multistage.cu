// src/ladder/gemm/08_multistage.cu: the product of step 07 with a ring of tiles, which cp.async fills.
#include "ladder/gemm/multistage.cuh"

namespace falchion::ladder::gemm::on_gpu {
namespace {

__global__ void __launch_bounds__(kThreads, 2) multiply(const __grid_constant__ Operands<bf16> x) {
  extern __shared__ __align__(128) char memory[];
  multiply_tile(x, static_cast<int>(blockIdx.y) * kTileRows, static_cast<int>(blockIdx.x) * kTileColumns,
                *reinterpret_cast<Tiles(*)[kStages]>(memory));
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_whole_rows<bf16>(p, t, stream, [&](const Operands<bf16>& x) {
    return launch(multiply, dim3(divide_up(p.n, kTileColumns), divide_up(p.m, kTileRows)), dim3(kThreads),
                  kStages * sizeof(Tiles), stream, x);
  });
}

}  // namespace

extern const Step multistage;
const Step multistage = {
    "multistage",
    "cp.async, the next tiles on their way",
    "08_multistage.cu",
    "While a pair of tiles is multiplied, the next one is on its way, past the registers. How many have to be? By "
    "Little's law as many bytes as memory hands out during the time that it takes to answer. At their full rate the "
    "tensor cores would multiply a pair, 32 KB, in 512 cycles, and memory takes longer to answer. But mma.sync reaches "
    "half of that rate, and two blocks share a multiprocessor, so two pairs are on their way to it. A third stage made "
    "it slower. There is one barrier for each pair of tiles: it says that the pair has come, and that the place of the "
    "one before may be filled again.",
    DType::bf16,
    whole_rows_bytes<bf16>,
    run};

}  // namespace falchion::ladder::gemm::on_gpu
