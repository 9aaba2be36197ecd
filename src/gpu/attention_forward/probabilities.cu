// src/gpu/attention_forward/probabilities.cu: computes the probabilities as an output, for small problems and
// debugging. It computes the scores again, then the maximum and the sum of each row, and divides. It is naive: one
// block per row, and sums in f32.
#include "base/host_device.hpp"
#include "gpu/attention_forward/after.hpp"
#include "gpu/attention_forward/score.cuh"
#include "gpu/blocks/stream_order.cuh"

namespace falchion::gpu {

inline constexpr int kProbabilityThreads = 128;

/// Combines x over all threads of the block, which all get the result. of_warps has room for one float per warp.
template <class Combine>
FALCHION_DEVICE float reduce_block(float x, float* of_warps, Combine combine) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x = combine(x, __shfl_xor_sync(~0u, x, lanes));
  __syncthreads();  // all threads have read the result of an earlier call
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
  __syncthreads();
  x = of_warps[0];
  for (int warp = 1; warp < kProbabilityThreads / 32; ++warp) x = combine(x, of_warps[warp]);
  return x;
}

/// The dot product of one query and one key. kTerms is how many terms are summed before their sum is added to the rest,
/// as in the f32 kernels.
template <class Element, int kTerms>
FALCHION_DEVICE float dot_in_parts(const Element* q, const Element* k, std::int64_t d_qk) {
  float dot = 0, sum = 0;
  for (int d = 0; d < d_qk; ++d) {
    sum = fmaf(static_cast<float>(q[d]), static_cast<float>(k[d]), sum);
    if (d % kTerms == kTerms - 1) {
      dot += sum;
      sum = 0;
    }
  }
  return dot + sum;
}

/// Computes P (b, h_q, s_q, s_k) f32 = e^(S - m) / l, and 0 for masked keys. Rows past the used length stay untouched.
/// P is not computed as e^(S - LSE), because in f32 an LSE near 1e9 is the same number for one key and for three. A
/// thread reads back only its own writes.
template <class Element, int kTerms>
__global__ void __launch_bounds__(kProbabilityThreads)
    attention_probabilities(const __grid_constant__ AttentionArgs a) {
  __shared__ float of_warps[kProbabilityThreads / 32];
  std::int64_t x = blockIdx.x;
  const int i = static_cast<int>(x % a.s_q), h = static_cast<int>(x / a.s_q % a.h_q);
  const int b = static_cast<int>(x / a.s_q / a.h_q), h_kv = h / static_cast<int>(a.h_q / a.h_k);
  const Rows q_rows = rows_of_q(a, b), k_rows = rows_of_k(a, b);
  if (i >= q_rows.length) return;
  const int shift = static_cast<int>(shift_of(a, q_rows.length, k_rows.length)), first = static_cast<int>(threadIdx.x);
  const BandMask mask = BandMask::make(k_rows.length, shift, a.left, a.right);
  const ScoreRow<Element> row(a, b, h, i, shift, k_rows.first);
  const Element* q = static_cast<const Element*>(a.q.data) + b * a.q.stride[0] + i * a.q.stride[1] + h * a.q.stride[2];
  const Element* k = static_cast<const Element*>(a.k.data) + b * a.k.stride[0] + h_kv * a.k.stride[2];
  float* p = static_cast<float*>(a.probabilities.data) + b * a.probabilities.stride[0] + h * a.probabilities.stride[1] +
             i * a.probabilities.stride[2];
  const std::int64_t step = a.probabilities.stride[3];
  const auto sees = [&](int key) { return mask.keep(i, key) && row.add_bias_and_mask(0, key) != -FALCHION_INF; };

  float m = -FALCHION_INF;  // over the scores that are not NaN; a NaN gets into l
  for (int j = first; j < a.s_k; j += kProbabilityThreads) {
    const int key = j - k_rows.first;
    float score = -FALCHION_INF;
    if (sees(key)) {
      const float dot = dot_in_parts<Element, kTerms>(q, k + j * a.k.stride[1], a.d_qk);
      score = row.add_bias_and_mask(row.apply(dot, key), key);
    }
    p[j * step] = score;
    m = fmaxf(m, score);
  }
  m = reduce_block(m, of_warps, [](float x, float y) { return fmaxf(x, y); });
  const float sink = sink_of(a, b, h);
  m = fmaxf(m, sink);
  const float reference = m == -FALCHION_INF ? 0.f : m;

  float l = 0;
  for (int j = first; j < a.s_k; j += kProbabilityThreads) l += ::expf(p[j * step] - reference);
  l = reduce_block(l, of_warps, [](float x, float y) { return x + y; });
  l += ::expf(sink - reference);

  // l is 0 where no key is seen, or only keys with a score of -inf. Where l is NaN, P of every key that is seen is NaN,
  // even if its score is -inf.
  for (int j = first; j < a.s_k; j += kProbabilityThreads)
    p[j * step] = l != 0 && sees(j - k_rows.first) ? ::expf(p[j * step] - reference) / l : 0.f;
}

template <class Element, int kTerms>
int launch_attention_probabilities(const AttentionArgs& a, void* stream) {
  const std::int64_t rows = a.b * a.h_q * a.s_q;
  if (rows > INT32_MAX) return cudaErrorInvalidConfiguration;
  return launch_kernel<attention_probabilities<Element, kTerms>>(static_cast<unsigned>(rows), kProbabilityThreads, 0,
                                                                 stream, false, a);
}
template int launch_attention_probabilities<cutlass::bfloat16_t, 8>(const AttentionArgs&, void*);
template int launch_attention_probabilities<cutlass::half_t, 8>(const AttentionArgs&, void*);
template int launch_attention_probabilities<float, 8>(const AttentionArgs&, void*);
template int launch_attention_probabilities<float, 4>(const AttentionArgs&, void*);

}  // namespace falchion::gpu
