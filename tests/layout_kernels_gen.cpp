// tests/layout_kernels_gen.cpp: prints src/layout/kernels.inc, which holds CuTe's own print of every shared-memory
// layout, MMA and copy of the GPU kernels. They are taken from the config headers that the kernels compile. The test
// layout_kernels compares its output with the file.
#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED  // The tiles of head dim 192 need it: they have 80 keys.
#include <cute/tensor.hpp>                     // CuTe's headers need this one first.

#include <cstdio>
#include <string>

#include "support/host_warp.hpp"  // It has the functions that the sm90 config's headers call on a device.

#include "sm80/attention_forward/config.hpp"
#include "sm90/attention_forward/config.hpp"
#include "sm90/attention_forward/fp8/config.hpp"

namespace {

using namespace cute;

/// Returns CuTe's print(x) as a string. That function writes to stdout alone, so stdout is a memory stream in the
/// meantime.
template <class T>
std::string printed(const T& x) {
  char* text = nullptr;
  std::size_t size = 0;
  FILE* const before = stdout;
  stdout = open_memstream(&text, &size);
  print(x);
  std::fclose(stdout);
  stdout = before;
  std::string out(text, size);
  std::free(text);
  return out;
}

struct Writer {
  std::string kernel;

  template <class T>
  void item(const char* name, const char* what, const T& x, long bytes = 0) const {
    std::printf("ITEM(\"%s\", \"%s\", \"%s\", \"%s\", %ld)\n", kernel.c_str(), name, what, printed(x).c_str(), bytes);
  }
  /// Prints the thread-value layouts of a tile of an MMA, and how its warps lie.
  template <class Mma>
  void mma(const char* a, const char* b, const char* c, const char* what, const Mma& mma) const {
    item(what, "threads of the MMA: lane, M, N, K", mma.get_thr_layout_vmnk());
    item(a, "thread-value layout of operand A", mma.get_layoutA_TV());
    item(b, "thread-value layout of operand B", mma.get_layoutB_TV());
    item(c, "thread-value layout of the accumulator", mma.get_layoutC_TV());
  }
};

template <class Config>
void sm80_kernel(const std::string& kind) {
  const Writer w{"sm80:" + kind + ":" + std::to_string(Config::kD)};
  constexpr long kQ = 2L * Config::kSizeQ, kK = 2L * Config::kSizeK;
  std::printf("KERNEL(\"%s\", %d, %d, %d, %d, %d, %d, %d, %d)\n", w.kernel.c_str(), Config::kRows, Config::kKeys,
              Config::kD, Config::kD, Config::kThreads, Config::kStages, Config::kCtas, Config::kSharedBytes);
  w.item("sQ", "Q in shared memory, (M, D)", typename Config::LayoutQ{}, kQ);
  w.item("sK", "K, of each stage, (N, D)", typename Config::LayoutK{}, kK * Config::kStages);
  w.item("sV", "V, of each stage, (N, D)", typename Config::LayoutV{}, kK * Config::kStages);
  w.item("sVt", "V transposed, a view of the same bytes, (D, N)", typename Config::LayoutVt{});
  w.item("sO", "O on its way out, where Q was, (M, D)", typename Config::LayoutO{});
  typename Config::TiledMma mma;
  w.mma("mma.A", "mma.B", "mma.C", "mma", mma);
  w.item("acc_s", "a thread's part of S, (values, M, N)",
         partition_fragment_C(mma, Shape<Int<Config::kRows>, Int<Config::kKeys>>{}).layout());
  w.item("acc_o", "a thread's part of O, (values, M, D)",
         partition_fragment_C(mma, Shape<Int<Config::kRows>, Int<Config::kD>>{}).layout());
  w.item("ldmatrix.Q", "which thread gets which element of Q by SM75_U32x4_LDSM_N",
         make_tiled_copy_A(typename Config::CopyAtomQ{}, mma).get_layoutD_TV());
  w.item("ldmatrix.K", "which thread gets which element of K by SM75_U32x4_LDSM_N",
         make_tiled_copy_B(typename Config::CopyAtomK{}, mma).get_layoutD_TV());
  w.item("ldmatrix.V", "which thread gets which element of V by SM75_U16x8_LDSM_T",
         make_tiled_copy_B(typename Config::CopyAtomV{}, mma).get_layoutD_TV());
  w.item("cp.async", "which thread copies which element from global memory, 16 bytes at once",
         typename Config::GlobalCopy{}.get_layoutD_TV());
}

template <class Config>
void sm90_kernel(const std::string& kind) {
  const Writer w{"sm90:" + kind + ":" + std::to_string(Config::kD)};
  std::printf("KERNEL(\"%s\", %d, %d, %d, %d, %d, %d, %d, %d)\n", w.kernel.c_str(), Config::kRows, Config::kKeys,
              Config::kD, Config::kDv, Config::kThreads, Config::kStages, Config::kCtas, Config::kSharedBytes);
  constexpr long kBytes = sizeof(typename Config::ElementQk);
  const bool parts = Config::kParts == 2;  // then D in shared memory is that of the high parts and of the low ones
  w.item("sQ", parts ? "Q in shared memory, both parts, (M, 2 D, stages)" : "Q in shared memory, (M, D, stages)",
         typename Config::LayoutQ{}, kBytes * Config::kStagesQ * Config::kSizeQ);
  w.item("sK", parts ? "K, both parts, (N, 2 D, stages)" : "K, (N, D, stages)", typename Config::LayoutK{},
         kBytes * Config::kStages * Config::kSizeK);
  w.item(
      "sVt",
      parts ? "V transposed, a view of V, both parts, (2 D, N, stages)" : "V transposed, a view of V, (D, N, stages)",
      typename Config::LayoutVt{}, 2L * Config::kStages * Config::kSizeV);
  typename Config::MmaQk qk;
  typename Config::MmaPv pv;
  w.mma("qk.A", "qk.B", "qk.C", "qk", qk);
  w.mma("pv.A", "pv.B", "pv.C", "pv", pv);
  w.item("acc_s", "a thread's part of S, (values, M, N)",
         partition_fragment_C(qk, Shape<Int<Config::kRows>, Int<Config::kKeys>>{}).layout());
  w.item("acc_o", "a thread's part of O, (values, M, D)",
         partition_fragment_C(pv, Shape<Int<Config::kRows>, Int<Config::kDv>>{}).layout());
}

/// Kind fp8, in e4m3.
template <class Config>
void sm90_fp8_kernel(const std::string& kind) {
  const Writer w{"sm90:" + kind + ":" + std::to_string(Config::kD)};
  std::printf("KERNEL(\"%s\", %d, %d, %d, %d, %d, %d, %d, %d)\n", w.kernel.c_str(), Config::kRows, Config::kKeys,
              Config::kD, Config::kDv, Config::kThreads, Config::kStages, Config::kCtas, Config::kSharedBytes);
  w.item("sQ", "Q in shared memory, (M, D, stages)", typename Config::LayoutQ{}, Config::kStagesQ * Config::kSizeQ);
  w.item("sK", "K, (N, D, stages)", typename Config::LayoutK{}, Config::kStages * Config::kSizeK);
  w.item("sVt", "V transposed, and eight rows of ones, (D + 8, N, stages)", typename Config::LayoutVt{},
         Config::kStages * (Config::kSizeV + Config::kSizeOnes));
  typename Config::MmaQk qk;
  typename Config::MmaPv pv;
  w.mma("qk.A", "qk.B", "qk.C", "qk", qk);
  w.mma("pv.A", "pv.B", "pv.C", "pv", pv);
  w.item("acc_s", "a thread's part of S, (values, M, N)",
         partition_fragment_C(qk, Shape<Int<Config::kRows>, Int<Config::kKeys>>{}).layout());
  w.item("acc_o", "a thread's part of O and of the sums of P, (values, M, D + 8)",
         partition_fragment_C(pv, Shape<Int<Config::kRows>, Int<Config::kDv + Config::kOnes>>{}).layout());
}
template <falchion::sm90::Kind kKind, int kD, falchion::VariantTile kTile>
void sm90_tile(const std::string& name) {
  namespace sm90 = falchion::sm90;
  if constexpr (kKind == sm90::Kind::fp8) {
    sm90_fp8_kernel<sm90::Fp8Config<sm90::e4m3, kD>>(name);
  } else {
    sm90_kernel<sm90::AttentionForwardConfig<sm90::bf16, kD, kKind, kTile>>(name);
  }
}

/// Of a kind, or of a tile that is not its usual one: "plain", "brief".
std::string named(const std::string& kind, const std::string& tile) { return tile == "usual" ? kind : tile; }

}  // namespace

int main() {
  namespace sm80 = falchion::sm80;
  namespace sm90 = falchion::sm90;
  std::printf(
      "// src/layout/kernels.inc: CuTe's own print of the layouts of the GPU kernels, in bf16 (f16 has the same) and "
      "e4m3.\n"
      "// Written by tests/layout_kernels_gen.cpp; do not edit.\n"
      "// KERNEL(name, rows, keys, head dim, head dim of V, threads, stages of K and V, CTAs an SM, shared bytes)\n"
      "// ITEM(kernel, name, what, print, bytes of shared memory that it alone takes)\n"
      "// clang-format off\n");
#define TILE_sm80_plain(d, tile)                                                                            \
  sm80_kernel<sm80::AttentionForwardConfig<sm80::bf16, d, sm80::Kind::plain, falchion::VariantTile::tile>>( \
      named("plain", #tile));
#define TILE_sm80_general(d, tile) \
  sm80_kernel<sm80::AttentionForwardConfig<sm80::bf16, d, sm80::Kind::general>>("general");
#define TILE_sm80_bytes(d, tile)  // Its layouts are those of kind general.
#define TILE_sm80_eight(d, tile)  // It multiplies in the layouts of kind plain. Its bytes lie in rows, as they come.
#define TILE_sm80_f32(d, tile)    // This kernel lays its tiles out by itself, without CuTe.
#define TILE_attention_forward_sm80(kind, d, tile, ...) TILE_sm80_##kind(d, tile)
#define TILE_attention_forward_sm90(kind, d, tile, ...) \
  sm90_tile<sm90::Kind::kind, d, falchion::VariantTile::tile>(named(#kind, #tile));
#include "tiles/attention_forward/tiles.def"
  std::printf("#undef KERNEL\n#undef ITEM\n");
  return 0;
}
