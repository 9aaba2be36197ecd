// src/ladder/attention/10_eight_bits.cu: the order of step 08 with numbers of 8 bits (e4m3). wgmma multiplies them
// twice as fast, but its sums are short: they keep 13 bits behind the leading one, so P V of each tile has sums of its
// own, which are then added to O in f32. It runs on sm_90 alone.
#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED  // products with 136 columns
#include "ladder/attention/eight_bits.cuh"

namespace falchion::ladder::on_gpu {
namespace {

/// Ot is what the tensor cores sum: O of some tiles. kEveryTile: of one. Else it is added to O after `tiles` tiles,
/// which only shows what becomes of a long sum.
template <class Tile, bool kEveryTile>
class EightConsumer : public ScoresOfConsumer<Tile> {
  using Scores = ScoresOfConsumer<Tile>;
  using Scores::at_v, Scores::p, Scores::rS, Scores::shared, Scores::t, Scores::warpgroup;

 public:
  FALCHION_DEVICE EightConsumer(const Problem& p, const QueryTile<Tile>& t, typename Tile::Shared& shared,
                                int warpgroup, int tiles)
      : Scores(p, t, shared, warpgroup), tiles(tiles) {
    clear(rO);
    clear(rOt);
  }

  FALCHION_DEVICE void start_ot() {                                                            // Ot = P V
    const auto sVt = make_tensor(make_smem_ptr(shared.V.tile[0]), typename Tile::LayoutVt{});  // (D + 8, N, stages)
    const auto mma = typename Tile::MmaPv{};
    const auto rV = mma.get_slice(warpgroup * 128).partition_fragment_B(sVt);  // (1, 1, N / 32, stages) descriptors
    using OperandA = Layout<Shape<Shape<_4, _2, _2>, _1, Int<Tile::kN / 32>>, Stride<Stride<_1, _4, _8>, _0, _16>>;
    stage_v = at_v.stage;
    at_v.advance();
    sm90::start_multiply<kEveryTile>(mma, make_tensor(rP.data(), OperandA{}), rV(_, _, _, stage_v), rOt);
  }
  template <int kBehind>
  FALCHION_DEVICE void wait_ot() {
    sm90::wait_multiply<kBehind>(rOt);
    Scores::release(shared.V.empty[stage_v]);
  }

  /// softmax.update: P = 2^(c S - c m + 8), since e4m3 goes up to 448 and down to 2^-9: so P may be as small as 2^-17
  /// of the largest. shrink is what all that was summed before must be multiplied by. O itself waits for that (behind).
  FALCHION_DEVICE void update() {
    auto S = wgmma_rows_and_columns(rS);
    auto Ot = wgmma_rows_and_columns(rOt);
    const float c = p.scale * float(M_LOG2E);
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      float m_new = m[r];
      CUTE_UNROLL
      for (int n = 0; n < size<1>(S); ++n) m_new = fmaxf(m_new, S(r, n));
      m_new = OnlineSoftmax<2>::max_of_four(m_new);
      const float reference = m_new == -INFINITY ? 0 : c * m_new;  // 0 where no key is seen: -inf - -inf is NaN
      shrink[r] = exp2f(c * m[r] - reference);
      behind[r] *= shrink[r];
      if (!kEveryTile) scale_row(Ot, r, shrink[r]);
      m[r] = m_new;
      CUTE_UNROLL
      for (int n = 0; n < size<1>(S); ++n) S(r, n) = exp2f(c * S(r, n) - (reference - 8));
    }
  }

  /// O += Ot. O has to be multiplied by something anyhow, so this is one multiply-add for each element. l is the column
  /// of Ot that the ones below V^T make.
  FALCHION_DEVICE void add_ot(bool last = false) {
    auto Ot = wgmma_rows_and_columns(rOt);
    auto O = wgmma_rows_and_columns(rO);
    const bool now = kEveryTile || last || ++summed == tiles;  // else the sum goes on
    if (now) summed = 0;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      l[r] = fmaf(l[r], shrink[r], Ot(r, Tile::kD / 4));
      CUTE_UNROLL
      for (int x = 0; x < size<1>(O); ++x) O(r, x) = now ? fmaf(O(r, x), behind[r], Ot(r, x)) : O(r, x);
      behind[r] = now ? 1 : behind[r];
      if (kEveryTile) continue;  // its next product begins with 0
      CUTE_UNROLL
      for (int x = 0; x < size<1>(Ot); ++x) Ot(r, x) = now || x >= size<1>(O) ? 0 : Ot(r, x);
    }
  }
  /// P in 8 bits, in the order in which S came.
  FALCHION_DEVICE void round() {
    auto words = recast<std::uint32_t>(rP);
    CUTE_UNROLL
    for (int i = 0; i < size(words); ++i) {
      const int from = i / 2 * 8 + i % 2 * 2;  // this thread's keys 2 t and 2 t + 1 of one row, and those 8 further
      words(i) = two_of_eight_bits(rS(from), rS(from + 1)) | two_of_eight_bits(rS(from + 4), rS(from + 5)) << 16;
    }
  }

  /// finish, store
  FALCHION_DEVICE void store_o(bf16* o) {
    const auto cO = Scores::coordinates(typename Tile::MmaPv{}, Shape<typename Tile::M, typename Tile::DAndOnes>{});
    store(wgmma_rows_and_columns(rO), wgmma_rows_and_columns(cO), WholeSums{{l[0], l[1]}}, head_of(p, o, p.s_q, t.bh),
          t.q0, p.s_q);
  }

 private:
  /// Every thread has the whole sums of its rows.
  struct WholeSums {
    float l[2];
    static FALCHION_DEVICE float sum_of_four(float x) { return x; }
  };

  decltype(partition_fragment_C(typename Tile::MmaPv{}, Shape<typename Tile::M, typename Tile::DAndOnes>{})) rOt;
  decltype(make_tensor<float>(Layout<Shape<Shape<_2, _2, Int<Tile::kD / 8>>, _1, _1>>{})) rO;  // (64, D)
  decltype(make_tensor<e4m3>(Layout<Int<Tile::kN / 2>>{})) rP;                                 // (64, N)
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {}, shrink[2], behind[2] = {1, 1};
  int stage_v = 0, summed = 0;
  const int tiles;
};

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    attend(const __grid_constant__ Problem p, const __grid_constant__ TensorMaps maps, bf16* o, int) {
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<typename Tile::Shared*>(memory);
  const QueryTile<Tile> t(p);
  const int warpgroup = cutlass::canonical_warp_group_idx();
  init_barriers<Tile>(shared);

  if (warpgroup == Tile::kConsumers) {
    cutlass::arch::warpgroup_reg_dealloc<Tile::kProducerRegisters>();
    if (threadIdx.x % 128 == 0) produce_eight(maps, t, shared, p.h);
  } else {
    cutlass::arch::warpgroup_reg_alloc<Tile::kConsumerRegisters>();
    EightConsumer<Tile, true> own(p, t, shared, warpgroup, 1);
    if (t.end > 0) {
      if (warpgroup == 1) pass_turn(warpgroup);  // the first turn is warpgroup 0's
      own.wait_q();
      own.wait_k();
      take_turn(warpgroup);
      own.start_s();  // S = Q K^T, of the first tile
      pass_turn(warpgroup);
      own.template wait_s<0>();
      own.keep(0);   // mask.keep
      own.update();  // softmax.update
      own.round();
      CUTE_NO_UNROLL
      for (int k0 = Tile::kN; k0 < t.end; k0 += Tile::kN) {
        own.wait_k();
        own.wait_v();
        take_turn(warpgroup);
        own.start_ot();  // Ot = P V, of the tile before
        own.start_s();   // S = Q K^T, of this one
        pass_turn(warpgroup);
        own.template wait_ot<1>();
        own.add_ot();  // O += Ot
        own.template wait_s<0>();
        own.keep(k0);  // from here to the end of the loop the other consumer multiplies
        own.update();
        own.round();
      }
      own.wait_v();
      own.start_ot();
      own.template wait_ot<0>();
      own.add_ot(true);
    }
    own.store_o(o);
  }
}

/// The order of step 07 with sums over several tiles, to show what becomes of them.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    attend_with_long_sums(const __grid_constant__ Problem p, const __grid_constant__ TensorMaps maps, bf16* o,
                          int tiles) {
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<typename Tile::Shared*>(memory);
  const QueryTile<Tile> t(p);
  const int warpgroup = cutlass::canonical_warp_group_idx();
  init_barriers<Tile>(shared);
  if (warpgroup == Tile::kConsumers) {
    cutlass::arch::warpgroup_reg_dealloc<Tile::kProducerRegisters>();
    if (threadIdx.x % 128 == 0) produce_eight(maps, t, shared, p.h);
    return;
  }
  cutlass::arch::warpgroup_reg_alloc<Tile::kConsumerRegisters>();
  EightConsumer<Tile, false> own(p, t, shared, warpgroup, tiles);
  if (t.end > 0) own.wait_q();
  CUTE_NO_UNROLL
  for (int k0 = 0; k0 < t.end; k0 += Tile::kN) {
    own.wait_k();
    own.start_s();
    own.template wait_s<0>();
    own.keep(k0);
    own.update();
    own.round();
    own.wait_v();
    own.start_ot();
    own.template wait_ot<0>();
    own.add_ot(k0 + Tile::kN >= t.end);
  }
  own.store_o(o);
}

template <class Tile>
Status run_kernel(void (*kernel)(Problem, TensorMaps, bf16*, int), const Problem& p, const Tensors& t, int tiles,
                  Stream stream) {
  if (p.s_q == 0 || p.b * p.h == 0) return {};
  TensorMaps maps;
  if (Status status = make_operands<Tile>(p, t, stream, &maps); !status) return status;
  return launch(kernel, dim3(divide_up(p.s_q, Tile::kM), p.b * p.h), dim3(Tile::kThreads),
                sizeof(typename Tile::Shared), stream, p, maps, static_cast<bf16*>(t.o), tiles);
}

std::size_t workspace_bytes(const Problem& p) { return EightOperands(p, nullptr).bytes; }

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_head_dim(p, [&](auto d) {
    using Tile = EightTile<d.value>;
    return run_kernel<Tile>(attend<Tile>, p, t, 1, stream);
  });
}

}  // namespace

Status run_long_sums(const Problem& p, const Tensors& t, int tiles, Stream stream) {
  if (p.d != 64) return {Code::unsupported, "long sums are shown at head dim 64, not " + std::to_string(p.d)};
  return run_kernel<EightTile<64>>(attend_with_long_sums<EightTile<64>>, p, t, tiles, stream);
}

extern const Step eight_bits;
const Step eight_bits = {
    "eight-bits",
    "8 bits, and short sums",
    "10_eight_bits.cu",
    "Numbers of 8 bits are multiplied twice as fast as those of 16, so Q, K and V are rounded to e4m3 first, which is "
    "timed too, and P in the loop. But the tensor cores sum such products with 13 bits behind the leading one and cut "
    "off the rest. While S sums 128 products, O sums one for each key, and once the sum is 16384 times as large as a "
    "product, nothing is added any more: with V = 1 and equal scores O comes out as 0.5 at 32768 keys. So each tile of "
    "128 keys has sums of its own, which are added to O in f32. That is nearly free, because O had to be multiplied by "
    "something after each tile anyhow, and now it is a multiply-add. Rows of ones below V^T make l, the sums of P as "
    "rounded, so that what is rounded away cancels where the values are alike.",
    workspace_bytes,
    run,
    90,
    true};

}  // namespace falchion::ladder::on_gpu
