// src/ladder/linear/01_recurrent.cu: the recurrence as it is defined, after fast-transformers' lmha kernel. A block of
// threads has one head, a thread has one column of S in its registers, and the tokens come one at a time. It is f32.
#include "ladder/linear/recurrent.cuh"

namespace falchion::ladder::linear::on_gpu {
namespace {

/// One number of each of q, k and v, on their way to shared memory.
struct Fetched {
  float q = 0, k = 0, v = 0;
};

template <int kE>
__global__ void attend(Problem p, const float* q, const float* k, const float* v, float* o) {
  __shared__ Token<kE> tokens[2];
  const int i = threadIdx.x, bh = blockIdx.x;
  const Head<const float> Q = head_of(p, q, p.d_qk, bh), K = head_of(p, k, p.d_qk, bh), V = head_of(p, v, p.d_v, bh);
  const Head<float> O = head_of(p, o, p.d_v, bh);
  const auto fetch = [&](int j) {
    Fetched x;
    if (i < p.d_qk) {
      x.q = Q[j][i];
      x.k = K[j][i];
    }
    if (i < p.d_v) x.v = V[j][i];
    return x;
  };
  const auto put = [&](const Fetched& x, Token<kE>& token) {
    if (i < p.d_qk) {
      token.q[i] = x.q;
      token.k[i] = x.k;
    }
    if (i < p.d_v) token.v[i] = x.v;
  };

  clear(tokens);
  Column<kE> column;
  Fetched next;
  if (p.s > 0) put(fetch(0), tokens[0]);
  for (int j = 0; j < p.s; ++j) {
    const bool more = j + 1 < p.s;
    if (more) next = fetch(j + 1);  // is on its way while this token is computed
    __syncthreads();                // token j is there, and no thread reads j - 1 any more
    const float sum = column.step(tokens[j % 2]);
    if (column.part() == 0 && column.number() < p.d_v) O[j][column.number()] = sum;
    if (more) put(next, tokens[(j + 1) % 2]);
  }
}

struct Kernel {
  template <int kE>
  static constexpr auto kernel() {
    return attend<kE>;
  }
  // fast-transformers' kernel on an H200 takes 0.50 us per token at d 64 and 0.54 us at d 128, with one block per
  // multiprocessor: that is `alone`. `busy` is the number of instructions of two warps, counted.
  static constexpr Pace kPace = {.alone = 1000, .busy = 150};
};

}  // namespace

const Candidate recurrent_kernel = {Heads<Kernel>::cycles, Heads<Kernel>::run};

extern const Step recurrent;
const Step recurrent = {
    "recurrent",
    "One block for each head, token by token",
    "01_recurrent.cu",
    "This step is the definition: S += k v^T and o = q^T S, once for each token. S never leaves the registers, where "
    "each thread has a column of it, and each of the four tensors is moved once, which is the least there is. But a "
    "block computes one token after the other. The next token is fetched while this one is computed, all threads wait "
    "for each other, and the sum of a column adds 64 products one after another, with 4 cycles each. That is half a "
    "microsecond for a token on any machine. Each multiprocessor has 768 bytes on their way, where 23 KB would keep "
    "the memory busy, and a multiprocessor without a head does nothing.",
    DType::f32,
    no_workspace,
    Heads<Kernel>::run};

}  // namespace falchion::ladder::linear::on_gpu
