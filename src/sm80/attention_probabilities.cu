// src/sm80/attention_probabilities.cu: the probabilities themselves, for small problems that want to look at them: a
// second walk over the scores, now that each row's LSE is known. Naive: one block a row, f32 sums.
#include "blocks/stream_order.cuh"
#include "sm80/attention_after.hpp"
#include "sm80/attention_score.cuh"

namespace falchion::sm80 {

/// P (b, h_q, s_q, s_k) f32 = exp(S - LSE), 0 where a key is not seen; rows past the used length stay untouched.
/// kTerms: how many terms of a dot product are summed before they are added to the rest, as in the f32 kernels: then a
/// lone key's probability is 1 to the last bit.
template <class Element, int kTerms>
__global__ void __launch_bounds__(128) attention_probabilities(const __grid_constant__ AttentionArgs a) {
  std::int64_t x = blockIdx.x;
  const int i = static_cast<int>(x % a.s_q), h = static_cast<int>(x / a.s_q % a.h_q);
  const int b = static_cast<int>(x / a.s_q / a.h_q), h_kv = h / static_cast<int>(a.h_q / a.h_k);
  const Rows q_rows = Rows::of_q(a, b), k_rows = Rows::of_k(a, b);
  if (i >= q_rows.length) return;
  const int shift = a.top_left ? 0 : k_rows.length - q_rows.length;
  const BandMask mask = BandMask::make(k_rows.length, shift, a.left, a.right);
  const ScoreRow<Element> row(a, b, h, i, shift);
  const float lse =
      static_cast<const float*>(a.lse.data)[b * a.lse.stride[0] + h * a.lse.stride[1] + i * a.lse.stride[2]];
  const Element* q = static_cast<const Element*>(a.q.data) + b * a.q.stride[0] + i * a.q.stride[1] + h * a.q.stride[2];
  const Element* k = static_cast<const Element*>(a.k.data) + b * a.k.stride[0] + h_kv * a.k.stride[2];
  float* p = static_cast<float*>(a.probabilities.data) + b * a.probabilities.stride[0] + h * a.probabilities.stride[1] +
             i * a.probabilities.stride[2];
  for (int j = static_cast<int>(threadIdx.x); j < a.s_k; j += 128) {
    float probability = 0;
    if (mask.keep(i, j) && lse != -FALCHION_INF) {
      float dot = 0, sum = 0;
      for (int d = 0; d < a.d_qk; ++d) {
        sum = fmaf(static_cast<float>(q[d]), static_cast<float>(k[j * a.k.stride[1] + d]), sum);
        if (d % kTerms == kTerms - 1) dot += sum, sum = 0;
      }
      dot += sum;
      probability = exp2((row.add_bias_and_mask(row.apply(dot, j), j) - lse) * kLog2e);
    }
    p[j * a.probabilities.stride[3]] = probability;
  }
}

template <class Element, int kTerms>
int launch_attention_probabilities(const AttentionArgs& a, void* stream) {
  const std::int64_t rows = a.b * a.h_q * a.s_q;
  if (rows > INT32_MAX) return cudaErrorInvalidConfiguration;
  return launch_kernel(attention_probabilities<Element, kTerms>, static_cast<unsigned>(rows), 128, 0, stream, false, a);
}
template int launch_attention_probabilities<cutlass::bfloat16_t, 8>(const AttentionArgs&, void*);
template int launch_attention_probabilities<cutlass::half_t, 8>(const AttentionArgs&, void*);
template int launch_attention_probabilities<float, 8>(const AttentionArgs&, void*);
template int launch_attention_probabilities<float, 4>(const AttentionArgs&, void*);

}  // namespace falchion::sm80
