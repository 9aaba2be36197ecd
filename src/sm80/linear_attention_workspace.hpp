// src/sm80/linear_attention_workspace.hpp: what the rows of linear attention keep in the workspace, and where. Plain
// C++: the plan counts its bytes where the rows' code is not built.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/gpu_linear_attention_args.hpp"
#include "policy/host_device.hpp"

namespace falchion::sm80 {

using gpu::LinearAttentionArgs;

/// A slot for each sweep, sequence, head and part of a segment: S (E, M), then z, then what it fades by in bits. What a
/// segment starts from lies in the slot of its first part.
FALCHION_HD std::int64_t state_slot_size(const LinearAttentionArgs& a) {
  const std::int64_t most = a.d_qk > a.d_v ? a.d_qk : a.d_v;
  return (a.d_qk * a.d_v + most + 1 + 15) / 16 * 16;
}
/// Floats of the states of `sweeps` sweeps, where a sequence is cut.
inline std::int64_t state_floats(const LinearAttentionArgs& a, int sweeps) {
  return a.segments == 1 ? 0 : sweeps * a.b * a.h_v * a.segments * a.parts * state_slot_size(a);
}

/// Pieces of a sequence for the normaliser (linear_attention_normaliser.cuh), and the floats of one: z (E), then what z
/// fades by in bits. The last piece adds nothing that another asks for: in its place lies the initial z, which the
/// final one may overwrite.
inline constexpr int kNormaliserTokens = 512;
FALCHION_HD int normaliser_pieces(const LinearAttentionArgs& a) {
  return a.s > kNormaliserTokens ? static_cast<int>((a.s + kNormaliserTokens - 1) / kNormaliserTokens) : 1;
}
FALCHION_HD std::int64_t normaliser_slot(const LinearAttentionArgs& a) { return a.d_qk + 1; }

/// Are a token's own parts of dq and dk left out of the sweeps and added by linear_attention_gather? They would drown
/// what a strong decay leaves of the others; with the normaliser they are differences that may be next to nothing.
FALCHION_HD bool own_parts_are_added(const LinearAttentionArgs& a) { return a.decay.data != nullptr || a.normalise; }

/// Parts of gradients that several CTAs make (linear_attention_gradients.cuh), in f32. Null: not needed.
struct LinearPartials {
  float *q = nullptr, *k = nullptr;  // (tokens, h_v, d_qk) dphi(q), dphi(k) of each value head
  float* dg = nullptr;               // (tokens, h_v) dG
  float* tails = nullptr;            // (b, h_v, tiles) parts of <S', dS_L>; null: 0
  int tiles = 0;
};

/// Of the exact rows, in floats from `states` of the arguments on. Null there: only its size is wanted.
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
      m.size += wanted ? (count + 16) / 16 * 16 : 0;  // an address even where there is nothing
      return at;
    };
    m.tokens = a.packed ? a.total : a.b * a.s;
    m.value_tiles = static_cast<int>(a.d_v + 63) / 64, m.partials.tiles = static_cast<int>(a.d_qk + 63) / 64;
    const std::int64_t each = m.tokens * a.h_v, heads = a.b * a.h_v;
    const bool decay = a.decay.data != nullptr;
    m.states = take(a.segments > 1, state_floats(a, backward ? 3 : 1));
    m.inverse = take(a.normalise, each);
    m.pieces = take(a.normalise, heads * normaliser_pieces(a) * normaliser_slot(a));
    m.others = take(backward && a.normalise, each);
    m.dots = take(backward && a.normalise, m.value_tiles * each);
    m.own_dots = take(backward && a.normalise, m.value_tiles * each);
    const bool parts = backward && (own_parts_are_added(a) || a.h_v != a.h_qk);
    m.partials.q = take(parts, each * a.d_qk), m.partials.k = take(parts, each * a.d_qk);
    m.partials.dg = take(backward && decay, each);
    m.partials.tails = take(backward && decay && a.grad_final_state.data != nullptr, heads * m.partials.tiles);
    return m;
  }
};

/// Bytes that a row wants, from sizes, segments and which operands there are: their data is null or not, but no address
/// yet.
template <bool kBackward>
std::size_t linear_workspace(const LinearAttentionArgs& a) {
  return static_cast<std::size_t>(state_floats(a, kBackward ? 3 : 1)) * sizeof(float);
}
template <bool kBackward>
std::size_t linear_exact_workspace(const LinearAttentionArgs& a) {
  return static_cast<std::size_t>(LinearExactMemory::make(a, kBackward).size) * sizeof(float);
}

}  // namespace falchion::sm80
