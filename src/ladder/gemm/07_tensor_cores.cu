// src/ladder/gemm/07_tensor_cores.cu: bf16, and the products on tensor cores. ldmatrix fetches their operands from
// swizzled tiles.
#include "ladder/gemm/tensor_core.cuh"

namespace falchion::ladder::gemm::on_gpu {
namespace {

__global__ void __launch_bounds__(kThreads, 2) multiply(const __grid_constant__ Operands<bf16> x) {
  __shared__ Tiles tiles;
  const int i0 = static_cast<int>(blockIdx.y) * kTileRows, j0 = static_cast<int>(blockIdx.x) * kTileColumns;
  WarpProduct product;
  for (int l0 = 0; l0 < x.k; l0 += kTileDepth) {
    load(x, i0, j0, l0, tiles, [](void* to, const void* from, bool inside) {
      *static_cast<uint4*>(to) = inside ? *static_cast<const uint4*>(from) : uint4{};
    });
    __syncthreads();
    product.multiply_add(tiles);
    __syncthreads();
  }
  product.store(x, i0, j0);
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_whole_rows<bf16>(p, t, stream, [&](const Operands<bf16>& x) {
    return launch(multiply, dim3(divide_up(p.n, kTileColumns), divide_up(p.m, kTileRows)), dim3(kThreads), 0, stream,
                  x);
  });
}

}  // namespace

extern const Step tensor_cores;
const Step tensor_cores = {
    "tensor-cores",
    "mma.sync, ldmatrix, swizzled tiles",
    "07_tensor_cores.cu",
    "In f32 the multiplications themselves are the limit. In bf16 an instruction of a warp, mma.sync.m16n8k16, does "
    "2048 "
    "multiplications "
    "and adds them up in f32. Its operands come by ldmatrix, which takes four 8 x 8 matrices at a time, and transposes "
    "those of B on the way. Each matrix is 8 pieces of 16 bytes from 8 rows. Piece p of row r lies at place p ^ (r % "
    "8), "
    "so these 8 pieces lie in different banks. A warp has 64 x 64 elements of C, so that each block of an operand "
    "serves "
    "four instructions or eight. How tiles come has become worse again: all threads load, wait, multiply, and wait.",
    DType::bf16,
    whole_rows_bytes<bf16>,
    run};

}  // namespace falchion::ladder::gemm::on_gpu
