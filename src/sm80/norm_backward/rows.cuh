// src/sm80/norm_backward/rows.cuh: the gradients of layer norm and RMSNorm on a GPU: the variants of kind `rows`. A
// power of two of threads share a row. A CTA has an SM for itself and takes the rows of a part, several at a time; the
// next rows are on their way into shared memory meanwhile, so memory is read once and written once. What the rows add
// to grad_weight and grad_bias stays in registers until the part ends; a second kernel adds the parts' sums in their
// order. This file gives the order of the steps; docs/design/norm.md has the measurements.
#pragma once

#include <type_traits>

#include "gpu/blocks/stream_order.cuh"
#include "policy/norm_range.hpp"
#include "sm80/norm_backward/load.cuh"
#include "sm80/norm_backward/sums.cuh"

namespace falchion::sm80 {

/// kChunks: of a thread; 0: the row is too long for registers and shared memory, it is read once for each pass by all
/// threads of the CTA, and its sums are in the workspace.
template <class Element, int kChunks, bool kWhole>
class NormGradients {
 public:
  static constexpr bool kKept = kChunks > 0;

  FALCHION_DEVICE NormGradients(const NormBackwardArgs& a, char* shared)
      : a_(a),
        thread_(GradThread::here(a)),
        slots_(reinterpret_cast<float4*>(shared)),
        load_(a, thread_, shared + kGradSlotBytes),
        sums_(a, thread_, reinterpret_cast<float*>(shared + kGradSlotBytes)) {}

  FALCHION_DEVICE void run() {
    const std::int64_t items = a_.groups * a_.parts;
    for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
      run_part(item / a_.parts, item % a_.parts);
      sums_.store(item);
    }
  }

 private:
  /// rest is the rounding error of mean in f32; g and gz are the means of g and g (v - mean - rest). All but g are
  /// those of the numbers times scale_. RMSNorm has no mean, and g is 0 there.
  struct Means {
    float mean, rest, variance, g, gz;
  };

  FALCHION_DEVICE void run_part(std::int64_t group, std::int64_t part) {
    const std::int64_t begin = part * a_.part_rows, left = a_.group - begin;
    const std::int64_t first = group * a_.group + begin;
    const int rows = static_cast<int>(left < a_.part_rows ? left : a_.part_rows), step = thread_.rows;
    sums_.clear();
    load_.begin(first, rows);
    for (int row = thread_.row; row - thread_.row < rows; row += step) {  // as often for all threads
      load_.next();
      run_row(NormPlace::of(a_, row < rows ? first + row : first), row < rows);
    }
  }

  FALCHION_DEVICE void run_row(const NormPlace& place, bool there) {
    load_.at(place);
    scale_ = 1;
    Means m = means(there);
    for (;;) {  // once more where the squares lie outside the range of f32
      const float scale = there && scale_ == 1 ? norm_scale(m.mean, m.variance, a_.eps) : 1;
      bool again = scale != 1;
      if (thread_.of < 32) again = __any_sync(0xFFFFFFFFu, again);
      if (!again) break;
      if (scale != 1) scale_ = scale;
      m = means(there);
    }
    if (!there) return;
    const NormScaled of = NormScaled::of(scale_, m.variance, a_.eps);
    finish(place, m, 1.f / sqrtf(m.variance + of.eps), of.rstd);
    sums_.next();
  }

  static FALCHION_DEVICE bool is_finite(float x) { return x - x == 0; }

  /// The deviations from the first mean are summed again, which corrects its rounding, as in the forward pass. In a row
  /// of equal numbers each deviation is the same few units of the mean, so their sums are exact, and the variance is 0.
  /// A long row may be too long for that, so its first number is subtracted from each before the first sum.
  FALCHION_DEVICE Means means(bool there) {
    const float d = static_cast<float>(a_.d);
    Means out{};
    float4 sum{};
    if (a_.layer) {
      float start = 0;
      if constexpr (!kKept) {
        start = load_.first_number() * scale_;
        if (!is_finite(start)) start = 0;
      }
      each_chunk([&](int c) {
        float v[kGradChunk];
        x(c, v);
#pragma unroll
        for (int e = 0; e < kGradChunk; ++e) sum.x += load_.is_there(c, e) ? v[e] - start : 0;
      });
      out.mean = start + sum_of_row({sum.x, 0, 0, 0}).x / d;
      sum = {};
    }
    each_chunk([&](int c) {
      float v[kGradChunk], g[kGradChunk];
      x(c, v);
      load_.grad_y(c, g);
      load_.times_weight(c, g);
#pragma unroll
      for (int e = 0; e < kGradChunk; ++e) {
        const float by = load_.is_there(c, e) ? v[e] - out.mean : 0;
        sum.x += by;
        sum.y = fmaf(by, by, sum.y);
        sum.z += g[e];
        sum.w = fmaf(g[e], by, sum.w);
      }
    });
    sum = sum_of_row(sum);
    out.rest = a_.layer && is_finite(out.mean) ? sum.x / d : 0;
    const float variance = fmaf(-out.rest, out.rest, sum.y / d);
    out.variance = variance < 0 ? 0 : variance;  // NaN stays
    out.g = a_.layer ? sum.z / d : 0;
    out.gz = is_finite(sum.z) ? fmaf(-out.rest, sum.z / d, sum.w / d) : sum.w / d;
    return out;
  }

  /// rstd is factor times back, which is 1 or a power of two: rstd itself may be past f32.
  FALCHION_DEVICE void finish(const NormPlace& place, const Means& m, float factor, float back) {
    const float shift = m.rest == 0 ? 0 : -m.rest * factor, of_gz = m.gz * factor;
    const bool writes = a_.grad_x.data != nullptr;
    each_chunk([&](int c) {
      float z[kGradChunk], g[kGradChunk];
      x(c, z);
      load_.grad_y(c, g);
#pragma unroll
      for (int e = 0; e < kGradChunk; ++e) z[e] = fmaf(z[e] - m.mean, factor, shift);
      sums_.add(c, g, z);
      if (!writes) return;
      load_.times_weight(c, g);
#pragma unroll
      for (int e = 0; e < kGradChunk; ++e) g[e] = fmaf(-z[e], of_gz, g[e] - m.g) * factor;
      load_.scale_and_add_residual(c, back, g);
      load_.store(c, place, g);
    });
  }

  FALCHION_DEVICE void x(int c, float (&v)[kGradChunk]) const {
    load_.x(c, v);
    if (scale_ != 1) {
#pragma unroll
      for (int e = 0; e < kGradChunk; ++e) v[e] *= scale_;
    }
  }
  template <class F>
  FALCHION_DEVICE void each_chunk(F f) const {
    if constexpr (kKept) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
        if (load_.is_there(c)) f(c);
    } else {
      for (int c = 0; load_.is_there(c); ++c) f(c);
    }
  }

  /// Adds x up over the threads of the row; each of them gets the same bits. One after another, sums have places of
  /// their own in turns, so no warp writes where another still reads. A row of up to 32 threads lies within a warp.
  FALCHION_DEVICE float4 sum_of_row(float4 x) {
    for (int by = (thread_.of < 32 ? thread_.of : 32) / 2; by > 0; by /= 2) {
      x.x += __shfl_xor_sync(0xFFFFFFFFu, x.x, by);
      x.y += __shfl_xor_sync(0xFFFFFFFFu, x.y, by);
      x.z += __shfl_xor_sync(0xFFFFFFFFu, x.z, by);
      x.w += __shfl_xor_sync(0xFFFFFFFFu, x.w, by);
    }
    if (thread_.of <= 32) return x;
    float4* slots = slots_ + turn_ * kGradWarps;
    turn_ ^= 1;
    if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = x;
    asm volatile("bar.sync %0, %1;" ::"r"(1 + thread_.row), "r"(thread_.of) : "memory");
    const int first = thread_.row * thread_.of / 32;
    x = slots[first];
    for (int other = 1; other < thread_.of / 32; ++other) {
      const float4 y = slots[first + other];
      x.x += y.x;
      x.y += y.y;
      x.z += y.z;
      x.w += y.w;
    }
    return x;
  }

  const NormBackwardArgs& a_;
  const GradThread thread_;
  float4* slots_;
  int turn_ = 0;
  float scale_ = 1;
  GradLoad<Element, kWhole, kKept && kWhole> load_;
  GradSums<kChunks, kWhole> sums_;
};

template <class Element, int kChunks, bool kWhole>
__global__ void __launch_bounds__(kGradThreads, 1) norm_backward(const __grid_constant__ NormBackwardArgs a) {
  extern __shared__ __align__(16) char shared[];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  NormGradients<Element, kChunks, kWhole>(a, shared).run();
}

template <class Element>
int launch_norm_backward(const NormBackwardArgs& a, void* stream) {
  if (a.ctas == 0) return 0;
  const auto bytes = [](Number type) { return type == Number::f32 ? 4 : 2; };
  const int sizes = static_cast<int>(sizeof(Element)) + bytes(a.grad_y_type) +
                    (a.grad_residual_out.data != nullptr ? bytes(a.residual_type) : 0);
  const auto launch = [&](auto chunks, auto whole) -> int {
    return launch_kernel<norm_backward<Element, chunks(), whole()>>(
        a.ctas, kGradThreads, grad_shared_bytes(a.cut, sizes), stream, a.early, a);
  };
  constexpr std::integral_constant<int, 0> kNone;
  constexpr std::integral_constant<int, kGradChunks> kMany;
  constexpr std::integral_constant<int, kGradFewChunks> kFew;
  int error = 0;
  if (!a.cut.whole)
    error = a.cut.chunks == 0 ? launch(kNone, std::false_type{}) : launch(kFew, std::false_type{});
  else if (a.cut.chunks == 0)
    error = launch(kNone, std::true_type{});
  else
    error = a.cut.chunks == kGradChunks ? launch(kMany, std::true_type{}) : launch(kFew, std::true_type{});
  return error != 0 ? error : launch_sum_of_parts(a, stream);
}

template <class Element, int>
constexpr gpu::NormBackwardKernel norm_backward_rows() {
  return {launch_norm_backward<Element>, norm_backward_facts()};
}

}  // namespace falchion::sm80
