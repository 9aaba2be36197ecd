// src/cpu/levels.cpp: cpuid lists the features of the CPU, xgetbv lists the registers that the operating system saves,
// and arch_prctl requests permission to use AMX tiles.
#include "cpu/levels.hpp"

#include <cstdint>
#include <cstdlib>

#if defined(__x86_64__)
  #include <cpuid.h>
  #if defined(__linux__)
    #include <sys/syscall.h>
    #include <unistd.h>
  #endif
#endif

namespace falchion::cpu {
namespace {

#if defined(__x86_64__)

struct CpuId {
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
  CpuId(std::uint32_t leaf, std::uint32_t subleaf) {
    if (__get_cpuid_count(leaf, subleaf, &a, &b, &c, &d) == 0) a = b = c = d = 0;
  }
};
bool bit(std::uint32_t word, int i) { return (word >> i & 1) != 0; }

std::uint64_t saved_state() {
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

/// The reason why this CPU cannot run each level; empty if it can.
struct Missing {
  std::string avx2, avx512, vnni, avx512_bf16, amx, amx_emulated;
};

bool tiles_permitted() {
  #if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM holds for the whole process
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  #else
  return false;
  #endif
}

Missing find_missing() {
  const CpuId basic(1, 0), extended(7, 0), extended1(7, 1), more(0x80000001u, 0);
  const std::uint64_t saved = bit(basic.c, 27) ? saved_state() : 0;  // OSXSAVE
  constexpr std::uint64_t kYmm = 0x6, kZmm = 0xE6, kTiles = 0x60000;
  Missing missing;

  // Highway's AVX2 target is compiled with AVX, FMA, F16C, AVX2, BMI, BMI2, LZCNT and MOVBE.
  const bool avx2 = bit(basic.c, 28) && bit(basic.c, 12) && bit(basic.c, 29) && bit(extended.b, 5) &&
                    bit(extended.b, 3) && bit(extended.b, 8) && bit(more.c, 5) && bit(basic.c, 22);
  if (!avx2) missing.avx2 = "this CPU has no AVX2 with FMA, F16C and BMI";
  if (avx2 && (saved & kYmm) != kYmm) missing.avx2 = "the operating system does not save ymm registers";

  const bool avx512 = bit(extended.b, 16) && bit(extended.b, 17) && bit(extended.b, 28) && bit(extended.b, 30) &&
                      bit(extended.b, 31);  // F, DQ, CD, BW, VL
  missing.avx512 = missing.avx2;
  if (missing.avx512.empty() && !avx512) missing.avx512 = "this CPU has no AVX-512 F, DQ, CD, BW and VL";
  if (missing.avx512.empty() && (saved & kZmm) != kZmm) {
    missing.avx512 = "the operating system does not save zmm registers";
  }

  missing.vnni = missing.avx512;
  if (missing.vnni.empty() && !bit(extended.c, 11)) missing.vnni = "this CPU has no AVX512_VNNI";

  // vdpbf16ps makes twice as many products as FMAs do on Zen 5, but half as many on Emerald Rapids (90 to 113 and 180
  // to 220 GFLOP/s a core): a CPU with AMX whose tiles may not be used takes avx512.
  const bool amx = bit(extended.d, 24) && bit(extended.d, 25) && bit(extended.d, 22);  // AMX-TILE, -INT8, -BF16
  missing.avx512_bf16 = missing.vnni;
  if (missing.avx512_bf16.empty() && !bit(extended1.a, 5)) missing.avx512_bf16 = "this CPU has no AVX512_BF16";
  if (missing.avx512_bf16.empty() && amx) missing.avx512_bf16 = "on CPUs with AMX it is slower than avx512";

  // The files of level amx are compiled for Sapphire Rapids, and those of amx_emulated for the extensions that Zen 4
  // has too. The compiler may use any of these extensions by itself, so all of them are checked here.
  const bool zen4 = bit(extended.b, 21) && bit(extended.c, 1) && bit(extended.c, 6) && bit(extended.c, 8) &&
                    bit(extended.c, 11) && bit(extended.c, 12) &&
                    bit(extended.c, 14);  // IFMA, VBMI, VBMI2, GFNI, VNNI, BITALG, VPOPCNTDQ
  const bool sapphire = zen4 && bit(extended.d, 23) && bit(extended1.a, 4);  // FP16, AVX_VNNI
  missing.amx_emulated = missing.avx512;
  if (missing.amx_emulated.empty() && !bit(extended1.a, 5)) missing.amx_emulated = "this CPU has no AVX512_BF16";
  if (missing.amx_emulated.empty() && !zen4) missing.amx_emulated = "this CPU has less of AVX-512 than Zen 4";

  if (!amx) missing.amx = "this CPU has no AMX";
  if (amx) missing.amx = missing.amx_emulated;
  if (missing.amx.empty() && !sapphire) missing.amx = "this CPU has less of AVX-512 than Sapphire Rapids";
  if (missing.amx.empty() && (saved & kTiles) != kTiles) missing.amx = "the operating system does not save AMX tiles";
  if (missing.amx.empty() && !tiles_permitted()) missing.amx = "the operating system refuses AMX tiles to this process";
  return missing;
}

std::vector<Level> find_levels() {
  const Missing missing = find_missing();
  const auto level = [](const char* name, const std::string& why_not) { return Level{name, why_not.empty(), why_not}; };
  return {level("amx", missing.amx),   level("avx512_bf16", missing.avx512_bf16),
          level("vnni", missing.vnni), level("avx512", missing.avx512),
          level("avx2", missing.avx2), level("neon", "not an ARM"),
          level("generic", ""),        level("amx_emulated", missing.amx_emulated)};
}

#else

std::vector<Level> find_levels() {
  #if defined(__aarch64__)
  const std::string no_neon;  // every AArch64 has it
  #else
  const std::string no_neon = "not an AArch64";
  #endif
  const std::string no_x86 = "not an x86-64";
  return {{"amx", false, no_x86},    {"avx512_bf16", false, no_x86}, {"vnni", false, no_x86},
          {"avx512", false, no_x86}, {"avx2", false, no_x86},        {"neon", no_neon.empty(), no_neon},
          {"generic", true, ""},     {"amx_emulated", false, no_x86}};
}

#endif

}  // namespace

const std::vector<Level>& cpu_levels() {
  static const std::vector<Level> levels = find_levels();  // made once, also when several threads call at a time
  return levels;
}

const char* level_from_environment() {
  const char* asked = std::getenv("FALCHION_CPU");
  return asked != nullptr && *asked != '\0' ? asked : nullptr;
}

std::string usable_levels() {
  std::string names;
  for (const Level& level : cpu_levels()) {
    if (level.usable) names += (names.empty() ? "" : ", ") + std::string(level.name);
  }
  return names;
}

}  // namespace falchion::cpu
