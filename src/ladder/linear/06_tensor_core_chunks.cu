// src/ladder/linear/06_tensor_core_chunks.cu: takes 64 tokens at a time, as matrices, on tensor cores: P = tril(Q K^T),
// O = P V + Q S, S += K^T V. A block of threads has one head. It is bf16, with S and all sums in f32.
#include "ladder/linear/chunks.cuh"

namespace falchion::ladder::linear::on_gpu {
namespace {

template <int d>
__global__ void __launch_bounds__(Chunk<d>::kThreads, Chunk<d>::kBlocks)
    attend(Problem p, const bf16* q, const bf16* k, const bf16* v, bf16* o) {
  extern __shared__ char memory[];
  auto S = Chunk<d>::zero_state();
  Chunk<d>::walk(p, blockIdx.x, 0, p.s, q, k, v, o, *reinterpret_cast<typename Chunk<d>::Shared*>(memory), S);
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  if (Status status = p.check(); !status) return status;
  return with_size<64, 128>(std::max(p.d_qk, p.d_v), [&](auto d) {
    return launch(attend<d.value>, dim3(p.b * p.h), dim3(Chunk<d.value>::kThreads),
                  sizeof(typename Chunk<d.value>::Shared), stream, p, static_cast<const bf16*>(t.q),
                  static_cast<const bf16*>(t.k), static_cast<const bf16*>(t.v), static_cast<bf16*>(t.o));
  });
}

}  // namespace

extern const Step tensor_core_chunks;
const Step tensor_core_chunks = {
    "chunks",
    "Chunks of 64 tokens on tensor cores",
    "06_tensor_core_chunks.cu",
    "Within 64 tokens linear attention is attention with a mask, and what all tokens before them add is one product "
    "with S: O = tril(Q K^T) V + Q S, then S += K^T V. That is more arithmetic than the recurrence, 2 C (E + M) + 4 E "
    "M flop for a token. But it consists of matrix products, of which one instruction of a warp does 2048 "
    "multiply-adds, and the serial chain has one link for every 64 tokens. Operands are bf16, which halves the bytes, "
    "and S and all sums are f32. Each chunk still begins with a wait for its loads, and 64 heads still leave half of "
    "the multiprocessors idle.",
    DType::bf16,
    no_workspace,
    run};

}  // namespace falchion::ladder::linear::on_gpu
