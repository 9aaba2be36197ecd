// src/cpu/linear_attention/forward.hpp: causal linear attention, forward, on the CPU. src/ref defines the result; this
// file gives the order of the steps. It works in chunks of tokens, as lightning attention and flash-linear-attention
// do: inside a chunk it computes a small causal product, and from chunk to chunk it carries the state (Katharopoulos et
// al. 2020, arXiv:2006.16236). docs/design/cpu_linear_attention.md gives the reasons and the measurements.
#pragma once

#include <type_traits>

#include "cpu/linear_attention/decode.hpp"
#include "cpu/linear_attention/state.hpp"
#if FALCHION_TILES
  #include "cpu/blocks/products_amx.hpp"
#endif

namespace falchion::cpu::FALCHION_LEVEL {

/// One worker: it holds its slice of the scratch memory and sweeps over the chunks of an item.
template <class T, class Products>
class LinearForwardWorker {
 public:
  LinearForwardWorker(const LinearAttentionArgs& a, Arena& arena)
      : a_(a), chunk_(arena, max(a.d_qk, a.d_v)), streams_(streams(a)), z_(arena, a.d_qk) {
    q_ = {Matrix::take(arena, kChunk, a.d_qk), a.d_qk};
    k_ = {Matrix::take(arena, kChunk, a.d_qk), a.d_qk};
    v_ = {Matrix::take(arena, kChunk, a.d_v), a.d_v};
    o_ = arena.take<float>(round_up(a.d_v, kBlock));
    state_.m = Matrix::take(arena, a.d_qk, a.d_v);
  }

  void run(const LinearItem& item) {
    const StateRef start = Records{a_}.start(item, item.head, a_.initial_state, a_.initial_z);
    const StateRef end = StateRef::of(a_.final_state, a_.final_z, item.b, item.head);
    const Walk walk = item.forwards(a_);
    if (a_.segments == 1 && walk.count == 1 && can_step(start, end))
      return step_once<T>(a_, walk, item.head, start, end, {q_.m.data, k_.m.data, v_.m.data, o_, z_.data()});
    start.load(a_.d_qk, a_.d_v, &state_);
    start.load_z(a_.d_qk, z_.data());
    for (std::int64_t i = 0; i < walk.count; i += kChunk) {
      const std::int64_t n = min(kChunk, walk.count - i);
      load_chunk(walk, i, n, item.head);
      load_keys(a_.q, walk, i, n, item.head, &q_);
      fetch(walk, i, n, item.head);
      sum_weights(n);  // the factor of each row of O: scale, or scale / (scale q . z + eps)
      // O = tril(Q K^T) V + Q S
      chunk_.outputs(n, q_, k_, v_, state_, [&](auto... block) { store_outputs(walk, i, item.head, block...); });
      if (i + n < walk.count || (item.last && end.s != nullptr)) chunk_.update(n, k_, v_, &state_);  // S += K^T V
    }
    if (streams_) streams_end();
    if (!item.last) return;
    end.store(a_.d_qk, a_.d_v, state_);
    end.store_z(a_.d_qk, z_.data());
  }

  /// Writes the sum of one segment alone to its record. The last segment's sum is not computed, since it is not needed.
  void sum(const LinearItem& item) {
    const Records records{a_};
    const StateRef record = records.at(item.b, item.head, item.segment);
    const Walk walk = item.forwards(a_);
    double fade = 0;
    state_.zero = true;
    StateRef{}.load_z(a_.d_qk, z_.data());
    for (std::int64_t i = 0; i < walk.count && !item.last; i += kChunk) {
      const std::int64_t n = min(kChunk, walk.count - i);
      fade += load_chunk(walk, i, n, item.head);
      chunk_.upcoming().start();
      fetch_chunk(walk, i, item.head);
      chunk_.update(n, k_, v_, &state_);
      z_.start_chunk();
      for (std::int64_t t = 0; t < n && a_.normalise; ++t) z_.add(chunk_.decay().each(t), k_.m.row(t));
    }
    record.store(a_.d_qk, a_.d_v, state_);
    record.store_z(a_.d_qk, z_.data());
    records.fade(record) = static_cast<float>(::exp(fade));
  }

 private:
  /// Loads q or k. With elu, normaliser or decay other code than the products reads them, so they become f32 rows.
  void load_keys(const View& x, const Walk& walk, std::int64_t i, std::int64_t n, std::int64_t h, Rows* out) {
    if (a_.elu || a_.normalise || a_.decay.data != nullptr)
      return load_rows<T, Products>(x, walk, i, n, key_head(h), a_.elu, out);
    load_operand<T, Products>(x, walk, i, n, key_head(h), out);
  }
  std::int64_t key_head(std::int64_t h) const { return h / (a_.h_v / a_.h_qk); }
  /// Loads k, v and the decays of a chunk and returns the sum of the decays.
  double load_chunk(const Walk& walk, std::int64_t i, std::int64_t n, std::int64_t h) {
    load_keys(a_.k, walk, i, n, h, &k_);
    load_operand<T, Products>(a_.v, walk, i, n, h, &v_);
    const double sum = load_decay(a_, walk, i, n, h, 0, f_);
    chunk_.start(a_.decay.data != nullptr, f_, n);
    return sum;
  }
  /// Prefetches, during the products of the chunk at token i, the rows of the chunk that comes kAhead chunks later.
  /// During the first chunk it also prefetches the chunks between the two.
  void fetch_ahead(const View& x, const Walk& walk, std::int64_t i, std::int64_t head, std::int64_t width) {
    constexpr std::int64_t kTokens = Products::kAhead * kChunk;
    fetch_rows<T>(x, walk, i == 0 ? kChunk : i + kTokens, i == 0 ? kTokens : kChunk, head, width, false,
                  &chunk_.upcoming());
  }
  /// Prefetches what load_chunk() will read.
  void fetch_chunk(const Walk& walk, std::int64_t i, std::int64_t h) {
    fetch_ahead(a_.k, walk, i, key_head(h), a_.d_qk);
    fetch_ahead(a_.v, walk, i, h, a_.d_v);
  }
  /// Also prefetches the rows of this chunk's outputs, and the q of later chunks.
  void fetch(const Walk& walk, std::int64_t i, std::int64_t n, std::int64_t h) {
    chunk_.upcoming().start();
    if (!streams_) fetch_rows<T>(a_.o, walk, i, n, h, a_.d_v, true, &chunk_.upcoming());
    fetch_chunk(walk, i, h);
    fetch_ahead(a_.q, walk, i, key_head(h), a_.d_qk);
  }
  /// Computes z after the chunk and, on the way, the factor of each output row.
  void sum_weights(std::int64_t n) {
    z_.start_chunk();
    for (std::int64_t t = 0; t < n; ++t) {
      factor_[t] = a_.scale;
      if (!a_.normalise) continue;
      z_.add(chunk_.decay().each(t), k_.m.row(t));
      factor_[t] /= a_.scale * dot(q_.m.row(t), z_.data(), a_.d_qk) + a_.eps;
    }
  }
  /// Stores tokens [first, end) of the chunk that starts with token i, from column c on.
  void store_outputs(const Walk& walk, std::int64_t i, std::int64_t h, std::int64_t first, std::int64_t end,
                     std::int64_t c, std::int64_t cols, Matrix block) {
    for (std::int64_t t = first; t < end; ++t) {
      auto* out = walk.at<typename T::Bits>(a_.o, i + t, h) + c;
      streams_ ? stream_row<T>(out, block.row(t - first), factor_[t], cols)
               : store_row<T>(out, block.row(t - first), factor_[t], cols);
    }
  }
  /// Whether outputs are written past the caches: if they would not stay in a worker's L2 (2 MB on CPUs with AMX), and
  /// are whole cache lines.
  static bool streams(const LinearAttentionArgs& a) {
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(typename T::Bits));
    constexpr auto kLine = 64 / kBytes;  // elements of a cache line
    const std::int64_t tokens = a.packed ? a.total : a.b * a.s;
    const bool lines = a.d_v % kLine == 0 && a.o.stride[0] % kLine == 0 && a.o.stride[1] % kLine == 0 &&
                       a.o.stride[2] % kLine == 0 && reinterpret_cast<std::uintptr_t>(a.o.data) % 64 == 0;
    return kStreams<T> && lines && tokens * a.h_v * a.d_v * kBytes >= std::int64_t{a.threads} << 21;
  }

  const LinearAttentionArgs& a_;
  CausalChunk<Products> chunk_;
  const bool streams_;
  Rows q_, k_, v_;
  State state_;
  RunningZ z_;
  float* o_;  // one row, only for step_once()
  double f_[kChunk] = {};
  float factor_[kChunk] = {};
};

template <class T, class Products>
struct LinearForward {
  using Worker = LinearForwardWorker<T, Products>;
  struct SumWorker : Worker {
    using Worker::Worker;
    void run(const LinearItem& item) { Worker::sum(item); }
  };

  static LinearMemory memory(const LinearAttentionArgs& a) {
    Arena arena(nullptr);
    Worker(a, arena);
    return {arena.used(), static_cast<std::size_t>(Records{a}.total()) * sizeof(float)};
  }
  static void run(const LinearAttentionArgs& a) {
    if (a.segments > 1) {
      run_linear_items<SumWorker, typename Products::Scope>(a, a.h_v);
      prefix_over_segments(a, a.initial_state, a.initial_z, false);
    }
    run_linear_items<Worker, typename Products::Scope>(a, a.h_v);
  }
};

template <class T>
constexpr LinearAttentionKernel linear_attention_forward_kernel() {
#if FALCHION_TILES
  // f32 has three bf16 parts, so it would take six products and their packing,
  // which cost more than fused multiply-adds.
  using Kernel = LinearForward<T, std::conditional_t<kParts<T> == 3, SimdProducts, AmxProducts<T>>>;
#else
  using Kernel = LinearForward<T, SimdProducts>;
#endif
  return {&Kernel::memory, &Kernel::run, kChunk};
}

}  // namespace falchion::cpu::FALCHION_LEVEL
