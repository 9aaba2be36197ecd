/// falchion/attention.hpp: softmax attention: the problem and the tensors of a run.
#pragma once

#include <cstdint>

#include "falchion/tensor.hpp"

namespace falchion {

/// Where the diagonal of a band lies when s_q != s_k. There is no default, because libraries differ: FlashAttention
/// means bottom_right (the last query sees the last key), PyTorch's is_causal means top_left (query 0 sees key 0). `at`
/// puts it anywhere: query 0 stands at key Band::offset, as in a chunk of a prompt, or in one step of a ring.
enum class Align : std::uint8_t { unset, bottom_right, top_left, at };

/// Which keys a query may see. Query i sees key j  <=>  -left <= j - (i + shift) <= right,
/// where shift is s_k - s_q (bottom_right), 0 (top_left) or offset (at), and s_q and s_k are the lengths of that
/// sequence.
struct Band {
  static constexpr std::int64_t unbounded = -1;
  std::int64_t left = unbounded, right = unbounded;  // each is unbounded or >= 0
  Align align = Align::unset;                        // it must be set when a side is bounded
  std::int64_t offset = 0;                           // with Align::at, from -2^30 to 2^30; else 0

  static Band full() { return {}; }
  static Band causal(Align align, std::int64_t offset = 0) { return {unbounded, 0, align, offset}; }
  static Band window(std::int64_t left, std::int64_t right, Align align, std::int64_t offset = 0) {
    return {left, right, align, offset};
  }
  /// Query i of a sequence of these lengths stands at key i + shift.
  std::int64_t shift(std::int64_t s_q, std::int64_t s_k) const {
    return align == Align::at ? offset : align == Align::top_left ? 0 : s_k - s_q;
  }
  bool operator==(const Band&) const = default;
};

/// How a score is made: s = softcap(scale * q.k) + alibi + bias. Then the mask and the band select which scores count.
struct Score {
  float scale = 0;    // any finite number, also a negative one; 0 asks for 1/sqrt(d_qk)
  float softcap = 0;  // 0 is off; a finite number > 0 replaces s by softcap * tanh(s / softcap)
  bool operator==(const Score&) const = default;
};

/// Which random numbers the dropout of one run draws. Philox4x32-10 on (seed, offset, b, h, i, j) alone decides whether
/// element (b, h, i, j) is kept, so the same elements are dropped on every backend and with every tile. `at` is null or
/// points to two numbers in the backend's memory. The run reads them and adds them to seed and offset (modulo 2^64). So
/// one plan, or one captured graph, serves every step, and layers that share the two numbers differ by their offsets.
struct Rng {
  std::uint64_t seed = 0, offset = 0;
  const std::uint64_t* at = nullptr;

  /// Where this run lies in a larger problem, of whose mask it draws its part: element (b, h, i, j) of the run is
  /// element (origin.b + b, origin.h + h, origin.i + i, origin.j + j) there. h_q: the query heads of the larger
  /// problem; 0: as many as here. Each is 0 or more, and j is a multiple of 4.
  struct Origin {
    std::int64_t b = 0, h = 0, i = 0, j = 0, h_q = 0;
    bool operator==(const Origin&) const = default;
  } origin{};
};

/// What the backward pass writes gradients as: rounded to the type of q; in f32; or in f32, added to what is there.
enum class Grads : std::uint8_t { rounded, f32, accumulate };

/// Exact softmax attention, O = softmax(S) V. Each K/V head is shared by g = h_q / h_k query heads (GQA; with h_k = 1
/// it is MQA).
struct Attention {
  DType dtype = DType::bf16;  // the type of q: f32, f16 or bf16, and in the forward pass e4m3 or i8
  /// as_q. k and v of a cache may both be e4m3, or both i8; numbers of K are then k * k_scale, those of V v * v_scale.
  ///
  /// q of 8 bits (q, k, v): (e4m3, e4m3, e4m3), (i8, i8, e4m3), (i8, i8, bf16) or (i8, i8, f16). Numbers of Q are then
  /// q * q_scale. With v of 16 bits o is of the same type; with v of e4m3 it is bf16, or f16 where dtype_o says so, and
  /// the probabilities are rounded to e4m3, as docs/contract.md says. Not with a cache, first_k, alibi, bias, mask,
  /// dropout, row_max and probabilities.
  DType dtype_k = DType::as_q, dtype_v = DType::as_q, dtype_o = DType::as_q;
  /// packed: b is the number of sequences. packed or used_*: s_q and s_k are the longest lengths that are allowed.
  std::int64_t b = 0, s_q = 0, s_k = 0;
  std::int64_t h_q = 1, h_k = 1;
  std::int64_t d_qk = 0, d_v = 0;  // any numbers from 1 to 256, independent of each other
  Band band{};
  Score score{};
  float dropout = 0;  // the share p in [0, 1] of probabilities that are dropped; lse is before it; p = 1 gives O = 0

  // Which optional operands the run will have.
  bool packed = false;  // q, o are (1, total_q, h, d) and k, v (1, total_k, h, d); cu_seqlens_q and _k cut them
  bool used_q = false, used_k = false;  // used lengths, one for each sequence
  bool first_k = false;                 // left padding: the keys of sequence i begin at its row first_k[i]
  /// k and v are a KV cache, each sequence's at its full capacity: `packed` then cuts q and o alone, and used_k, which
  /// is required, says how many keys each sequence has. Forward alone, without bias, mask, dropout, row_max and
  /// probabilities.
  bool cache = false;
  /// 0: a cache is (b, s_k, h_k, d), key j in row j. Else it is (pages, page_size, h_k, d) in any order of strides, and
  /// key j of sequence i lies in row j % page_size of page Operands::page_table[i][j / page_size]. s_k is the most keys
  /// that a sequence may have.
  std::int64_t page_size = 0;
  /// The last keys of each sequence are new: as many as it has queries. They are rows of Operands::k_new and v_new, as
  /// q has its own; the run writes them into the cache, whose used_k counts them, and sees them.
  bool append = false;
  /// Rotary embedding of q, and with append of k_new, before anything else: of their first rotary_dim columns (an even
  /// number; 0: none), by the rows of Operands::rotary. Column i turns with column i + rotary_dim / 2, or with
  /// rotary_pairs column 2 i with 2 i + 1. It is for a cache, whose older keys have been rotated when they were
  /// written.
  std::int64_t rotary_dim = 0;
  bool rotary_pairs = false;
  bool k_scale = false, v_scale = false;  // with 8 bits: scales of k, of v; without them a scale is 1
  bool q_scale = false;                   // the same of q of 8 bits
  /// With q of 8 bits: how many keys share a scale of k, a multiple of 128, counted from the first key of a sequence.
  /// 0 or 1: the axis of keys is as k's, and all keys share a scale.
  std::int64_t k_scale_rows = 0;
  /// 0: the keys are cut into as many parts as the device likes. Else parts begin at multiples of split_keys (itself a
  /// multiple of 64), so that the bits of a sequence's result depend on no other sequence of the run.
  std::int64_t split_keys = 0;
  bool sinks = false;  // one more key for each query head, with a score of its own and without a row of V
  bool alibi = false;  // s -= slope[b, h] * |i + shift - j|, with the shift of Band (bottom_right when unset)
  bool bias = false;   // s += bias[b, h, i, j], of type f32 or dtype; -inf masks the key
  bool mask = false;   // boolean; true means that the key may be seen
  bool lse = false, row_max = false, probabilities = false;  // the outputs that are wanted besides o

  // Only for Pass::backward, which always has o and lse as inputs and does not look at lse, row_max, probabilities
  // above.
  bool any_order = false;        // sums of grad_q may be made in any order: faster, but the bits differ from run to run
  Grads grads = Grads::rounded;  // of grad_q, grad_k and grad_v; accumulate also adds to grad_bias and grad_alibi
  bool zero_unused = false;      // rows of grad_q, grad_k, grad_v that belong to no used length get 0, not left alone
  bool grad_lse = false;         // there is a gradient of the lse, as an input
  bool grad_bias = false, grad_alibi = false, grad_sinks = false;  // wanted besides the gradients of q, k and v
  std::uint8_t frozen = 0;  // what is not wanted: 1 grad_q, 2 grad_k and grad_v, 3 all three
  bool operator==(const Attention&) const = default;
};

/// The tensors of one run. All memory must lie where the backend can use it: a GPU's memory for
/// its backends, the host's for ref and cpu; pinned and managed memory serve both. Each run checks
/// this and names the operand that breaks it.
///
/// Those after the blank line are only for Pass::backward, in which o and lse are inputs too: what the forward pass
/// wrote or, where the keys were computed in parts, the merged ones. They are never computed anew.
struct Operands {
  Tensor q{}, k{}, v{};     // inputs   (b, s, h, d), last axis contiguous
  Tensor o{};               // output   (b, s_q, h_q, d_v)
  Tensor lse{}, row_max{};  // outputs  (b, h_q, s_q, 1) f32; packed: (1, h_q, total_q, 1). -inf where no key is seen
  Tensor probabilities{};   // output   (b, h_q, s_q, s_k) f32, before dropout; not with packed
  Tensor bias{}, mask{};    // inputs   (b, h_q, s_q, s_k), broadcast with stride 0 or extent 1 on any axis
  Tensor alibi{};           // input    slopes (b or 1, 1, h_q, 1) f32; packed: b sequences
  const std::int32_t *cu_seqlens_q = nullptr, *cu_seqlens_k = nullptr;  // (b + 1), starts at 0, sorted, ends at total
  const std::int32_t *used_q = nullptr, *used_k = nullptr;              // (b); rows of o past used_q stay untouched
  /// (b): the keys of a sequence are its rows [first_k, length of k). The rows before first_k count as if they did not
  /// exist: they are not read, and bands count keys from first_k on. Columns of bias, mask and probabilities remain
  /// rows of k.
  const std::int32_t* first_k = nullptr;
  Rng rng{};  // with dropout
  /// input of a cache with pages: (b, columns, 1, 1) i32, or (1, total, 1, 1) of which columns [page_starts[i],
  /// page_starts[i + 1]) are sequence i's. Keys of a page below 0, or past the cache, are masked and not read.
  Tensor page_table{};
  const std::int32_t* page_starts = nullptr;  // (b + 1), or null
  Tensor k_new{}, v_new{};  // inputs with append: rows as q has them, h_k heads; k and v are then written too
  /// input with rotary_dim: (1, positions, 2, rotary_dim / 2) f32, of each position the cosines and then the sines. Row
  /// i of a sequence's q stands at position used_k - first_k - length of q + i.
  Tensor rotary{};
  /// inputs with 8 bits: f32 with the axes of k but d, which is 1. An axis of stride 0 or extent 1 shares: one scale
  /// for all, for a head, or of a cache for each key and head. New keys are divided by the scale of their slot. With
  /// k_scale_rows = n above 1 k_scale is (b, ceil(s_k / n), h_k, 1). With packed lengths it is then (1, total_k / n +
  /// b, h_k, 1), where the scales of sequence i begin at cu_seqlens_k[i] / n + i. With q of 8 bits v_scale is (b, 1,
  /// h_k, 1), with packed lengths (1, 1, h_k, 1).
  Tensor k_scale{}, v_scale{};
  Tensor q_scale{};  // input of q of 8 bits: f32 with the axes of q but d, which is 1; stride 0 or extent 1 shares
  Tensor sinks{};    // input    (b or 1, 1, h_q, 1) f32: scores that no scale, softcap or bias changes; they are in lse

  Tensor grad_o{};                      // input    (b, s_q, h_q, d_v) of the type of q; any strides, 0 too
  Tensor grad_lse{};                    // input    (b, h_q, s_q, 1) f32; packed: (1, h_q, total_q, 1)
  Tensor grad_q{}, grad_k{}, grad_v{};  // outputs  as q, k, v, last axis contiguous; Attention::grads says the type
  Tensor grad_bias{};                   // output   (b, h_q, s_q, s_k) f32; an axis of extent 1 is summed over
  Tensor grad_alibi{}, grad_sinks{};    // outputs  (b or 1, 1, h_q, 1) f32, summed over b where the extent is 1
};

}  // namespace falchion
