// src/sm80/norm_backward/sums.cuh: the sums of grad_weight and grad_bias over the rows of a part, and of the parts.
#pragma once

#include <cstdint>

#include "gpu/blocks/stream_order.cuh"
#include "sm80/norm_backward/load.cuh"

namespace falchion::sm80 {

using gpu::NormBackwardArgs;

FALCHION_DEVICE void store_sum(const NormBackwardArgs& a, const NormSum& sum, std::int64_t group, int j, float value) {
  const std::int64_t at = NormPlace::of(a, group * a.group).in(sum.to) + j * sum.to.stride[3];
  with_type(sum.type, [&](auto of) {
    using T = decltype(of);
    static_cast<T*>(sum.to.data)[at] = T(value);
  });
}

/// A thread's sums of its columns, in registers; the CTA's rows are added up in shared memory, in their order.
template <int kChunks, bool kWhole>
class GradSums {
 public:
  FALCHION_DEVICE GradSums(const NormBackwardArgs& a, const GradThread& thread, float* shared)
      : a_(a), thread_(thread), shared_(shared) {}

  FALCHION_DEVICE void clear() {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int e = 0; e < kGradChunk; ++e) weight_[c][e] = bias_[c][e] = 0;
    }
  }
  FALCHION_DEVICE void add(int c, const float (&grad_y)[kGradChunk], const float (&z)[kGradChunk]) {
#pragma unroll
    for (int e = 0; e < kGradChunk; ++e) {
      weight_[c][e] = fmaf(grad_y[e], z[e], weight_[c][e]);
      bias_[c][e] += grad_y[e];
    }
  }
  FALCHION_DEVICE void next() {}
  FALCHION_DEVICE void store(std::int64_t item) {
    store(a_.grad_weight, weight_, 0, item);
    store(a_.grad_bias, bias_, a_.begin_of_bias(), item);
  }

 private:
  FALCHION_DEVICE void store(const NormSum& sum, const float (&own)[kChunks][kGradChunk], std::int64_t place,
                             std::int64_t item) const {
    if (sum.to.data == nullptr) return;
    const int columns = thread_.of * kChunks * kGradChunk;
    __syncthreads();  // all have read what was there
    float* row = shared_ + thread_.row * columns;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int e = 0; e < kGradChunk; ++e) { row[thread_.column<kWhole>(c, e)] = own[c][e]; }
    }
    __syncthreads();
#pragma unroll 1
    for (int j = static_cast<int>(threadIdx.x); j < static_cast<int>(a_.d); j += kGradThreads) {
      float all = 0;
#pragma unroll 4
      for (int other = 0; other < thread_.rows; ++other) all += shared_[other * columns + j];
      if (a_.parts > 1)
        a_.sums[item * a_.sums_of_part() + place + j] = all;
      else
        store_sum(a_, sum, item, j, all);
    }
    __syncthreads();  // the next rows are loaded there
  }

  const NormBackwardArgs& a_;
  const GradThread thread_;
  float* shared_;
  float weight_[kChunks][kGradChunk], bias_[kChunks][kGradChunk];
};

/// The sums of a long row are in the workspace, where each CTA has a place. There a thread reads and writes its own
/// columns only.
template <bool kWhole>
class GradSums<0, kWhole> {
 public:
  FALCHION_DEVICE GradSums(const NormBackwardArgs& a, const GradThread& thread, float*) : a_(a), thread_(thread) {}

  FALCHION_DEVICE void clear() { is_first_ = true; }
  FALCHION_DEVICE void add(int c, const float (&grad_y)[kGradChunk], const float (&z)[kGradChunk]) {
#pragma unroll
    for (int e = 0; e < kGradChunk; ++e) {
      const int j = at(c, e);
      if (j >= static_cast<int>(a_.d)) continue;
      if (a_.grad_weight.to.data != nullptr) put(0, j, grad_y[e] * z[e]);
      if (a_.grad_bias.to.data != nullptr) put(a_.begin_of_bias(), j, grad_y[e]);
    }
  }
  FALCHION_DEVICE void next() { is_first_ = false; }
  FALCHION_DEVICE void store(std::int64_t item) const {
    if (a_.parts > 1) return;  // it is there
    for (int c = 0; at(c, 0) < static_cast<int>(a_.d); ++c) {
      for (int e = 0; e < kGradChunk; ++e) {
        const int j = at(c, e);
        if (j >= static_cast<int>(a_.d)) continue;
        if (a_.grad_weight.to.data != nullptr) store_sum(a_, a_.grad_weight, item, j, is_first_ ? 0 : own(0)[j]);
        if (a_.grad_bias.to.data != nullptr)
          store_sum(a_, a_.grad_bias, item, j, is_first_ ? 0 : own(a_.begin_of_bias())[j]);
      }
    }
  }

 private:
  FALCHION_DEVICE int at(int c, int e) const { return thread_.column<kWhole>(c, e); }
  FALCHION_DEVICE float* own(std::int64_t place) const { return a_.sums + blockIdx.x * a_.sums_of_part() + place; }
  FALCHION_DEVICE void put(std::int64_t place, int j, float value) {
    float* to = own(place) + j;
    *to = is_first_ ? value : *to + value;
  }

  const NormBackwardArgs& a_;
  const GradThread thread_;
  bool is_first_ = true;
};

inline constexpr int kSumColumns = 32, kSumLanes = 8;  // of a CTA that adds parts up

/// grad_weight and grad_bias of all groups: each thread adds every kSumLanes-th part of its column.
static __global__ void __launch_bounds__(kSumColumns* kSumLanes)
    sum_of_parts(const __grid_constant__ NormBackwardArgs a) {
  __shared__ float lanes[kSumLanes][kSumColumns];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const std::int64_t of_part = a.sums_of_part(), of_bias = a.begin_of_bias();
  const std::int64_t blocks = (of_part + kSumColumns - 1) / kSumColumns, group = blockIdx.x / blocks;
  const std::int64_t column = (blockIdx.x - group * blocks) * kSumColumns + threadIdx.x % kSumColumns;
  const int lane = static_cast<int>(threadIdx.x) / kSumColumns;
  float sum = 0;
  if (column < of_part) {
    const float* from = a.sums + group * a.parts * of_part + column;
#pragma unroll 8
    for (int part = lane; part < static_cast<int>(a.parts); part += kSumLanes) sum += from[part * of_part];
  }
  lanes[lane][threadIdx.x % kSumColumns] = sum;
  __syncthreads();
  if (lane > 0 || column >= of_part) return;
  for (int other = 1; other < kSumLanes; ++other) sum += lanes[other][threadIdx.x];
  const bool is_bias = a.grad_bias.to.data != nullptr && column >= of_bias;
  store_sum(a, is_bias ? a.grad_bias : a.grad_weight, group, static_cast<int>(is_bias ? column - of_bias : column),
            sum);
}

inline int launch_sum_of_parts(const NormBackwardArgs& a, void* stream) {
  if (a.parts == 1 || !a.has_sums()) return 0;
  const std::int64_t blocks = (a.sums_of_part() + kSumColumns - 1) / kSumColumns;
  return launch_kernel<sum_of_parts>(static_cast<unsigned>(a.groups * blocks), kSumColumns * kSumLanes, 0, stream,
                                     a.early, a);
}

}  // namespace falchion::sm80
