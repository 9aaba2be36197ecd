// tests/layout_oracle/atoms_cute.cpp: prints what CuTe says of its atoms, of what is tiled from them and of every
// thread's part. Its output must equal that of atoms_ours.cpp line for line. It is plain host code, for g++ -std=c++17
// with the headers of CUTLASS and CUDA.
#include <cute/tensor.hpp>  // CuTe's headers need this one first.

#include <cute/atom/copy_atom.hpp>
#include <cute/atom/copy_traits_sm75.hpp>
#include <cute/atom/copy_traits_sm80.hpp>
#include <cute/atom/copy_traits_sm90.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/atom/mma_traits_sm75.hpp>
#include <cute/atom/mma_traits_sm80.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>

namespace {

using namespace cute;
constexpr auto K = GMMA::Major::K;

template <class... Ts>
void line(const char* name, const Ts&... parts) {
  printf("%s", name);
  ((printf(" "), print(parts)), ...);
  printf("\n");
}

template <class Op>
void mma_atom(const char* name) {
  using Traits = MMA_Traits<Op>;
  line(name, typename Traits::ThrID{}, typename Traits::ALayout{}, typename Traits::BLayout{},
       typename Traits::CLayout{}, typename Traits::Shape_MNK{}, int(sizeof_bits_v<typename Traits::ValTypeA>),
       int(sizeof_bits_v<typename Traits::ValTypeB>), int(sizeof_bits_v<typename Traits::ValTypeC>));
}
template <class Op>
void copy_atom(const char* name) {
  using Traits = Copy_Traits<Op>;
  line(name, typename Traits::ThrID{}, typename Traits::SrcLayout{}, typename Traits::DstLayout{},
       typename Traits::RefLayout{});
}
template <class Mma>
void tiled_mma(const char* name, const Mma& mma) {
  line(name, mma.get_thr_layout_vmnk(), mma.get_layoutA_TV(), mma.get_layoutB_TV(), mma.get_layoutC_TV());
}
template <class Copy>
void tiled_copy(const char* name, const Copy& copy) {
  line(name, typename Copy::Tiler_MN{}, typename Copy::TiledLayout_TV{}, copy.get_layoutS_TV(), copy.get_layoutD_TV());
}

template <class Part, class Tensor>
void part(const char* name, int thread, const Part& p, const Tensor& t) {
  line(name, thread, p.layout(), int(raw_pointer_cast(p.data()) - raw_pointer_cast(t.data())));
}
template <class Copy, class Tensor>
void sources(const char* name, const Copy& copy, const Tensor& t) {
  for (int i = 0; i < int(size(copy)); ++i) part(name, i, copy.get_slice(i).partition_S(t), t);
}
template <class Copy, class Tensor>
void destinations(const char* name, const Copy& copy, const Tensor& t) {
  for (int i = 0; i < int(size(copy)); ++i) part(name, i, copy.get_slice(i).partition_D(t), t);
}

half_t memory[1 << 16];

void atoms() {
#define COMMA ,
#define MMA(op) mma_atom<op>(#op);
#define WGMMA(op, majors) mma_atom<op majors>(#op);
#define COPY(op) copy_atom<op>(#op);
#include "atoms.def"
}

void tiled() {
  using F16 = SM80_16x8x16_F32F16F16F32_TN;
  const auto flash = make_tiled_mma(F16{}, Layout<Shape<_4, _1, _1>>{}, Tile<_64, _16, _16>{});
  const auto square = make_tiled_mma(F16{}, Layout<Shape<_2, _2, _1>>{});
  tiled_mma("flash", flash);
  tiled_mma("square", square);
  tiled_mma("ordered", make_tiled_mma(SM80_16x8x8_F32TF32TF32F32_TN{}, Layout<Shape<_2, _4, _1>, Stride<_4, _1, _0>>{},
                                      Tile<_64, _32, _16>{}));
  tiled_mma("wgmma", make_tiled_mma(SM90_64x128x16_F32F16F16_RS<K, K>{}, Layout<Shape<_2, _1, _1>>{}));
  tiled_mma("deep", make_tiled_mma(F16{}, Layout<Shape<_1, _2, _2>>{}, Tile<_32, _32, _32>{}));

  const Copy_Atom<SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>, half_t> cp_async;
  const Copy_Atom<SM75_U32x4_LDSM_N, half_t> ldsm;
  const auto rows = make_tiled_copy(cp_async, Layout<Shape<_16, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{});
  const auto wide = make_tiled_copy(cp_async, Layout<Shape<_8, _16>, Stride<_16, _1>>{}, Layout<Shape<_1, _8>>{});
  const auto warp = make_tiled_copy(cp_async, Layout<Shape<_4, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{});
  const auto q = make_tiled_copy_A(ldsm, flash);
  const auto k = make_tiled_copy_B(ldsm, flash);
  const auto v = make_tiled_copy_B(Copy_Atom<SM75_U16x8_LDSM_T, half_t>{}, flash);
  const auto o = make_tiled_copy_C(Copy_Atom<SM90_U32x4_STSM_N, half_t>{}, flash);
  tiled_copy("rows", rows);
  tiled_copy("wide", wide);
  tiled_copy("warp", warp);
  tiled_copy("q", q);
  tiled_copy("k", k);
  tiled_copy("v", v);
  tiled_copy("o", o);
  tiled_copy("q of square", make_tiled_copy_A(ldsm, square));

  using Atom = decltype(composition(Swizzle<3, 3, 3>{}, Layout<Shape<_8, _64>, Stride<_64, _1>>{}));
  const auto smem = make_smem_ptr(&memory[0]);
  const auto sQ = make_tensor(smem, tile_to_shape(Atom{}, Shape<_128, _128>{}));
  const auto layout_k = tile_to_shape(Atom{}, Shape<_32, _128>{});
  const auto sK = make_tensor(smem, layout_k);
  const auto sVt = make_tensor(smem, composition(layout_k, make_layout(Shape<_128, _32>{}, GenRowMajor{})));
  const auto gQ = make_tensor(&memory[0], make_layout(make_shape(128, 128), make_stride(256, _1{})));
  sources("rows gQ", rows, gQ);
  destinations("rows sQ", rows, sQ);
  destinations("wide sQ", wide, sQ);
  destinations("warp sQ", warp, sQ);
  sources("q sQ", q, sQ);
  sources("k sK", k, sK);
  sources("v sVt", v, sVt);
  destinations("o sQ", o, sQ);
  for (int i = 0; i < 128; ++i) {
    const auto thread = flash.get_slice(i);
    part("A", i, thread.partition_A(sQ), sQ);
    line("registers", thread.partition_fragment_A(sQ).layout());
    part("B", i, thread.partition_B(sK), sK);
    line("registers", thread.partition_fragment_B(sK).layout());
    part("C", i, thread.partition_C(gQ), gQ);
  }
}

}  // namespace

int main() {
  atoms();
  tiled();
}
