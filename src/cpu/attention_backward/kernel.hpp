// src/cpu/attention_backward/kernel.hpp: softmax attention, backward, on the CPU. src/ref/attention_backward.hpp
// defines the result; this file gives the order of the steps. P is recomputed from the scores and the lse of the
// forward pass. Lanes are query rows, as in the forward pass. Keys are the outer loop and queries the inner one, so
// grad_k and grad_v of a block of keys are summed in L2 and stored once, and grad_q is summed over the blocks in f32.
// docs/design/cpu_backward.md gives the reasons and the measurements.
#pragma once

#include "cpu/attention_backward/bias.hpp"
#include "cpu/attention_backward/items.hpp"
#include "cpu/attention_backward/scores.hpp"
#include "cpu/attention_backward/store.hpp"
#if FALCHION_TILES
  #include "cpu/blocks/gradients_amx.hpp"
#endif
#include "cpu/blocks/gradients_simd.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// One worker: it holds its slice of the scratch memory and loops over the steps of an item.
template <class T, class Engine>
class BackwardWorker : public BackwardScores<T, Engine> {
  using Base = BackwardScores<T, Engine>;
  using Base::a_, Base::shared_, Base::engine_, Base::block_, Base::x_, Base::dropout_;
  static constexpr int kGroup = Engine::kGroup;

 public:
  BackwardWorker(const AttentionBackwardArgs& a, const SharedRows& shared, Arena& arena)
      : Base(a, shared, arena),
        step_keys_(min(round_up(a.keys, 32), Engine::kStepKeys)),
        stores_bias_(a.wants_bias && !BiasAxes(a).any) {
    s_ = arena.take<float>(kGroup * step_keys_ * kM);
    dp_ = arena.take<float>(kGroup * step_keys_ * kM);
    rows_ = arena.take<float>(row_floats(a));
    const std::int64_t tiles = ceil_div(a.s_q * group_of(a), kM);
    if (std::is_same_v<T, f32> && a.wants_kv) segments_ = {a, arena, engine_.grad_k(), engine_.grad_v()};
    if (a.wants_q && !SharedRows::keeps_grad_q(a)) grad_q_ = arena.take<float>(tiles * shared.grad_q_floats);
  }

  void run(const BackwardItem& item) {
    start(item);
    for (std::int64_t key0 = item.keys.begin; key0 < item.keys.end; key0 += a_.keys) {
      this->load_keys(item, {key0, static_cast<int>(min(a_.keys, item.keys.end - key0))});
      segments_.reset();
      for (std::int64_t first = 0; first < item.tiles; first += kGroup) {
        run_group(item, first);
        segments_.count(kGroup * kM);
      }
      segments_.finish();
      if (a_.wants_kv) store_keys(item);
    }
    if (!a_.wants_q || a_.parts > 1) return;
    for (std::int64_t i = 0; i < item.tiles; ++i)
      store_grad_q<T>(a_, TileRows::of(a_, item.sequence, item.b, item.hk, i * kM, item.rows), grad_q(item, i), rows_);
  }

 private:
  /// The operands of a step's products, in the engine's interface.
  struct Buffers {
    const BackwardWorker& w;
    FALCHION_INLINE float* P(int slot, std::int64_t key) const { return w.place(w.s_, slot, key); }
    FALCHION_INLINE float* dS(int slot, std::int64_t key) const { return w.place(w.dp_, slot, key); }
    FALCHION_INLINE float* dQ(int slot) const { return w.grad_q(*w.item_, w.first_tile_ + slot); }
  };

  FALCHION_INLINE float* place(float* buffer, int slot, std::int64_t key) const {
    return keep_ ? buffer + (slot * step_keys_ + key - step_) * kM : buffer;
  }
  FALCHION_INLINE std::int64_t shared_tile(const BackwardItem& item, std::int64_t tile) const {
    return item.part * shared_.tiles + item.first_tile + tile;
  }
  float* grad_q(const BackwardItem& item, std::int64_t tile) const {  // dQ^T (query_rows, kM)
    const std::int64_t floats = shared_.grad_q_floats;
    return grad_q_ != nullptr ? grad_q_ + tile * floats : shared_.grad_q + shared_tile(item, tile) * floats;
  }
  float* slopes(const BackwardItem& item, std::int64_t tile) const {
    return shared_.slopes + shared_tile(item, tile) * kM;
  }

  void start(const BackwardItem& item) {
    item_ = &item;
    if (item.tiles == 0) return;
    const auto clear = [&](float* at, std::int64_t floats) {
      std::memset(at, 0, static_cast<std::size_t>(item.tiles * floats) * sizeof(float));
    };
    if (a_.wants_q) clear(grad_q(item, 0), shared_.grad_q_floats);
    if (a_.wants_alibi) clear(slopes(item, 0), kM);
  }

  /// All work of the rows of up to kGroup tiles with the block of keys.
  void run_group(const BackwardItem& item, std::int64_t first) {
    const int count = static_cast<int>(min(kGroup, item.tiles - first));
    first_tile_ = first;
    Range seen{block_.count, 0};
    for (int i = 0; i < count; ++i) {
      tile_[i] = item.tile(a_, shared_, first + i);
      const Range of_tile = this->visible(tile_[i]);
      if (!of_tile.empty()) seen = {min(seen.begin, of_tile.begin), max(seen.end, of_tile.end)};
    }
    if (seen.empty()) return;
    for (int i = 0; i < count; ++i) engine_.load_queries(i, tile_[i]);
    keep_ = engine_.finish_queries(count, tile_);
    for (step_ = seen.begin; step_ < seen.end; step_ += step_keys_) {
      const std::int64_t stop = min(seen.end, step_ + step_keys_);
      engine_.start_step(static_cast<int>(step_));
      for (int i = 0; i < count; ++i) weigh_tile(i, stop);
      sum_step(count, stop);
    }
  }
  /// P = exp(S - L) and dS = P (dP - D) of one tile and the keys of the step, chunk by chunk.
  void weigh_tile(int i, std::int64_t stop) {
    const GradientTile& t = tile_[i];
    const Range seen = this->visible(t);
    for (std::int64_t begin = step_; begin < stop; begin += Engine::kChunkKeys) {
      const KeySpan keys{block_.key0, static_cast<int>(begin), static_cast<int>(min(stop, begin + Engine::kChunkKeys))};
      float *S = place(s_, i, begin), *dP = place(dp_, i, begin);
      if (keys.stop <= seen.begin || seen.end <= keys.begin) {
        std::memset(S, 0, static_cast<std::size_t>(keys.count() * kM) * sizeof(float));
        std::memset(dP, 0, static_cast<std::size_t>(keys.count() * kM) * sizeof(float));
        engine_.put_nothing(i, keys.begin, keys.stop);
        continue;
      }
      this->weigh(i, t, keys, keep_, S, dP);
      if (a_.wants_alibi) add_slopes(a_, t, keys, x_.g, slopes(*item_, first_tile_ + i));
      if (stores_bias_) add_bias_gradient(a_, t, keys, x_.g);
    }
  }
  /// dV += P^T dO, dK += dS^T Q, dQ += dS K.
  void sum_step(int count, std::int64_t stop) {
    bool masked = false;
    for (int i = 0; i < count; ++i) masked |= this->is_masked(tile_[i], step_, stop);
    const auto seen = [&](int i, int lane, int key) { return sees<T>(a_, tile_[i], lane, block_.key0 + key); };
    const auto kept = [&](int i, int lane, int key) {
      const GradientTile& t = tile_[i];
      const std::int64_t j = block_.key0 + key;
      return seen(i, lane, key) && (!(a_.dropout > 0) || dropout_.keep(t.b, t.head(lane), t.query(lane), j));
    };
    engine_.products(count, static_cast<int>(step_), static_cast<int>(stop), masked, a_.dropout > 0, Buffers{*this},
                     seen, kept);
  }

  void store_keys(const BackwardItem& item) {
    const Sequence& s = item.sequence;
    for (int key = 0; key < block_.count; ++key) {
      const std::int64_t row = s.keys.begin + block_.key0 + key;
      store_gradient<T>(a_, gradient_at<T>(a_, a_.grad_k, s.keys.batch, row, item.hk), engine_.grad_k().row(key),
                        a_.scale, a_.d_qk);
      store_gradient<T>(a_, gradient_at<T>(a_, a_.grad_v, s.keys.batch, row, item.hk), engine_.grad_v().row(key), 1,
                        a_.d_v);
    }
  }

  const std::int64_t step_keys_;  // the most keys of a step
  const bool stores_bias_;        // each pair's G is an element of grad_bias
  float *s_, *dp_, *rows_;        // S, then P, and dP, then dS: (kGroup, step_keys_, kM)
  bool keep_ = true;              // P and dS of a step stay in these places; else all chunks reuse one
  float* grad_q_ = nullptr;       // dQ^T of all rows of the item, if the worker has its own
  QuerySegments segments_;        // f32
  GradientTile tile_[kGroup];
  const BackwardItem* item_ = nullptr;
  std::int64_t first_tile_ = 0, step_ = 0;  // the first tile of the group; the first key of the step
};

template <class T, class Engine>
struct Backward {
  using Worker = BackwardWorker<T, Engine>;
  using OfBias = BiasWorker<T, Engine>;

  static BackwardMemory memory(const AttentionBackwardArgs& a) {
    Arena shared(nullptr), arena(nullptr), of_bias(nullptr);
    const SharedRows rows(a, shared, Engine::query_rows(a));
    Worker(a, rows, arena);
    OfBias(a, rows, of_bias);
    const auto used = static_cast<std::int64_t>(arena.used()),
               used_for_bias = static_cast<std::int64_t>(of_bias.used());
    return {.scratch = static_cast<std::size_t>(max(used, used_for_bias)), .shared = shared.used()};
  }
  static void run(const AttentionBackwardArgs& a) {
    Arena arena(a.shared);
    const SharedRows shared(a, arena, Engine::query_rows(a));
    const bool owned_bias = a.wants_bias && !BiasAxes(a).any;
    if (a.zero_unused && a.wants_q) clear_gradient<T>(a, a.grad_q, a.capacity_q, a.h_q, a.d_qk);
    if (a.zero_unused && a.wants_kv) clear_gradient<T>(a, a.grad_k, a.capacity_k, a.h_k, a.d_qk);
    if (a.zero_unused && a.wants_kv) clear_gradient<T>(a, a.grad_v, a.capacity_k, a.h_k, a.d_v);
    if (owned_bias && !a.accumulate) clear_bias_gradient(a);
    find_statistics<T>(a, shared);
    if (a.wants_q || a.wants_kv || a.wants_alibi || owned_bias) {
      const BackwardList list(a, shared);
      run_tasks<Worker>(a, shared, list.items(), [&](Worker& w, std::int64_t i) { w.run(list.item(i)); });
    }
    if (a.wants_q && a.parts > 1) sum_parts<T>(a, shared);
    if (a.wants_alibi) sum_slopes(a, shared);
    if (a.grad_sinks.data != nullptr) sum_sinks(a, shared);
    if (a.wants_bias && !owned_bias)
      run_tasks<OfBias>(a, shared, OfBias::tasks(a), [](OfBias& w, std::int64_t i) { w.run(i); });
  }

 private:
  template <class Which, class Body>
  static void run_tasks(const AttentionBackwardArgs& a, const SharedRows& shared, std::int64_t tasks,
                        const Body& body) {
    for_each_worker(a, tasks, [&](int worker, Counter& next) {
      [[maybe_unused]] const typename Engine::Scope scope{};
      Arena arena(a.scratch + static_cast<std::size_t>(worker) * a.scratch_bytes);
      Which w(a, shared, arena);
      for (std::int64_t i; (i = next.take()) < tasks;) body(w, i);
    });
  }
};

template <class T>
constexpr AttentionBackwardKernel attention_backward_kernel() {
#if FALCHION_TILES
  using Kernel = Backward<T, AmxGradients<T>>;
  constexpr int keys = kParts<T> == 1 ? 512 : 256;  // three parts of K and V take three times the space in L2
#else
  using Kernel = Backward<T, SimdGradients<T>>;
  constexpr int keys = 256;
#endif
  return {&Kernel::memory, &Kernel::run, kM, keys};
}

}  // namespace falchion::cpu::FALCHION_LEVEL
