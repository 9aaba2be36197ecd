// src/ladder/gemm/09_block_order.cu: the kernel of step 08, whose blocks take the tiles of C in another order.
#include "ladder/gemm/multistage.cuh"
#include "ladder/gemm/order.hpp"

namespace falchion::ladder::gemm::on_gpu {
namespace {

constexpr int kBand = 16;  // rows of tiles

__global__ void __launch_bounds__(kThreads, 2) multiply(const __grid_constant__ Operands<bf16> x) {
  extern __shared__ __align__(128) char memory[];
  const TilePlace place =
      place_in_bands<kBand>(static_cast<int>(blockIdx.x), divide_up(x.m, kTileRows), divide_up(x.n, kTileColumns));
  multiply_tile(x, place.row * kTileRows, place.column * kTileColumns, *reinterpret_cast<Tiles(*)[kStages]>(memory));
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_whole_rows<bf16>(p, t, stream, [&](const Operands<bf16>& x) {
    return launch(multiply, dim3(static_cast<unsigned>(divide_up(p.m, kTileRows)) * divide_up(p.n, kTileColumns)),
                  dim3(kThreads), kStages * sizeof(Tiles), stream, x);
  });
}

}  // namespace

extern const Step block_order;
const Step block_order = {
    "block-order",
    "Blocks in patches of C",
    "09_block_order.cu",
    "Two blocks share a multiprocessor, so 264 tiles of C are computed at a time, and their tiles of A and B are read "
    "at "
    "about the same time. Row after row, with 32 tiles in a row, they are 8 rows and all 32 columns, which read 40 "
    "tiles "
    "of A and B a step; in bands of 16 rows they are a patch of 16 x 16, which reads 32. With wider matrices it "
    "matters "
    "more: of 128 columns the 264 tiles are two rows, and read 130. What counts is that a whole wave of blocks runs at "
    "once, and not which of them is the other's neighbour.",
    DType::bf16,
    whole_rows_bytes<bf16>,
    run};

}  // namespace falchion::ladder::gemm::on_gpu
