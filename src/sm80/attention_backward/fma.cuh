// src/sm80/attention_backward/fma.cuh: the products of the backward pass in f32, by FFMA. 16 x 16 threads share a tile:
// the 16 threads of one line own the same rows, which are 16 apart.
#pragma once

#include "base/host_device.hpp"
#include "tiles/attention_backward/sm80.hpp"

namespace falchion::sm80 {

using namespace gpu;

template <int kD_>
struct BackwardFma {
  using Element = float;
  static constexpr BackwardTiles kTiles = attention_backward_tiles(BackwardKind::bits32, kD_);
  static constexpr int kD = kD_, kOwn = kTiles.own, kVisited = kTiles.visited, kColumns = kTiles.columns;
  static constexpr int kThreads = kTiles.threads, kStages = kTiles.stages, kCtas = kTiles.ctas;
  static constexpr int kSharedBytes = backward_shared_bytes(kTiles);
  static constexpr int kChunk = 4;  // elements that are copied at a time
  static constexpr int kStride = kD + kPadding, kStrideP = kVisited + kPadding;
  static constexpr int kSizeOwn = kOwn * kStride, kSizeVisited = kVisited * kStride, kSizeP = kOwn * kStrideP;
  static_assert(kThreads == 256 && kOwn % 16 == 0 && kVisited % 16 == 0 && kColumns == kD && kColumns % 64 == 0);

  static FALCHION_DEVICE int line() { return static_cast<int>(threadIdx.x) / 16; }
  static FALCHION_DEVICE int place() { return static_cast<int>(threadIdx.x) % 16; }

  template <int kRows>
  static FALCHION_DEVICE int at(int row, int column) {
    return row * kStride + column;
  }

  /// This thread's part of the scores (own, visited). Its keys are 16 apart, so that neighbouring threads read
  /// neighbouring rows.
  struct Scores {
    static constexpr int kRows = kOwn / 16, kColumns = kVisited / 16;
    float x[kRows][kColumns];
    FALCHION_DEVICE float& operator()(int r, int c) { return x[r][c]; }
    static FALCHION_DEVICE int row(int r) { return r * 16 + line(); }
    static FALCHION_DEVICE int column(int c) { return c * 16 + place(); }
  };
  /// This thread's part of an output (own, columns): groups of four columns, 64 apart.
  struct Output {
    static constexpr int kRows = kOwn / 16, kColumns = BackwardFma::kColumns / 16;
    float x[kRows][kColumns];
    FALCHION_DEVICE float& operator()(int r, int c) { return x[r][c]; }
    static FALCHION_DEVICE int row(int r) { return r * 16 + line(); }
    static FALCHION_DEVICE int column(int c) { return c / 4 * 64 + place() * 4 + c % 4; }
    FALCHION_DEVICE void clear() {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) x[r][c] = 0;
      }
    }
  };

  static FALCHION_DEVICE float4 four(const float* at) { return *reinterpret_cast<const float4*>(at); }

  /// S = A B^T over the head dims. Eight terms are summed before they are added to the score, because each addition to
  /// a long sum rounds at the magnitude of the sum, and the exponential multiplies the error.
  static FALCHION_DEVICE void multiply(Scores& s, const float* own, const float* visited) {
#pragma unroll
    for (int r = 0; r < Scores::kRows; ++r) {
#pragma unroll
      for (int c = 0; c < Scores::kColumns; ++c) s.x[r][c] = 0;
    }
#pragma unroll 1
    for (int k = 0; k < kD; k += 8) {
      float sum[Scores::kRows][Scores::kColumns] = {};
#pragma unroll
      for (int half = 0; half < 8; half += 4) {
        float4 a[Scores::kRows], b[Scores::kColumns];
#pragma unroll
        for (int r = 0; r < Scores::kRows; ++r) a[r] = four(own + Scores::row(r) * kStride + k + half);
#pragma unroll
        for (int c = 0; c < Scores::kColumns; ++c) b[c] = four(visited + Scores::column(c) * kStride + k + half);
#pragma unroll
        for (int r = 0; r < Scores::kRows; ++r) {
#pragma unroll
          for (int c = 0; c < Scores::kColumns; ++c) {
            sum[r][c] = fmaf(a[r].x, b[c].x, sum[r][c]);
            sum[r][c] = fmaf(a[r].y, b[c].y, sum[r][c]);
            sum[r][c] = fmaf(a[r].z, b[c].z, sum[r][c]);
            sum[r][c] = fmaf(a[r].w, b[c].w, sum[r][c]);
          }
        }
      }
#pragma unroll
      for (int r = 0; r < Scores::kRows; ++r) {
#pragma unroll
        for (int c = 0; c < Scores::kColumns; ++c) s.x[r][c] += sum[r][c];
      }
    }
  }

  /// out += P B, where B is a visited tile. P goes through shared memory, since each thread needs whole rows of it.
  static FALCHION_DEVICE void add_product(Output& out, Scores& p, const float* visited, int, float* shared) {
    __syncthreads();  // no thread still reads the previous contents
#pragma unroll
    for (int r = 0; r < Scores::kRows; ++r) {
#pragma unroll
      for (int c = 0; c < Scores::kColumns; ++c) shared[Scores::row(r) * kStrideP + Scores::column(c)] = p.x[r][c];
    }
    __syncthreads();
#pragma unroll 2
    for (int n = 0; n < kVisited; ++n) {
      float a[Output::kRows];
#pragma unroll
      for (int r = 0; r < Output::kRows; ++r) a[r] = shared[Output::row(r) * kStrideP + n];
#pragma unroll
      for (int group = 0; group < Output::kColumns / 4; ++group) {
        const float4 b = four(visited + n * kStride + Output::column(4 * group));
#pragma unroll
        for (int r = 0; r < Output::kRows; ++r) {
          out.x[r][4 * group] = fmaf(a[r], b.x, out.x[r][4 * group]);
          out.x[r][4 * group + 1] = fmaf(a[r], b.y, out.x[r][4 * group + 1]);
          out.x[r][4 * group + 2] = fmaf(a[r], b.z, out.x[r][4 * group + 2]);
          out.x[r][4 * group + 3] = fmaf(a[r], b.w, out.x[r][4 * group + 3]);
        }
      }
    }
  }
};

}  // namespace falchion::sm80
