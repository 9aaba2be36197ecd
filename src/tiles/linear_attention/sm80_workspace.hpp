// src/tiles/linear_attention/sm80_workspace.hpp: the workspace of the variants of linear attention on sm80. It is plain
// C++, because the plan counts the bytes even if the code of the variants is not built.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/gpu_linear_attention_args.hpp"
#include "base/host_device.hpp"

namespace falchion::sm80 {

using gpu::LinearAttentionArgs;

/// The floats in a slot. There is one slot for each sweep, sequence, head and part of a segment. It holds S (E, M),
/// then z, then the factor by which a state fades over the part, in bits (its logarithm to base 2). The start state of
/// a segment is in the slot of its first part.
FALCHION_HD std::int64_t state_slot_size(const LinearAttentionArgs& a) {
  const std::int64_t most = a.d_qk > a.d_v ? a.d_qk : a.d_v;
  return (a.d_qk * a.d_v + most + 1 + 15) / 16 * 16;
}
/// The floats of the states of `sweeps` sweeps; 0 if no sequence is cut.
inline std::int64_t state_floats(const LinearAttentionArgs& a, int sweeps) {
  return a.segments == 1 ? 0 : sweeps * a.b * a.h_v * a.segments * a.parts * state_slot_size(a);
}

/// The pieces of a sequence for the normaliser (linear_attention/exact/normaliser.cuh), and the floats of one: z (E),
/// then the factor by which z fades, in bits. The last piece's contribution is not needed; its slot holds a copy of the
/// initial z, because the final z may overwrite the caller's.
inline constexpr int kNormaliserTokens = 512;
FALCHION_HD int normaliser_pieces(const LinearAttentionArgs& a) {
  return a.s > kNormaliserTokens ? static_cast<int>((a.s + kNormaliserTokens - 1) / kNormaliserTokens) : 1;
}
FALCHION_HD std::int64_t normaliser_slot(const LinearAttentionArgs& a) { return a.d_qk + 1; }

/// Whether a token's own parts of its dq and dk are left out of the sweeps and added by linear_attention_gather. With a
/// strong decay they would drown the remaining parts. With the normaliser they are differences that may be close to 0.
FALCHION_HD bool own_parts_are_added(const LinearAttentionArgs& a) { return a.decay.data != nullptr || a.normalise; }

/// The parts of gradients from several CTAs, in f32 (linear_attention/exact/gradients.cuh). A pointer is null if the
/// part is not needed.
struct LinearPartials {
  float *q = nullptr, *k = nullptr;  // (tokens, h_v, d_qk) dphi(q) and dphi(k) of each value head
  float* dg = nullptr;               // (tokens, h_v) dG
  float* tails = nullptr;            // (b, h_v, tiles) parts of <S', dS_L>; null: 0
  int tiles = 0;
};

/// The workspace of variants with f32 between all products, in floats from a.states on. If a.states is null, only the
/// size is computed.
struct LinearExactMemory {
  float* states = nullptr;
  float *inverse = nullptr, *others = nullptr, *dots = nullptr, *own_dots = nullptr;  // LinearNormaliser
  float* pieces = nullptr;
  LinearPartials partials;
  std::int64_t tokens = 0, size = 0;
  int value_tiles = 0;

  static LinearExactMemory make(const LinearAttentionArgs& a, bool backward) {
    LinearExactMemory m;
    const auto take = [&](bool wanted, std::int64_t count) {
      float* at = wanted && a.states != nullptr ? a.states + m.size : nullptr;
      m.size += wanted ? (count + 16) / 16 * 16 : 0;  // the address is valid even where count is 0
      return at;
    };
    m.tokens = a.packed ? a.total : a.b * a.s;
    m.value_tiles = static_cast<int>(a.d_v + 63) / 64;
    m.partials.tiles = static_cast<int>(a.d_qk + 63) / 64;
    const std::int64_t each = m.tokens * a.h_v, heads = a.b * a.h_v;
    const bool decay = a.decay.data != nullptr;
    m.states = take(a.segments > 1, state_floats(a, backward ? 3 : 1));
    m.inverse = take(a.normalise, each);
    m.pieces = take(a.normalise, heads * normaliser_pieces(a) * normaliser_slot(a));
    m.others = take(backward && a.normalise, each);
    m.dots = take(backward && a.normalise, m.value_tiles * each);
    m.own_dots = take(backward && a.normalise, m.value_tiles * each);
    const bool parts = backward && (own_parts_are_added(a) || a.h_v != a.h_qk);
    m.partials.q = take(parts, each * a.d_qk);
    m.partials.k = take(parts, each * a.d_qk);
    m.partials.dg = take(backward && decay, each);
    m.partials.tails = take(backward && decay && a.grad_final_state.data != nullptr, heads * m.partials.tiles);
    return m;
  }
};

/// The bytes of workspace that a variant needs. They follow from the sizes, the segments and which operands are
/// present: an operand's data is null or not null here, but not yet an address.
template <bool kBackward>
std::size_t linear_workspace(const LinearAttentionArgs& a) {
  return static_cast<std::size_t>(state_floats(a, kBackward ? 3 : 1)) * sizeof(float);
}
template <bool kBackward>
std::size_t linear_exact_workspace(const LinearAttentionArgs& a) {
  return static_cast<std::size_t>(LinearExactMemory::make(a, kBackward).size) * sizeof(float);
}

}  // namespace falchion::sm80
