// src/cpu/attention_forward/kernel.hpp: softmax attention, forward, on the CPU. src/ref defines the result; this file
// gives the order of the steps. It is FlashAttention-2 (arXiv:2307.08691) with FlashAttention-3's overlap: on AMX, K
// Q^T of the next chunk and V^T P^T of the last step are computed under the softmax of this chunk. The SIMD engine
// computes them one after the other. Everything is transposed: scores are stored as S^T (keys, rows), and the lanes of
// a vector are query rows. docs/design/cpu_forward.md gives the reasons and the measurements.
#pragma once

#include "cpu/attention_forward/append.hpp"
#include "cpu/attention_forward/decode.hpp"
#include "cpu/attention_forward/items.hpp"
#include "cpu/attention_forward/segments.hpp"
#include "cpu/attention_forward/store.hpp"
#include "cpu/blocks/any_type.hpp"
#include "cpu/blocks/online_softmax.hpp"
#include "cpu/blocks/scales_of_q.hpp"
#include "cpu/blocks/score_mask.hpp"
#include "policy/dropout.hpp"
#if FALCHION_TILES
  #include "cpu/blocks/engine_amx.hpp"
#endif
#include "cpu/blocks/engine_simd.hpp"
#if defined(FALCHION_LEVEL_VNNI)
  #include "cpu/blocks/engine_vnni.hpp"
#endif

namespace falchion::cpu::FALCHION_LEVEL {

/// One worker: it holds its slice of the scratch memory and loops over the steps of a work item.
template <class T, class Engine>
class ForwardWorker {
 public:
  using Cached = typename Engine::Cached;
  static constexpr std::int64_t kSegmentKeys = 4096;  // f32: 32 steps, each of which is added to O as a whole
  static std::int64_t tiles(const AttentionArgs& a) { return a.rows / kM; }

  ForwardWorker(const AttentionArgs& a, Arena& arena)
      : a_(a),
        engine_(a, arena, static_cast<int>(tiles(a))),
        plain_(plain_scores(a)),
        unit_(score_unit(a)),
        dropout_(dropout_of(a)),
        o_size_(Engine::output_rows(a) * kM),
        segments_(kSegments<T> ? SegmentSums(a, arena, tiles(a), o_size_, kSegmentKeys) : SegmentSums()) {
    for (int i = 0; i < 2; ++i) s_[i] = arena.take<float>(Engine::chunk_keys(a) * kM);
    for (int i = 0; i < 2; ++i) p_[i] = Engine::p_floats(a) > 0 ? arena.take<float>(Engine::p_floats(a)) : s_[i];
    o_ = arena.take<float>(tiles(a) * o_size_);
    rows_ = arena.take<float>(16 * round_up(a.d_v, 16));
    softmax_ = arena.take<OnlineSoftmax>(tiles(a));
    tile_ = arena.take<TileRows>(tiles(a));
    started_ = arena.take<std::uint8_t>(tiles(a));
    if constexpr (kAny) scales_ = arena.take<float>(tiles(a) * kM);
  }

  void run(const WorkItem& item) {
    const int count = start(item);
    ChunkWalk walk(a_, tile_, count, item.keys, Engine::chunk_keys(a_));
    Chunk now, next;
    bool has_now = walk.next(&now);
    if (has_now) engine_.start_scores(now, s_[now.buffer]);
    engine_.finish();
    while (has_now) {
      const bool has_next = walk.next(&next);
      start_values(now);        // a share of O += P V of the last step
      if (!Engine::kOverlap) {  // the next S overwrites P there
        engine_.finish();
        finish_values();
      }
      if (has_next) engine_.start_scores(next, s_[next.buffer]);  // S = Q K^T of the next chunk
      if (now.index == 0) engine_.start_prefetch(now, now.tile, count);
      if (!Engine::kOverlap) engine_.finish();
      score_and_mask(now, s_[now.buffer]);
      update(now);  // P = softmax.update(S), with steps of the products in between
      engine_.finish();
      if (now.index + 1 == now.count) {
        finish_values();
        pending_ = now;
        pending_.first = p_first_;
        has_pending_ = true;
      }
      now = next;
      has_now = has_next;
    }
    finish_values();
    for (int i = 0; kSegments<T> && i < count; ++i) segments_.finish(i, output(i), softmax_[i].l);
    for (int i = 0; i < count; ++i) store_tile<T>(a_, item, tile_[i], softmax_[i], output(i), rows_);
    if (a_.probabilities.data != nullptr) store_probabilities(item, count);
  }

 private:
  static constexpr bool kAny = std::is_same_v<Cached, Any>;      // k has 8 bits, and perhaps q
  float* output(int tile) const { return o_ + tile * o_size_; }  // O^T (d_v, kM)

  int start(const WorkItem& item) {
    const int count = static_cast<int>(ceil_div(item.rows.end - item.rows.begin, kM));
    for (int i = 0; i < count; ++i)
      tile_[i] = TileRows::of(a_, item.sequence, item.b, item.hk, item.rows.begin + i * kM, item.rows.end);
    engine_.start_item(tile_);
    for (int i = 0; i < count; ++i) {
      engine_.load_q(i);
      softmax_[i].reset();
      segments_.reset(i);
      started_[i] = 0;
      if constexpr (kAny) load_scales_of_q(a_, tile_[i], kM, scales_ + i * kM);
    }
    std::memset(o_, 0, static_cast<std::size_t>(count * o_size_) * sizeof(float));
    return count;
  }

  FALCHION_INLINE void score_and_mask(const Chunk& chunk, float* S) {
    const TileRows& t = tile_[chunk.tile];
    engine_.repair_scores(chunk, S);
    const KeySpan keys{chunk.block * a_.keys, chunk.begin, chunk.stop};
    if (kAny && has_bytes_of_q(a_)) scale_scores(a_, t, keys, scales_ + chunk.tile * kM, S);
    if (!plain_) {
      apply_score(a_, t, keys, S);
      if (a_.bias.data != nullptr || a_.mask.data != nullptr) add_bias_and_mask<T>(a_, t, keys, kHiddenForward, S);
    }
    if (chunk.masked) keep_band(t, keys, kHiddenForward, S);
    if (a_.pages.size > 0) hide_holes(t, keys, kHiddenForward, S);
  }

  FALCHION_INLINE void update(const Chunk& chunk) {
    float *S = s_[chunk.buffer], *P = p_[chunk.parity];
    OnlineSoftmax& softmax = softmax_[chunk.tile];
    const int keys = chunk.keys();
    const int total = OnlineSoftmax::weight(keys);
    const int steps = engine_.steps();
    int owed = 0;
    auto tick = [&](int share) {
      if constexpr (Engine::kOverlap) {
        for (owed += share * steps; owed >= total; owed -= total) engine_.step();
      }
    };
    if (chunk.index == 0) p_first_ = chunk.first;
    if (softmax.outgrown(S, keys, unit_ * kLog2e, tick)) raise(chunk);
    if (a_.dropout > 0) return update_with_dropout(chunk, S, P);
    auto put = [&](int key, int v, Floats p0, Floats p1) { engine_.put(chunk, P, chunk.begin + key, v, p0, p1); };
    softmax.template update<T::kExp2Degree>(S, keys, unit_ * kLog2e, put, tick);
  }

  /// Sets a new reference maximum for the rows of a tile. Before that, O += P V is finished for all P of the old one.
  /// In a tile's first chunk there is nothing to rescale; afterwards this is rare, because OnlineSoftmax leaves some
  /// slack.
  __attribute__((noinline)) void raise(const Chunk& chunk) {
    if (started_[chunk.tile] != 0) {
      engine_.finish();
      finish_values();
      Step summed = chunk;
      summed.first = p_first_;
      summed.end = p_first_ = chunk.begin;
      pending_ = summed;
      has_pending_ = summed.first < summed.end;
      finish_values();
    }
    softmax_[chunk.tile].raise(unit_ * kLog2e);
    const int rows = static_cast<int>(Engine::output_rows(a_));
    if (started_[chunk.tile] != 0) scale_rows(output(chunk.tile), rows, softmax_[chunk.tile].shrink);
    if (segments_.begun(chunk.tile)) {
      scale_rows(segments_.total(chunk.tile), rows + 1, softmax_[chunk.tile].shrink);
      scale_rows(segments_.low(chunk.tile), rows + 1, softmax_[chunk.tile].shrink);
    }
    started_[chunk.tile] = 1;
  }

  /// Dropout comes after l: l sums all probabilities, and then the dropped ones of P become 0 before the second
  /// product.
  __attribute__((noinline)) void update_with_dropout(const Chunk& chunk, float* S, float* P) {
    const TileRows& t = tile_[chunk.tile];
    auto keep_in_place = [&](int key, int v, Floats p0, Floats p1) {
      store(p0, S + key * kM + v * kLanes);
      store(p1, S + (key + 1) * kM + v * kLanes);
    };
    softmax_[chunk.tile].template update<T::kExp2Degree>(S, chunk.keys(), unit_ * kLog2e, keep_in_place, [](int) {});
    const std::int64_t key0 = chunk.block * a_.keys + chunk.begin;
    for (int i = 0; i < t.count; ++i) {
      for (int key = 0; key < chunk.keys(); key += 4) {
        const auto words = dropout_.words(t.b, t.head(i), t.query(i), key0 + key);
        for (int w = 0; w < 4; ++w) {
          float& p = S[(key + w) * kM + i];
          p = words.word[w] >= dropout_.threshold ? p * dropout_.keep_scale : 0;
        }
      }
    }
    for (int key = 0; key < chunk.keys(); key += 2) {
      for (int v = 0; v < kVecs; ++v) {
        const float* s = S + key * kM + v * kLanes;
        engine_.put(chunk, P, chunk.begin + key, v, load(s), load(s + kM));
      }
    }
  }

  // ---- O += P V of the pending step, spread over the chunks of the step after it -----------------------------------
  FALCHION_INLINE void start_values(const Chunk& under) {
    if (!has_pending_) return;
    const int end = Engine::value_groups(a_) * (under.index + 1) / under.count;
    engine_.start_values(pending_, p_[pending_.parity], output(pending_.tile), groups_done_, end);
    groups_done_ = end;
  }
  FALCHION_INLINE void finish_values() {
    if (!has_pending_) return;
    if (groups_done_ < Engine::value_groups(a_)) {
      engine_.start_values(pending_, p_[pending_.parity], output(pending_.tile), groups_done_,
                           Engine::value_groups(a_));
      engine_.finish();
    }
    if (const std::uint8_t* bad = engine_.spoiled_values(pending_)) add_spoiled_values(pending_, bad);
    if constexpr (kSegments<T>)
      segments_.count(pending_.tile, pending_.end - pending_.first, output(pending_.tile), softmax_[pending_.tile].l);
    has_pending_ = false;
    groups_done_ = 0;
  }
  /// Adds the NaN and Inf of V, which the product took as 0, to the rows that see them and no others.
  __attribute__((noinline)) void add_spoiled_values(const Step& step, const std::uint8_t* bad) {
    with_type<T, Cached>(a_.type_v, [&](auto type) { add_spoiled_values_of<decltype(type)>(step, bad); });
  }
  template <class Row>
  FALCHION_INLINE void add_spoiled_values_of(const Step& step, const std::uint8_t* bad) {
    const TileRows& t = tile_[step.tile];
    const std::int64_t key0 = step.block * a_.keys;
    for (int key = step.first; key < step.end; ++key) {
      if (bad[key] == 0) continue;
      const auto* v = t.template key_row<typename Row::Bits>(a_.v, key0 + key);
      const float scale = kAny && a_.cache ? t.key_scale(a_.v_scale, key0 + key) : 1.F;
      for (int i = 0; i < t.count; ++i) {
        if (!sees<T>(a_, t, i, key0 + key)) continue;
        if (a_.dropout > 0 && !dropout_.keep(t.b, t.head(i), t.query(i), key0 + key)) continue;
        const float p = engine_.p_at(step, p_[step.parity], key, i);
        for (std::int64_t c = 0; c < a_.d_v; ++c) {
          const float x = Row::to_float(v[c]) * scale;
          if (Engine::spoiled(x)) output(step.tile)[c * kM + i] += p * x;
        }
      }
    }
  }

  /// Computes the scores a second time, because probabilities need each row's final m.
  __attribute__((noinline)) void store_probabilities(const WorkItem& item, int count) {
    for (int i = 0; i < count; ++i) clear_probabilities(a_, tile_[i]);
    engine_.start_item(tile_);
    ChunkWalk walk(a_, tile_, count, item.keys, Engine::chunk_keys(a_));
    for (Chunk chunk; walk.next(&chunk);) {
      engine_.start_scores(chunk, s_[0]);
      engine_.finish();
      score_and_mask(chunk, s_[0]);
      const TileRows& t = tile_[chunk.tile];
      const OnlineSoftmax& softmax = softmax_[chunk.tile];
      const std::int64_t key0 = chunk.block * a_.keys;
      const std::int64_t end = min(key0 + chunk.stop, t.sequence.k_len);
      for (int i = 0; i < t.count; ++i)
        weigh_keys<T>(a_, t, i, key0 + chunk.begin, end, {softmax.m[i], softmax.l[i], softmax.top[i]}, s_[0] + i, kM);
    }
    for (int i = 0; i < count; ++i) divide_by_sums(a_, tile_[i], softmax_[i].m);
  }

  const AttentionArgs& a_;
  Engine engine_;
  bool plain_;
  float unit_;  // the final score is S times this
  DropoutMask dropout_;
  std::int64_t o_size_;
  SegmentSums segments_;  // f32
  float *s_[2], *p_[2], *o_, *rows_;
  OnlineSoftmax* softmax_;
  TileRows* tile_;
  std::uint8_t* started_;    // whether a tile has summed anything yet
  float* scales_ = nullptr;  // kAny: of q (tiles, kM)
  Step pending_{};           // the step whose P waits for its product with V
  bool has_pending_ = false;
  int groups_done_ = 0;  // how many value groups of pending_ are started
  int p_first_ = 0;      // first key of the current step whose P is not in O yet
};

/// Whether a kernel for K of this type takes it only beside q of the same type, so not as a cache.
template <class Cached>
inline constexpr bool kOnlyBesideQ = std::is_same_v<Cached, i8>;

/// What names a type of decode's worker.
template <class W>
struct Is {
  using Worker = W;
};
/// f(Is<decode's worker for the types of K and V>). Where they differ q is of i8, and there is no cache.
template <class T, class Cached, class F>
void with_decode_worker(const AttentionArgs& a, const F& f) {
  with_type<T, Cached>(a.type_k, [&](auto type_k) {
    using K = decltype(type_k);
    if constexpr (std::is_same_v<K, i8> && !std::is_same_v<T, f32>) {
      if (a.type_v == Number::e4m3) return f(Is<DecodeWorker<T, i8, e4m3, false>>{});
      if (a.type_v != Number::i8) return f(Is<DecodeWorker<T, i8, T, false>>{});
    }
    if constexpr (!kOnlyBesideQ<Cached>) {
      if (a.pages.size > 0) return f(Is<DecodeWorker<T, K, K, true>>{});
      f(Is<DecodeWorker<T, K, K, false>>{});
    }
  });
}

/// The kernel for K and V of the engine's type. Cached: of K, which the engine may leave open.
template <class T, class Engine, class Cached = typename Engine::Cached>
struct ForwardOf {
  static Memory memory(const AttentionArgs& a) {
    Memory m = a.decode ? Memory{} : Engine::packed_memory(a);
    Arena arena(nullptr);
    if (a.decode) {
      with_decode_worker<T, Cached>(a, [&](auto is) { typename decltype(is)::Worker(a, arena); });
    } else {
      ForwardWorker<T, Engine>(a, arena);
    }
    m.scratch = arena.used();
    m.partials = partial_bytes(a);
    return m;
  }
  static void run(const AttentionArgs& a) {
    if constexpr (!kOnlyBesideQ<Cached>) {
      if (a.append || a.rotation.dim > 0) {
        AttentionArgs rotated = a;
        with_type<T, Cached>(a.type_k, [&](auto type) { rotated.q = append_rows<T, decltype(type)>(a); });
        return attend(rotated);
      }
    }
    attend(a);
  }

 private:
  static void attend(const AttentionArgs& a) {
    if (Engine::kPacked && !a.decode) pack_all<Engine>(a);
    if (a.decode) {
      with_decode_worker<T, Cached>(a, [&](auto is) { run_items<typename decltype(is)::Worker, int>(a); });
    } else {
      run_items<ForwardWorker<T, Engine>, typename Engine::Scope>(a);
    }
    if (a.splits > 1) combine<T>(a);
  }
};

/// K of 8 bits, in a cache or beside q of 8 bits, is converted to f32, block by block, on every level.
template <class T, class Engine>
struct Forward {
  static Memory memory(const AttentionArgs& a) {
    return has_bytes_of_k(a) ? ForwardOf<T, SimdEngine<T, Any>>::memory(a) : ForwardOf<T, Engine>::memory(a);
  }
  static void run(const AttentionArgs& a) {
    has_bytes_of_k(a) ? ForwardOf<T, SimdEngine<T, Any>>::run(a) : ForwardOf<T, Engine>::run(a);
  }

 private:
  static bool has_bytes_of_k(const AttentionArgs& a) { return a.type_k == Number::e4m3 || a.type_k == Number::i8; }
};

#if defined(FALCHION_LEVEL_VNNI)
/// Q and K of i8, of any V and O.
struct ForwardOfI8 {
  static Memory memory(const AttentionArgs& a) {
    return a.type_o == Number::f16 ? Of<f16>::memory(a) : Of<bf16>::memory(a);
  }
  static void run(const AttentionArgs& a) { a.type_o == Number::f16 ? Of<f16>::run(a) : Of<bf16>::run(a); }

 private:
  template <class T>
  using Of = ForwardOf<T, VnniEngine<T>, i8>;
};
#endif

template <class T>
constexpr AttentionKernel attention_forward_kernel() {
#if defined(FALCHION_LEVEL_VNNI)
  using Kernel = ForwardOfI8;
  constexpr int keys = 128;
#elif FALCHION_TILES
  using Kernel = Forward<T, AmxEngine<T>>;
  // Each step loads and stores O once, so a long step spreads that cost over more keys, as long as its P (64 bytes for
  // each key and part) mostly fits in L1.
  constexpr int keys = kParts<T> == 1 ? 512 : 128;
#else
  using Kernel = Forward<T, SimdEngine<T>>;
  constexpr int keys = 128;
#endif
  return {&Kernel::memory, &Kernel::run, kM, keys};
}

}  // namespace falchion::cpu::FALCHION_LEVEL
