// src/layout/atoms_mma.cpp: the MMA atoms. Those of a warp and of AMX are a table. Those
// of wgmma follow one rule for all widths.
#include <array>

#include "layout/atoms.hpp"
#include "layout/find_atom.hpp"
#include "layout/parse.hpp"

namespace falchion::layout {
namespace {

struct Row {
  const char* name;
  int m, n, k;
  const char *thread_id, *a, *b, *c;
  int bits_a, bits_b, bits_c;
  const char* what;
};

// The result of a warp's mma of 16-bit elements, 16x8: a thread has two neighbours of a row and two of the row 8 below.
constexpr const char* kWarp = "32:1";
constexpr const char* kC16x8 = "((4,8),(2,2)):((32,1),(16,8))";
constexpr const char* kC8x8 = "((4,8),2):((16,1),8)";
constexpr const char* kA16x8 = kC16x8;
constexpr const char* kA16x16 = "((4,8),(2,2,2)):((32,1),(16,8,128))";
constexpr const char* kB8x8 = kC8x8;
constexpr const char* kB8x16 = "((4,8),(2,2)):((16,1),(8,64))";
// With 8 bits a thread has 4 neighbours where it has 2 with 16 bits.
constexpr const char* kA16x16Bytes = "((4,8),(4,2)):((64,1),(16,8))";
constexpr const char* kA16x32Bytes = "((4,8),(4,2,2)):((64,1),(16,8,256))";
constexpr const char* kB8x16Bytes = "((4,8),4):((32,1),8)";
constexpr const char* kB8x32Bytes = "((4,8),(4,2)):((32,1),(8,128))";

// A short name means the first of the atoms whose names begin with it.
constexpr std::array kRows{
    Row{"SM80_16x8x16_F32F16F16F32_TN", 16, 8, 16, kWarp, kA16x16, kB8x16, kC16x8, 16, 16, 32,
        "f16 on a warp's tensor core, summed in f32"},
    Row{"SM80_16x8x16_F32BF16BF16F32_TN", 16, 8, 16, kWarp, kA16x16, kB8x16, kC16x8, 16, 16, 32,
        "bf16 on a warp's tensor core, summed in f32"},
    Row{"SM80_16x8x16_F16F16F16F16_TN", 16, 8, 16, kWarp, kA16x16, kB8x16, kC16x8, 16, 16, 16,
        "f16 on a warp's tensor core, summed in f16"},
    Row{"SM80_16x8x8_F32F16F16F32_TN", 16, 8, 8, kWarp, kA16x8, kB8x8, kC16x8, 16, 16, 32,
        "half the K of 16x8x16: f16, summed in f32"},
    Row{"SM80_16x8x8_F32BF16BF16F32_TN", 16, 8, 8, kWarp, kA16x8, kB8x8, kC16x8, 16, 16, 32,
        "half the K of 16x8x16: bf16, summed in f32"},
    Row{"SM80_16x8x8_F16F16F16F16_TN", 16, 8, 8, kWarp, kA16x8, kB8x8, kC16x8, 16, 16, 16,
        "half the K of 16x8x16: f16, summed in f16"},
    Row{"SM80_16x8x8_F32TF32TF32F32_TN", 16, 8, 8, kWarp, "((4,8),(2,2)):((16,1),(8,64))", "((4,8),2):((8,1),32)",
        kC16x8, 32, 32, 32, "tf32: f32 rounded to 10 bits of mantissa"},
    Row{"SM80_16x8x4_F32TF32TF32F32_TN", 16, 8, 4, kWarp, "((4,8),2):((16,1),8)", "((4,8),1):((8,1),0)", kC16x8, 32, 32,
        32, "tf32, half the K"},
    Row{"SM80_8x8x4_F64F64F64F64_TN", 8, 8, 4, kWarp, "((4,8),1):((8,1),0)", "((4,8),1):((8,1),0)", kC8x8, 64, 64, 64,
        "f64 on a warp's tensor core"},
    Row{"SM80_16x8x32_S32S8S8S32_TN", 16, 8, 32, kWarp, kA16x32Bytes, kB8x32Bytes, kC16x8, 8, 8, 32,
        "int8, summed in int32"},
    Row{"SM80_16x8x16_S32S8S8S32_TN", 16, 8, 16, kWarp, kA16x16Bytes, kB8x16Bytes, kC16x8, 8, 8, 32,
        "int8, half the K"},
    Row{"SM80_8x8x16_S32S8S8S32_TN", 8, 8, 16, kWarp, kB8x16Bytes, kB8x16Bytes, kC8x8, 8, 8, 32,
        "int8, the smallest tile"},
    Row{"SM75_16x8x8_F32F16F16F32_TN", 16, 8, 8, kWarp, kA16x8, kB8x8, kC16x8, 16, 16, 32,
        "Turing: f16, summed in f32"},
    Row{"SM75_8x8x16_S32S8S8S32_TN", 8, 8, 16, kWarp, kB8x16Bytes, kB8x16Bytes, kC8x8, 8, 8, 32,
        "Turing: int8, summed in int32"},
    // CuTe does not have these. One thread holds whole tiles, and value v is the v-th element of the tile register's
    // bytes. B is interleaved as VNNI needs it: 2 (4) values of k of one column lie next to each other.
    Row{"AMX_TDPBF16PS", 16, 16, 32, "1:0", "(1,(32,16)):(0,(16,1))", "(1,(2,16,16)):(0,(16,1,32))",
        "(1,(16,16)):(0,(16,1))", 16, 16, 32, "bf16 tiles of a CPU core; B in pairs of k"},
    Row{"AMX_TDPFP16PS", 16, 16, 32, "1:0", "(1,(32,16)):(0,(16,1))", "(1,(2,16,16)):(0,(16,1,32))",
        "(1,(16,16)):(0,(16,1))", 16, 16, 32, "f16 tiles of a CPU core; B in pairs of k"},
    Row{"AMX_TDPBSSD", 16, 16, 64, "1:0", "(1,(64,16)):(0,(16,1))", "(1,(4,16,16)):(0,(16,1,64))",
        "(1,(16,16)):(0,(16,1))", 8, 8, 32, "int8 tiles of a CPU core; B in fours of k"},
};

Layout read(const std::string& text) { return parse_layout(text, {}, true).layout; }

MmaAtom atom_of(const Row& row) {
  return {row.name,    row.name,   row.m,      row.n,      row.k,   read(row.thread_id), read(row.a), read(row.b),
          read(row.c), row.bits_a, row.bits_b, row.bits_c, row.what};
}

/// The element types of a wgmma, as they stand in the name behind 64xNxK_ and behind SS or RS.
struct WgmmaTypes {
  const char *name, *suffix, *what;
  int bits, bits_c;
  bool every_width;  // false for int8, which needs multiples of 16 above 32
};
constexpr std::array kWgmma{
    WgmmaTypes{"F32BF16BF16", "", "bf16, summed in f32", 16, 32, true},
    WgmmaTypes{"F32F16F16", "", "f16, summed in f32", 16, 32, true},
    WgmmaTypes{"F16F16F16", "", "f16, summed in f16", 16, 16, true},
    WgmmaTypes{"F32TF32TF32", "_TN", "tf32, summed in f32", 32, 32, true},
    WgmmaTypes{"F32E4M3E4M3", "_TN", "fp8, summed in f32", 8, 32, true},
    WgmmaTypes{"F32E4M3E5M2", "_TN", "fp8, summed in f32", 8, 32, true},
    WgmmaTypes{"F32E5M2E4M3", "_TN", "fp8, summed in f32", 8, 32, true},
    WgmmaTypes{"F32E5M2E5M2", "_TN", "fp8, summed in f32", 8, 32, true},
    WgmmaTypes{"F16E4M3E4M3", "_TN", "fp8, summed in f16", 8, 16, true},
    WgmmaTypes{"F16E4M3E5M2", "_TN", "fp8, summed in f16", 8, 16, true},
    WgmmaTypes{"F16E5M2E4M3", "_TN", "fp8, summed in f16", 8, 16, true},
    WgmmaTypes{"F16E5M2E5M2", "_TN", "fp8, summed in f16", 8, 16, true},
    WgmmaTypes{"S32S8S8", "_TN", "int8, summed in int32", 8, 32, false},
};

/// The layout of an operand in shared memory. All 128 threads see the whole tile, since a
/// wgmma takes a descriptor and no fragments.
std::string shared_operand(int rows, int k) {
  const std::string r = std::to_string(rows), columns = std::to_string(k);
  return "(128,(" + r + "," + columns + ")):(0,(1," + r + "))";
}
/// The layout of an operand in registers. Each warp has 16 of the 64 rows. In it a thread has `pair` neighbours (two of
/// 16 bits fill one register), the same of the row 8 below, and then the same 4 pairs further on, `repeats` times. That
/// is the layout of a warp's mma, repeated for four warps, one below the other.
std::string registers(int pair, int repeats) {
  const std::string p = std::to_string(pair), r = std::to_string(repeats);
  return "((4,8,4),(" + p + ",2," + r + ")):((" + std::to_string(64 * pair) + ",1,16),(64,8," +
         std::to_string(256 * pair) + "))";
}

void add_wgmma(std::vector<MmaAtom>& atoms, const WgmmaTypes& types) {
  const int k = 256 / types.bits;
  const Layout threads = read("128:1"), a_shared = read(shared_operand(64, k));
  const Layout a_registers =
      read(types.bits == 32 ? "((4,8,4),(2,2)):((64,1,16),(8,256))" : registers(32 / types.bits, 2));
  for (int n = 8; n <= 256; n += 8) {
    if (!types.every_width && n > 32 && n % 16 != 0) continue;
    const Layout b = read(shared_operand(n, k)), c = read(registers(2, n / 8));
    for (const bool shared : {true, false}) {
      const std::string depth = "x" + std::to_string(k) + "_" + types.name + (shared ? "_SS" : "_RS") + types.suffix;
      atoms.push_back({"SM90_64x" + std::to_string(n) + depth, "SM90_64xN" + depth, 64, n, k, threads,
                       shared ? a_shared : a_registers, b, c, types.bits, types.bits, types.bits_c,
                       std::string("wgmma of 128 threads: ") + types.what + "; A from " +
                           (shared ? "shared memory" : "registers") + ", B from shared memory"});
    }
  }
}

std::vector<MmaAtom> all_atoms() {
  std::vector<MmaAtom> atoms;
  for (const Row& row : kRows) atoms.push_back(atom_of(row));
  for (const WgmmaTypes& types : kWgmma) add_wgmma(atoms, types);
  return atoms;
}

}  // namespace

std::span<const MmaAtom> mma_atoms() {
  static const std::vector<MmaAtom> atoms = all_atoms();
  return atoms;
}

const MmaAtom* find_mma_atom(std::string_view name) { return find_atom(mma_atoms(), name); }

}  // namespace falchion::layout
