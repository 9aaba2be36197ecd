// src/ladder/backward/04_swizzle.cu: the kernel of step 03 with swizzled tiles and ldmatrix, as in the forward ladder.
#include "ladder/backward/tensor_core.cuh"

namespace falchion::ladder::backward::on_gpu {
namespace {

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_head_dim(p, [&](auto d) {
    using Tile = TensorCoreTile<d.value, Swizzled>;
    return run_tiles<Tile>(differentiate<Tile>, p, t, stream);
  });
}

}  // namespace

extern const Step swizzle;
const Step swizzle = {
    "swizzle",
    "Swizzled tiles, ldmatrix",
    "04_swizzle.cu",
    "Piece c of row r lies at place c ^ r, so the pieces of one column lie in eight different sets of banks in eight "
    "rows, and one ldmatrix brings four 8 x 8 matrices, 512 bytes, without a conflict. Its transposing form is what "
    "the backward pass needs most: five of its ten operands lie across the rows of a tile, where the forward pass had "
    "one of four. Each tile is stored once and read in both ways. Q is read along its rows for S and across them for "
    "dK, dO for dP and dV, K for S and dQ, and dS for dQ and dK. The threads that write P and dS profit as well, since "
    "their eight rows now lie in different banks.",
    sums_bytes,
    run};

}  // namespace falchion::ladder::backward::on_gpu
