// src/sm90/attention_forward/halves/kernel.cuh: forward softmax attention in f32 on Hopper. Each f32 number is the sum
// of two f16 parts (high and low); three of the four products of parts are computed, by wgmma. An earlier kernel splits
// q, k and v (split.cuh). The scheduler and the producer are those of the 16-bit kernel; this file has the consumers.
// docs/design/sm90_forward.md, "f32 as two halves", has the design and its cost.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/band.cuh"
#include "gpu/blocks/sm90_softmax_f32.cuh"
#include "sm90/attention_forward/halves/infinite.cuh"
#include "sm90/attention_forward/halves/split.cuh"
#include "sm90/attention_forward/halves/store.cuh"
#include "sm90/attention_forward/launch.cuh"

namespace falchion::sm90 {

using namespace gpu;

using f32 = float;

/// One consumer warpgroup, which has 64 rows of each tile, from Q to O. Its own steps do not overlap; the other
/// warpgroup keeps the tensor cores busy meanwhile.
template <class Config>
class HalvesConsumer {
 public:
  using Half = typename Config::Element;
  using Shared = typename Config::Shared;
  static constexpr int kRows = Config::kRows, kKeys = Config::kKeys, kColumns = Config::kColumns;
  static constexpr int kOwnKeys = kKeys / 4;                  // keys in each of a thread's two rows of S
  static constexpr int kSums = std::max(Config::kD / 64, 1);  // S is the sum of so many accumulators, see start_s

  FALCHION_DEVICE HalvesConsumer(const AttentionArgs& a, const Divisors& by, Shared& shared, int warpgroup)
      : a(a), by(by), shared(shared), warpgroup(warpgroup) {}

  /// Goes through all tiles of this CTA. It releases a record when its tile is done, and never waits for a later record
  /// before that. So the scheduler and the producer cannot deadlock.
  FALCHION_DEVICE void run() {
    CUTE_NO_UNROLL
    for (;; release_tile()) {
      shared.full_tile[at_tile.stage].wait(at_tile.parity);
      const TileRecord& tile = shared.tile[at_tile.stage];
      if (tile.row0 < 0) return;
      softmax.reset();
      clear(rO);
      if (tile.begin < tile.end) walk(tile);
      softmax.finish();
      const auto cO = coordinates<Config::kDv>();
      store_halves(a, tile.RowsRecord::read(by), softmax, rows_columns(as_mma_accumulator(rO)), cO);
    }
  }

 private:
  /// Goes over the tiles of keys, from the last to the first.
  FALCHION_DEVICE void walk(const TileRecord& tile) {
    const HalvesLayout at = HalvesLayout::of(HalvesRows::of(a), Config::kD);
    find_row_factors(tile, at);
    const KeyFactors* const key_factors = find_key_factors(tile, at);
    int n = tile.end - 1;
    CUTE_NO_UNROLL
    for (int unseen = tile.unseen<kKeys>(by, 64 * (warpgroup + 1)); unseen > 0; --unseen, --n) {
      wait_k();
      wait_v();
      __syncwarp();  // all lanes see both barriers complete; no other instruction here synchronises the warp
      release_k();
      release_v();
    }
    shared.full_q[at_q.stage].wait(at_q.parity);
    load_key_factors(tile, key_factors, n * kKeys, &KeyFactors::k, k_factor);
    CUTE_NO_UNROLL
    for (; n >= tile.begin; --n) {
      wait_k();
      start_s();  // S = Q K^T, in three products of parts
      wait_s();
      release_k();
      finish_s(tile, key_factors, n * kKeys);
      load_key_factors(tile, key_factors, n * kKeys, &KeyFactors::v, v_factor);
      make_p(tile, key_factors, n * kKeys);  // P = e^(scale S - m)
      // Loads the factors of the next tile here, because ptxas multiplies them before the products of that tile.
      load_key_factors(tile, key_factors, max(n - 1, tile.begin) * kKeys, &KeyFactors::k, k_factor);
      wait_v();
      add_o();  // O += P V, in three products of parts
      release_v();
    }
    release(shared.empty_q[at_q.stage]);
    at_q.advance();
  }

  /// The factors of this thread's two rows of Q.
  FALCHION_DEVICE void find_row_factors(const TileRecord& tile, const HalvesLayout& at) {
    const auto* const factors =
        reinterpret_cast<const float*>(static_cast<const unsigned char*>(a.copies) + at.q_factors);
    const AttentionTile t = tile.RowsRecord::read(by);
    const std::int64_t length = a.packed ? a.total_q : a.s_q;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int row = min(t.row0 + FragmentPlace(warpgroup).row + 8 * r, t.rows - 1);
      row_factor[r] = factors[(t.q.batch * a.h_q + t.head(row)) * length + t.q.begin + t.query(row)];
    }
  }
  /// The factors of the keys of a tile of rows, from its first key on.
  FALCHION_DEVICE const KeyFactors* find_key_factors(const TileRecord& tile, const HalvesLayout& at) const {
    const auto* const factors =
        reinterpret_cast<const KeyFactors*>(static_cast<const unsigned char*>(a.copies) + at.key_factors);
    const std::int64_t length = a.packed ? a.total_k : a.s_k;
    std::size_t first =
        __cvta_generic_to_global(factors + (tile.k.batch * a.h_k + by.ratio.div(tile.h)) * length + tile.k.begin);
    asm volatile("" : "+l"(first));  // otherwise the compiler would compute the whole sum again for each key
    return static_cast<const KeyFactors*>(__cvta_global_to_generic(first));
  }
  /// Loads the factors of this thread's keys ahead of their use. Keys past the end get the factor of the last key.
  FALCHION_DEVICE void load_key_factors(const TileRecord& tile, const KeyFactors* factors, int key0,
                                        float KeyFactors::*of, float (&out)[kOwnKeys]) const {
    const int last = tile.k.length - 1;
    CUTE_UNROLL
    for (int i = 0; i < kOwnKeys; ++i) out[i] = factors[min(key0 + FragmentPlace::key(i), last)].*of;
  }

  /// Starts S = Q K^T of the parts. Tensor cores round towards zero at the magnitude of the running sum, so a long sum
  /// of large scores would come out too small. Therefore each 64 columns of Q and K are summed in an accumulator of
  /// their own.
  FALCHION_DEVICE void start_s() {
    const auto slice = MmaQk{}.get_slice(warpgroup * 128);
    const auto part_of_q = [&](int part) {
      Half* const at = shared.q[at_q.stage] + part * (Config::kSizeQ / 2);
      return slice.partition_fragment_A(make_tensor(make_smem_ptr(at), typename Config::PartOfQ{}));
    };
    const auto part_of_k = [&](int part) {
      Half* const at = shared.k[at_k.stage] + part * (Config::kSizeK / 2);
      return slice.partition_fragment_B(make_tensor(make_smem_ptr(at), typename Config::PartOfK{}));
    };
    if constexpr (kSums == 1) {
      start_multiply_halves<true>(MmaQk{}, part_of_q, part_of_k, rS);
    } else {
      constexpr int kSteps = Config::kD / 16 / kSums;
      start_multiply<true>(MmaQk{}, part_of_q(1), part_of_k(0), rS);
      start_multiply<false>(MmaQk{}, part_of_q(0), part_of_k(1), rS);
      start_multiply<false, 0, kSteps>(MmaQk{}, part_of_q(0), part_of_k(0), rS);
      for_each(make_int_sequence<kSums - 1>{}, [&](auto i) {
        start_multiply<true, (i + 1) * kSteps, kSteps>(MmaQk{}, part_of_q(0), part_of_k(0), rest_of_s[i]);
      });
    }
  }
  FALCHION_DEVICE void wait_s() {
    wait_multiply<0>(rS);
    for_each(make_int_sequence<kSums - 1>{}, [&](auto n) {
      wait_multiply<0>(rest_of_s[n]);
      CUTE_UNROLL
      for (int i = 0; i < size(rS); ++i) rS(i) += rest_of_s[n](i);
    });
  }
  /// Multiplies S by the factors of its rows and keys, and sets it to -inf where a row does not see a key.
  FALCHION_DEVICE void finish_s(const TileRecord& tile, const KeyFactors* factors, int key0) {
    auto S = rows_columns(as_mma_accumulator(rS));  // (rows, columns)
    bool marked = is_incomplete(row_factor[0]) || is_incomplete(row_factor[1]);
    CUTE_UNROLL
    for (int i = 0; i < kOwnKeys; ++i) {
      marked |= is_incomplete(k_factor[i]);
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) S(r, i) *= row_factor[r] * k_factor[i];
    }
    if (__any_sync(~0U, marked)) {
      const auto mark = [&](int key) { return is_incomplete(factors[key0 + key].k); };
      compute_marked_scores(a, tile.read(by), by.ratio.div(tile.h), FragmentPlace(warpgroup), key0, row_factor, mark,
                            S);
    }
    if (key0 < tile.unmasked_begin || key0 + kKeys > tile.unmasked_end)
      keep_band(a, tile.read(by), S, coordinates<kKeys>(), key0);  // mask.keep
  }

  /// Turns S into P, scales P by the factors of V, and splits it. Each row of P is scaled so that its largest number is
  /// below 2^15. Before that, O is multiplied by shrink where a maximum has risen.
  FALCHION_DEVICE void make_p(const TileRecord& tile, const KeyFactors* factors, int key0) {
    auto S = rows_columns(as_mma_accumulator(rS));
    float shrink[2];
    const float c = a.scale * kLog2e;
    if (softmax.raise(S, c, shrink)) scale_rows(rows_columns(as_mma_accumulator(rO)), shrink);
    softmax.update(S, c);
    bool marked = false;
    CUTE_UNROLL
    for (int i = 0; i < kOwnKeys; ++i) marked |= is_incomplete(v_factor[i]);
    if (__any_sync(~0U, marked)) {
      const auto mark = [&](int key) { return is_incomplete(factors[key0 + key].v); };
      add_marked_values(a, tile.read(by), by.ratio.div(tile.h), key0, mark, S, rows_columns(as_mma_accumulator(rO)));
    }
    float most[2] = {0, 0};
    CUTE_UNROLL
    for (int i = 0; i < kOwnKeys; ++i) {
      const float factor = without_mark(v_factor[i]);
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        S(r, i) *= factor;
        most[r] = fmaxf(most[r], S(r, i));
      }
    }
    float scale[2];
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const float largest = over_quad(most[r], [](float x, float y) { return fmaxf(x, y); });
      const int n = exponent_for(__float_as_uint(largest));
      scale[r] = power_of_two(n);
      unscale[r] = power_of_two(-n) * 0x1p-14f;  // the factors of V are 2^14 times too large
    }
    CUTE_UNROLL
    for (int i = 0; i < size(rS); ++i) rS(i) *= scale[i / 2 % 2];
    CUTE_UNROLL
    for (int part = 0; part < 2; ++part) {
      auto pairs = recast<std::uint32_t>(p[part]);
      CUTE_UNROLL
      for (int i = 0; i < size(pairs); ++i) pairs(i) = round_half(rS(2 * i), rS(2 * i + 1));
    }
  }

  /// O += P V. Tensor cores round towards zero, and the errors would add up over the tiles of keys. So each product is
  /// summed in an accumulator of its own and added to O in f32.
  FALCHION_DEVICE void add_o() {
    auto O = rows_columns(as_mma_accumulator(rO));
    const auto slice = MmaPv{}.get_slice(warpgroup * 128);
    const auto part_of_p = [&](int part) { return as_wgmma_operand_a(p[part]); };
    for_each(make_int_sequence<Config::kDv / kColumns>{}, [&](auto turn) {
      constexpr int kFirst = decltype(turn)::value * kColumns;
      const auto part_of_v = [&](int part) {
        Half* const at = shared.v[at_v.stage] + part * (Config::kSizeV / 2) + kFirst * kKeys;
        return slice.partition_fragment_B(make_tensor(make_smem_ptr(at), typename Config::ColumnsOfVt{}));
      };
      start_multiply_halves<true>(MmaPv{}, part_of_p, part_of_v, rPv);
      wait_multiply<0>(rPv);
      const auto product = rows_columns(as_mma_accumulator(rPv));
      CUTE_UNROLL
      for (int i = 0; i < size<1>(product); ++i) {
        CUTE_UNROLL
        for (int r = 0; r < 2; ++r) O(r, kFirst / 4 + i) = fmaf(product(r, i), unscale[r], O(r, kFirst / 4 + i));
      }
    });
    keep_terms(p);
  }

  /// The coordinates (row, column) in the tile of each of this thread's elements of S or O.
  template <int kN>
  static FALCHION_DEVICE auto coordinates() {
    return rows_columns(typename Config::MmaOfRows{}
                            .get_thread_slice(threadIdx.x)
                            .partition_C(make_identity_tensor(Shape<Int<kRows>, Int<kN>>{})));
  }
  FALCHION_DEVICE void wait_k() { shared.full_k[at_k.stage].wait(at_k.parity); }
  FALCHION_DEVICE void wait_v() { shared.full_v[at_v.stage].wait(at_v.parity); }
  FALCHION_DEVICE void release_k() {
    release(shared.empty_k[at_k.stage]);
    at_k.advance();
  }
  FALCHION_DEVICE void release_v() {
    release(shared.empty_v[at_v.stage]);
    at_v.advance();
  }
  FALCHION_DEVICE void release_tile() {
    __syncwarp();  // every lane has read what it needs of the record
    release(shared.empty_tile[at_tile.stage]);
    at_tile.advance();
  }
  template <class Barrier>
  static FALCHION_DEVICE void release(Barrier& empty) {
    if (threadIdx.x % 32 == 0) empty.arrive();
  }

  using MmaQk = typename Config::MmaQk;
  using MmaPv = typename Config::MmaPv;
  decltype(partition_fragment_C(MmaQk{}, Shape<Int<kRows>, Int<kKeys>>{})) rS;      // (64, N) f32
  decltype(rS) rest_of_s[std::max(kSums - 1, 1)];                                   // see start_s
  decltype(partition_fragment_C(MmaPv{}, Shape<Int<kRows>, Int<kColumns>>{})) rPv;  // (64, C) f32, one product P V
  decltype(make_tensor<float>(Layout<Int<Config::kDv / 2>>{})) rO;                  // (64, D) f32
  decltype(make_tensor<Half>(Layout<Int<kKeys / 2>>{})) p[2];                       // P (64, N), high and low part
  SoftmaxF32 softmax;
  float row_factor[2], unscale[2];               // undo the scale of Q; of P and V
  float k_factor[kOwnKeys], v_factor[kOwnKeys];  // of this thread's keys
  RingPosition<Config::kStages> at_k, at_v;
  RingPosition<Config::kStagesQ> at_q;
  RingPosition<Config::kTiles> at_tile;

  const AttentionArgs& a;
  const Divisors& by;
  Shared& shared;
  const int warpgroup;
};

/// Enqueues the kernel that splits, and then the attention kernel, which loads the parts.
template <class Config>
int launch_attention_halves(const AttentionArgs& a, void* stream) {
  const HalvesLayout at = HalvesLayout::of(HalvesRows::of(a), Config::kD);
  const int error = launch_split<Config::kD>(a, at, stream);
  if (error != cudaSuccess) return error;
  AttentionArgs parts = a;
  auto* const memory = static_cast<unsigned char*>(a.copies);
  const auto view = [&](std::size_t from, std::int64_t s, std::int64_t h) {
    constexpr std::int64_t kLine = 2 * Config::kD;
    return View{memory + from, {s * h * kLine, h * kLine, kLine, 1}};
  };
  parts.q = view(at.q, a.s_q, a.h_q);
  parts.k = view(at.k, a.s_k, a.h_k);
  parts.v = view(at.v, a.s_k, a.h_k);
  parts.d_qk = parts.d_v = 2 * Config::kD;
  return launch_attention_forward<Config, HalvesConsumer<Config>>(a, parts, stream);
}

/// The variant's entry in the table of kernels. Where the keys are split, a third kernel combines the parts.
template <class Element, int kD>
constexpr gpu::AttentionKernel attention_forward_halves() {
  using Config = AttentionForwardConfig<f16, kD, Kind::halves>;
  return attention_kernel_of<Config, Element>([](const AttentionArgs& a, void* stream) {
    const int error = launch_attention_halves<Config>(a, stream);
    return error == 0 && a.splits > 1 ? launch_attention_combine<Element>(a, stream) : error;
  });
}

}  // namespace falchion::sm90
