// src/sm80/norm_backward/load.cuh: the numbers of a row that its threads read and write, eight at a time as f32: those
// of x, grad_y and grad_residual_out through shared memory, into which the rows ahead are loaded, or from memory.
#pragma once

#include <cstdint>

#include "args/gpu_norm_backward_args.hpp"
#include "base/host_device.hpp"
#include "gpu/blocks/async.cuh"
#include "gpu/blocks/numbers.cuh"
#include "tiles/norm_backward/sm80.hpp"

namespace falchion::sm80 {

using namespace gpu;

static_assert(kGradChunk == kNumbers);

/// The place of a thread in its row, and which of the rows that a CTA has at a time it is.
struct GradThread {
  int number, of;  // this thread, and how many the row has
  int row, rows;

  static FALCHION_DEVICE GradThread here(const NormBackwardArgs& a) {
    const int of = a.cut.threads, thread = static_cast<int>(threadIdx.x);
    return {thread & (of - 1), of, thread / of, kGradThreads / of};
  }
  /// Where in the row number e of chunk c of this thread is. kWhole: chunks are contiguous; else neighbouring threads
  /// have neighbouring numbers.
  template <bool kWhole>
  FALCHION_DEVICE int column(int c, int e) const {
    return kWhole ? (c * of + number) * kNumbers + e : (c * kNumbers + e) * of + number;
  }
};

/// kWhole: each chunk is contiguous in memory, and 16 bytes are loaded at a time; else neighbouring threads have
/// neighbouring numbers. kAhead: cut.stages rows are in shared memory or on their way there. A thread reads there only
/// what it has loaded itself, so it waits for nobody.
template <class Element, bool kWhole, bool kAhead>
class GradLoad {
 public:
  FALCHION_DEVICE GradLoad(const NormBackwardArgs& a, const GradThread& thread, char* shared)
      : a_(a),
        thread_(thread),
        shared_(shared + threadIdx.x * 16),
        y_piece_(a.cut.chunks * kPieces),
        r_piece_(y_piece_ + a.cut.chunks * pieces(a.grad_y_type)),
        all_pieces_(r_piece_ + (has_residual() ? a.cut.chunks * pieces(a.residual_type) : 0)) {}

  FALCHION_DEVICE bool is_there(int c, int e = 0) const { return at(c, kWhole ? 0 : e) < static_cast<int>(a_.d); }

  /// The rows of a part, of which this thread has every thread.rows-th.
  FALCHION_DEVICE void begin(std::int64_t first, int rows) {
    first_ = first;
    rows_ = rows;
    if constexpr (kAhead) {
      asked_ = thread_.row;
      ask_stage_ = 0;
      stage_ = -1;
      for (int stage = 0; stage < a_.cut.stages - 1; ++stage) ask();
    }
  }
  /// The next row of this thread is there.
  FALCHION_DEVICE void next() {
    if constexpr (kAhead) {
      ask();
      stage_ = stage_ + 1 == a_.cut.stages ? 0 : stage_ + 1;
      if (a_.cut.stages == 3) asm volatile("cp.async.wait_group 2;" ::: "memory");
      if (a_.cut.stages == 2) asm volatile("cp.async.wait_group 1;" ::: "memory");
      if (a_.cut.stages == 1) asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
  }
  /// Where the row begins in memory.
  FALCHION_DEVICE void at(const NormPlace& place) {
    weight_ = place.in(a_.weight);
    if constexpr (!kAhead) {
      x_ = place.in(a_.x);
      y_ = place.in(a_.grad_y);
      r_ = place.in(a_.grad_residual_out);
    }
  }

  FALCHION_DEVICE float first_number() const {
    return thread_.number < static_cast<int>(a_.d) ? static_cast<float>(static_cast<const Element*>(a_.x.data)[x_]) : 0;
  }
  FALCHION_DEVICE void x(int c, float (&out)[kNumbers]) const { get<Element>(a_.x, x_, c * kPieces, c, out); }
  FALCHION_DEVICE void grad_y(int c, float (&out)[kNumbers]) const {
    with_type(a_.grad_y_type, [&](auto of) {
      using T = decltype(of);
      get<T>(a_.grad_y, y_, y_piece_ + c * (sizeof(T) == 4 ? 2 : 1), c, out);
    });
  }
  /// In one rounding, so that an Inf of the residual stays one beside a product past f32.
  FALCHION_DEVICE void scale_and_add_residual(int c, float by, float (&to)[kNumbers]) const {
    if (!has_residual()) {
      if (by == 1) return;
#pragma unroll
      for (int e = 0; e < kNumbers; ++e) to[e] *= by;
      return;
    }
    with_type(a_.residual_type, [&](auto of) {
      float more[kNumbers];
      using T = decltype(of);
      get<T>(a_.grad_residual_out, r_, r_piece_ + c * (sizeof(T) == 4 ? 2 : 1), c, more);
#pragma unroll
      for (int e = 0; e < kNumbers; ++e) to[e] = fmaf(to[e], by, more[e]);
    });
  }
  FALCHION_DEVICE void times_weight(int c, float (&to)[kNumbers]) const {
    if (a_.weight.data == nullptr) return;
    const float more = a_.zero_centered ? 1 : 0;
    with_type(a_.weight_type, [&](auto of) {
      float factor[kNumbers];
      from_memory<decltype(of)>(a_.weight, weight_, c, factor);
#pragma unroll
      for (int e = 0; e < kNumbers; ++e) to[e] *= more + factor[e];
    });
  }
  FALCHION_DEVICE void store(int c, const NormPlace& place, const float (&from)[kNumbers]) const {
    std::int64_t row = place.in(a_.grad_x);
    asm volatile("" : "+l"(row));
    Element* to = static_cast<Element*>(a_.grad_x.data) + row;
    if constexpr (kWhole) {
      store_words(words_of<Element>(from), to + at(c, 0), sizeof(Element) == 4);
    } else {
#pragma unroll
      for (int e = 0; e < kNumbers; ++e)
        if (is_there(c, e)) to[at(c, e) * a_.grad_x.stride[3]] = Element(from[e]);
    }
  }

 private:
  static constexpr int kPieces = sizeof(Element) == 4 ? 2 : 1;  // of 16 bytes, of a chunk
  static FALCHION_DEVICE int pieces(Number type) { return type == Number::f32 ? 2 : 1; }
  FALCHION_DEVICE bool has_residual() const { return a_.grad_residual_out.data != nullptr; }
  FALCHION_DEVICE int at(int c, int e) const { return thread_.column<kWhole>(c, e); }

  template <class T>
  FALCHION_DEVICE void from_memory(const View& x, std::int64_t row, int c, float (&out)[kNumbers]) const {
    asm volatile("" : "+l"(row));  // else the addresses of all chunks and types are kept at once
    const T* from = static_cast<const T*>(x.data) + row;
    if constexpr (kWhole) {
      const NumberWords words = load_words(from + at(c, 0), sizeof(T) == 4);
#pragma unroll
      for (int e = 0; e < kNumbers; ++e) out[e] = number<T>(words, e);
    } else {
#pragma unroll
      for (int e = 0; e < kNumbers; ++e) out[e] = is_there(c, e) ? static_cast<float>(from[at(c, e) * x.stride[3]]) : 0;
    }
  }
  template <class T>
  FALCHION_DEVICE void get(const View& x, std::int64_t row, int piece, int c, float (&out)[kNumbers]) const {
    if constexpr (kAhead) {
      NumberWords words;
      const char* from = stage_at(stage_) + piece * kPieceBytes;
      *reinterpret_cast<uint4*>(words.word) = *reinterpret_cast<const uint4*>(from);
      if constexpr (sizeof(T) == 4)
        *reinterpret_cast<uint4*>(words.word + 4) = *reinterpret_cast<const uint4*>(from + kPieceBytes);
#pragma unroll
      for (int e = 0; e < kNumbers; ++e) out[e] = number<T>(words, e);
    } else {
      from_memory<T>(x, row, c, out);
    }
  }
  static constexpr int kPieceBytes = kGradThreads * 16;  // 16 bytes of each thread
  FALCHION_DEVICE char* stage_at(int stage) const { return shared_ + stage * all_pieces_ * kPieceBytes; }

  /// Starts the loads of the next row that was not asked for, if there is one.
  FALCHION_DEVICE void ask() {
    if (asked_ < rows_) {
      const NormPlace place = NormPlace::of(a_, first_ + asked_);
      ask(a_.x, place, kPieces, 0);
      ask(a_.grad_y, place, pieces(a_.grad_y_type), y_piece_);
      if (has_residual()) ask(a_.grad_residual_out, place, pieces(a_.residual_type), r_piece_);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    asked_ += thread_.rows;
    ask_stage_ = ask_stage_ + 1 == a_.cut.stages ? 0 : ask_stage_ + 1;
  }
  FALCHION_DEVICE void ask(const View& x, const NormPlace& place, int pieces, int piece) const {
    const char* from = static_cast<const char*>(x.data) + (place.in(x) + at(0, 0)) * (2 * pieces);
    auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(stage_at(ask_stage_))) + piece * kPieceBytes;
    const int step = thread_.of * kNumbers * 2 * pieces;
#pragma unroll 1
    for (int c = 0; c < a_.cut.chunks && is_there(c); ++c, from += step) {
#pragma unroll 1
      for (int i = 0; i < pieces; ++i, to += kPieceBytes) copy_chunk_async(from + 16 * i, to, 16);
    }
  }

  const NormBackwardArgs& a_;
  const GradThread thread_;
  char* const shared_;
  const int y_piece_, r_piece_, all_pieces_;  // pieces of a stage: where grad_y and the residual begin, and how many
  std::int64_t first_ = 0, x_ = 0, y_ = 0, r_ = 0, weight_ = 0;
  int rows_ = 0, asked_ = 0, ask_stage_ = 0, stage_ = -1;
};

}  // namespace falchion::sm80
