// src/cpu/attention_backward/scores.hpp: computes P, G and dS of one tile of rows and one chunk of keys. It is shared
// by the workers for grad_q, grad_k and grad_v and by those for grad_bias.
#pragma once

#include "cpu/attention_backward/items.hpp"
#include "cpu/attention_backward/weigh.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

template <class T, class Engine>
class BackwardScores {
 public:
  BackwardScores(const AttentionBackwardArgs& a, const SharedRows& shared, Arena& arena)
      : a_(a),
        shared_(shared),
        engine_(a, arena),
        general_(!plain_scores(a) || a.dropout > 0 || a.wants_bias || a.wants_alibi),
        dropout_(dropout_of(a)) {
    constexpr std::int64_t kChunk = Engine::kChunkKeys * kM;
    if (a.softcap > 0) x_.derivative = arena.take<float>(kChunk);
    if (a.dropout > 0) x_.kept = arena.take<float>(kChunk);
    if (a.wants_bias || a.wants_alibi) x_.g = arena.take<float>(kChunk);
  }

 protected:
  void load_keys(const BackwardItem& item, const KeyBlock& block) {
    TileRows of{};
    of.sequence = item.sequence;
    of.hk = item.hk;
    block_ = block;
    engine_.load_keys(of, block);
  }
  /// The keys [begin, end) of the block that some row of a tile sees, as multiples of 32.
  Range visible(const TileRows& t) const {
    return {max(0, t.visible.begin - block_.key0) / 32 * 32,
            round_up(min(block_.count, max(0, t.visible.end - block_.key0)), 32)};
  }
  /// Whether some key of [begin, stop) is masked for some row of the tile.
  bool is_masked(const GradientTile& t, std::int64_t begin, std::int64_t stop) const {
    return t.partial || a_.bias.data != nullptr || a_.mask.data != nullptr || block_.key0 + begin < t.unmasked.begin ||
           block_.key0 + stop > t.unmasked.end;
  }

  /// Computes P and dS (keys, kM) of a chunk of the block, in the memory of S and dP, and G if it is needed. keep:
  /// whether P and dS are read there afterwards.
  void weigh(int slot, const GradientTile& t, const KeySpan& keys, bool keep, float* S, float* dP) {
    const int n = keys.count();
    const bool masked = is_masked(t, keys.begin, keys.stop);
    engine_.scores(slot, keys.begin, n, S, dP);  // S = K Q^T, dP = V dO^T
    engine_.repair(slot, keys.begin, n, S, dP);
    if (general_) {
      apply_score(a_, t, keys, S, x_.derivative);
      if (a_.bias.data != nullptr || a_.mask.data != nullptr) add_bias_and_mask<T>(a_, t, keys, kHiddenBackward, S);
      if (masked) keep_band(t, keys, kHiddenBackward, S);
      if (x_.kept != nullptr) draw_kept(dropout_, t, keys, x_.kept);
      x_.g != nullptr ? weigh_general<f32::kExp2Degree>(t, n, S, dP, x_)
                      : weigh_general<T::kExp2Degree>(t, n, S, dP, x_);
      if (Engine::kPuts) put_all(slot, keys, S, dP);
      return;
    }
    const auto put = engine_.put(slot, keys.begin);
    if (masked) keep_band(t, keys, kHiddenBackward, S);
    if (keep) {
      masked ? weigh_plain<T, true, true>(t, n, a_.scale, S, dP, put)
             : weigh_plain<T, false, true>(t, n, a_.scale, S, dP, put);
    } else if constexpr (Engine::kPuts) {
      masked ? weigh_plain<T, true, false>(t, n, a_.scale, S, dP, put)
             : weigh_plain<T, false, false>(t, n, a_.scale, S, dP, put);
    }
  }

  const AttentionBackwardArgs& a_;
  const SharedRows& shared_;
  Engine engine_;
  const bool general_;  // the score is more than scale and band, or G is needed
  const DropoutMask dropout_;
  ChunkTensors x_;
  KeyBlock block_;

 private:
  void put_all(int slot, const KeySpan& keys, const float* P, const float* dS) {
    const auto put = engine_.put(slot, keys.begin);
    for (int key = 0; key < keys.count(); key += 2) {
      for (int v = 0; v < kVecs; ++v) {
        const int at = key * kM + v * kLanes;
        put(key, v, load(P + at), load(P + at + kM), load(dS + at), load(dS + at + kM));
      }
    }
  }
};

}  // namespace falchion::cpu::FALCHION_LEVEL
