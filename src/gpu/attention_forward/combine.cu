// src/gpu/attention_forward/combine.cu: merges the partial results over disjoint keys into O and LSE: O = sum_i O_i l_i
// 2^(m_i - m) / l. The parts are added in their order, so that two runs give the same bits.
#include "base/host_device.hpp"
#include "gpu/attention_forward/after.hpp"

#include <cutlass/array.h>
#include <cutlass/bfloat16.h>
#include <cutlass/half.h>

#include <cute/config.hpp>

#include "gpu/attention_forward/query_row.cuh"
#include "gpu/blocks/softmax.cuh"
#include "gpu/blocks/stream_order.cuh"

namespace falchion::gpu {

/// The weights of the parts of a row. Lane i has the weights of parts i, i + 32, ... In f32 the numbers of a part are
/// relative to e^m, and the weights are as exact as a float can be. Otherwise they are relative to 2^m.
template <class Element>
struct PartWeights {
  static constexpr int kEach = kMaxSplits / 32;
  static constexpr bool kExact = sizeof(Element) == 4;
  float weight[kEach];  // l_i 2^(m_i - m) / l; -1 for an empty part
  float lse;            // of all parts together

  /// sink: that of the row's head, -inf without one.
  FALCHION_DEVICE PartWeights(const AttentionArgs& a, std::int64_t row, std::int64_t rows, float sink) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto* parts = reinterpret_cast<const float2*>(a.partial_m_l) + row;
    if (!kExact) sink *= kLog2e;
    float m = sink, l = 0;
    float2 of_part[kEach];  // m, l
    CUTE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int part = lane + 32 * i;
      of_part[i] = part < a.splits ? parts[part * rows] : float2{-FALCHION_INF, 0};
      m = fmaxf(m, of_part[i].x);
    }
    for (int step = 16; step > 0; step /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, step));
    const float reference = m == -FALCHION_INF ? 0.f : m;
    // A NaN in one part makes l, and so the weights of all parts, NaN.
    CUTE_UNROLL
    for (int i = 0; i < kEach; ++i) l += weight[i] = of_part[i].y * power(of_part[i].x - reference);
    for (int step = 16; step > 0; step /= 2) l += __shfl_xor_sync(~0u, l, step);
    if (sink != -FALCHION_INF) l += power(sink - reference);
    CUTE_UNROLL
    for (int i = 0; i < kEach; ++i) weight[i] = of_part[i].y == 0 ? -1 : weight[i] / l;
    lse = l == 0 ? -FALCHION_INF : natural(reference, l);
  }

 private:
  static FALCHION_DEVICE float power(float x) {
    if constexpr (kExact) return static_cast<float>(::exp(static_cast<double>(x)));
    return exp2(x);
  }
  static FALCHION_DEVICE float natural(float m, float l) {
    if constexpr (kExact) return static_cast<float>(m + ::log(static_cast<double>(l)));
    return (m + log2(l)) * kLn2;
  }
};

/// Merges one row of O, with kWidth neighbouring columns per lane. Four parts are read at a time, so that their
/// latencies overlap.
template <int kWidth, class Element>
FALCHION_DEVICE void combine_row(const AttentionArgs& a, const PartWeights<Element>& weights, const float* from,
                                 std::int64_t part_stride, Element* o) {
  using Floats = cutlass::AlignedArray<float, kWidth>;
  using Elements = cutlass::AlignedArray<Element, kWidth>;
  const int lane = static_cast<int>(threadIdx.x) % 32, d_v = static_cast<int>(a.d_v);
  for (int first = 0; first < d_v; first += 32 * kWidth) {
    const int column = min(first + lane * kWidth, d_v - kWidth);  // all lanes must take part in the shuffles
    float sum[kWidth] = {};
    CUTE_UNROLL
    for (int i = 0; i < PartWeights<Element>::kEach; ++i) {
      const int end = min(a.splits, 32 * i + 32);
#pragma unroll 4
      for (int part = 32 * i; part < end; ++part) {
        const Floats x = *reinterpret_cast<const Floats*>(from + part * part_stride + column);
        const float weight = __shfl_sync(~0u, weights.weight[i], part % 32);
        // Only empty parts are left out. A part whose weight is 0 beside a much larger one still passes on its NaN.
        CUTE_UNROLL
        for (int c = 0; c < kWidth; ++c) sum[c] += weight < 0 ? 0.f : weight * x[c];
      }
    }
    if (first + lane * kWidth >= d_v) continue;
    Elements out;
    CUTE_UNROLL
    for (int c = 0; c < kWidth; ++c) out[c] = Element(sum[c]);
    *reinterpret_cast<Elements*>(o + column) = out;
  }
}

inline constexpr int kCombineWarps = 4;

/// A warp merges row `row` of `rows` in the partial results, which is row i of entry `batch` of o and head h of
/// sequence b.
template <class Element>
FALCHION_DEVICE void merge_parts(const AttentionArgs& a, std::int64_t row, std::int64_t rows, std::int64_t batch,
                                 std::int64_t b, std::int64_t i, std::int64_t h) {
  const PartWeights<Element> weights(a, row, rows, sink_of(a, b, h));
  if (threadIdx.x % 32 == 0 && a.lse.data != nullptr)
    static_cast<float*>(a.lse.data)[batch * a.lse.stride[0] + h * a.lse.stride[1] + i * a.lse.stride[2]] = weights.lse;
  const float* from = a.partial_o + row * a.d_v;
  Element* o = static_cast<Element*>(a.o.data) + batch * a.o.stride[0] + i * a.o.stride[1] + h * a.o.stride[2];
  if (a.aligned && a.d_v % 4 == 0)
    combine_row<4>(a, weights, from, rows * a.d_v, o);
  else
    combine_row<1>(a, weights, from, rows * a.d_v, o);
}

/// One warp merges one row (b, i, h). With one CTA per row, most of the time went into starting CTAs: attention of 16
/// heads, 1024 queries and keys, d 64, took 36 us in two parts, 15 us more than uncut. Rows past the used length stay
/// untouched.
template <class Element>
__global__ void __launch_bounds__(32 * kCombineWarps) attention_combine(const __grid_constant__ AttentionArgs a) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const std::int64_t rows = a.b * a.s_q * a.h_q, row = std::int64_t{blockIdx.x} * kCombineWarps + threadIdx.x / 32;
  if (row >= rows) return;
  const std::int64_t h = row % a.h_q, i = row / a.h_q % a.s_q, b = row / a.h_q / a.s_q;
  if (a.used_q != nullptr && i >= a.used_q[b]) return;
  merge_parts<Element>(a, row, rows, b, b, i, h);
}

/// The same for packed rows (i, h). Rows of no sequence stay untouched, too.
template <class Element>
__global__ void __launch_bounds__(32 * kCombineWarps)
    attention_combine_packed(const __grid_constant__ AttentionArgs a) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const std::int64_t rows = a.total_q * a.h_q, row = std::int64_t{blockIdx.x} * kCombineWarps + threadIdx.x / 32;
  if (row >= rows) return;
  const std::int64_t i = row / a.h_q;
  const QueryRow at(a, static_cast<int>(i));
  if (at.exists) merge_parts<Element>(a, row, rows, 0, at.b, i, row - i * a.h_q);
}

template <class Element>
int launch_attention_combine(const AttentionArgs& a, void* stream) {
  const std::int64_t rows = (a.packed ? a.total_q : a.b * a.s_q) * a.h_q;
  const auto blocks = static_cast<unsigned>((rows + kCombineWarps - 1) / kCombineWarps);
  if (a.packed)
    return launch_kernel<attention_combine_packed<Element>>(blocks, 32 * kCombineWarps, 0, stream, a.early, a);
  return launch_kernel<attention_combine<Element>>(blocks, 32 * kCombineWarps, 0, stream, a.early, a);
}
template int launch_attention_combine<cutlass::bfloat16_t>(const AttentionArgs&, void*);
template int launch_attention_combine<cutlass::half_t>(const AttentionArgs&, void*);
template int launch_attention_combine<float>(const AttentionArgs&, void*);

}  // namespace falchion::gpu
