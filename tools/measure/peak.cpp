// tools/measure/peak.cpp: every kernel here is compiled for its level by a target
// attribute and called only where it can run.
#include "measure/peak.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <vector>

#include "cpu/threads.hpp"
#include "measure/measure.hpp"

#if defined(__x86_64__)
  #include <cpuid.h>
  #include <immintrin.h>
  #include <sys/syscall.h>
  #include <unistd.h>
#elif defined(__aarch64__)
  #include <arm_neon.h>
#endif

namespace falchion::tools {
namespace {

std::atomic<std::uint64_t> g_sink;  // keeps results alive

/// Independent sums, to cover a latency of 4 on 2 ports (x86: 12, which leaves registers for the factors among the 16
/// of AVX2 and SSE; with 16 sums AVX2 reaches only two thirds of its peak) and on 4 (Arm server cores: 16).
#define FALCHION_CHAINS_12(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#if defined(__aarch64__)
  #define FALCHION_CHAINS(X) FALCHION_CHAINS_12(X) X(12) X(13) X(14) X(15)
constexpr int kChains = 16;
#else
  #define FALCHION_CHAINS(X) FALCHION_CHAINS_12(X)
constexpr int kChains = 12;
#endif

/// Numbers in [0.5, 1.5) that no compiler can predict.
struct Seeds {
  float value[(kChains + 1) * 16];
  Seeds() {
    std::uint64_t x = 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
    for (float& v : value) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      v = 0.5F + static_cast<float>(x >> 40) * 0x1p-24F;
    }
  }
};

// x = x * a + b with a < 1 stays a normal number for ever. Named variables, since an array might stay in memory.
#define FALCHION_FMA_DECLARE(c) V x##c = LOAD(s.value + c * kLanes);
#define FALCHION_FMA_STEP(c) x##c = FMA(x##c, a, b);
#define FALCHION_FMA_SUM(c) x0 = FMA(x##c, a, x0);
#define FALCHION_FMA_BODY(n)                                                                     \
  const Seeds s;                                                                                 \
  const V a = SPLAT(s.value[kChains * kLanes] * 0.5F), b = SPLAT(s.value[kChains * kLanes + 1]); \
  FALCHION_CHAINS(FALCHION_FMA_DECLARE)                                                          \
  for (; n > 0; --n) { FALCHION_CHAINS(FALCHION_FMA_STEP) }                                      \
  FALCHION_CHAINS(FALCHION_FMA_SUM)                                                              \
  g_sink += static_cast<std::uint64_t>(FIRST(x0));

#if defined(__x86_64__)
__attribute__((target("avx512f"))) void fma_avx512(std::int64_t n) {
  using V = __m512;
  constexpr int kLanes = 16;
  #define LOAD _mm512_loadu_ps
  #define SPLAT _mm512_set1_ps
  #define FMA _mm512_fmadd_ps
  #define FIRST _mm512_cvtss_f32
  FALCHION_FMA_BODY(n)
  #undef LOAD
  #undef SPLAT
  #undef FMA
  #undef FIRST
}
// x + a . b, where a and b are pairs of equal numbers below 1.5: x grows, and is a normal number for ever.
__attribute__((target("avx512f"))) __m512 bf16_pairs(float x) {
  return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(std::bit_cast<std::uint32_t>(x) >> 16) * 0x10001));
}
__attribute__((target("avx512f,avx512bf16"))) void dot_avx512_bf16(std::int64_t n) {
  using V = __m512;
  constexpr int kLanes = 16;
  #define LOAD _mm512_loadu_ps
  #define SPLAT bf16_pairs
  #define FMA(x, y, z) _mm512_dpbf16_ps(x, (__m512bh)(y), (__m512bh)(z))
  #define FIRST(x) (_mm512_cvtss_f32(x) > 0)
  FALCHION_FMA_BODY(n)
  #undef LOAD
  #undef SPLAT
  #undef FMA
  #undef FIRST
}
__attribute__((target("avx2,fma"))) void fma_avx2(std::int64_t n) {
  using V = __m256;
  constexpr int kLanes = 8;
  #define LOAD _mm256_loadu_ps
  #define SPLAT _mm256_set1_ps
  #define FMA _mm256_fmadd_ps
  #define FIRST _mm256_cvtss_f32
  FALCHION_FMA_BODY(n)
  #undef LOAD
  #undef SPLAT
  #undef FMA
  #undef FIRST
}
void fma_base(std::int64_t n) {  // SSE2 has no fused form
  using V = __m128;
  constexpr int kLanes = 4;
  #define LOAD _mm_loadu_ps
  #define SPLAT _mm_set1_ps
  #define FMA(x, y, z) _mm_add_ps(_mm_mul_ps(x, y), z)
  #define FIRST _mm_cvtss_f32
  FALCHION_FMA_BODY(n)
  #undef LOAD
  #undef SPLAT
  #undef FMA
  #undef FIRST
}

/// A 2 x 2 block of accumulators, the shape every real kernel uses: two loads of A and two of B for four products.
__attribute__((target("amx-tile,amx-bf16"))) void amx_bf16(std::int64_t n) {
  struct alignas(64) Config {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t bytes[16] = {};
    std::uint8_t rows[16] = {};
  } config;
  for (int t = 0; t < 8; ++t) {
    config.bytes[t] = 64;
    config.rows[t] = 16;
  }
  alignas(64) std::uint16_t tiles[4][16 * 32];
  std::uint64_t x = 0x9E3779B97F4A7C15u;
  for (auto& tile : tiles)
    for (auto& v : tile) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      v = static_cast<std::uint16_t>((x >> 63 << 15) | 0x3F00u | (x >> 40 & 0x7Fu));  // +-[0.5, 1)
    }
  alignas(64) float sum[256];
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (; n > 0; --n) {
    _tile_loadd(4, tiles[0], 64);
    _tile_loadd(6, tiles[2], 64);
    _tile_loadd(7, tiles[3], 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, tiles[1], 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sum, 64);
  _tile_release();
  g_sink += static_cast<std::uint64_t>(sum[0] > 0);
}

bool amx_here() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  if (!(d >> 22 & 1) || !(d >> 24 & 1)) return false;  // AMX-BF16, AMX-TILE
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;     // ARCH_REQ_XCOMP_PERM, tile data: once a process
}
#elif defined(__aarch64__)
void fma_base(std::int64_t n) {
  using V = float32x4_t;
  constexpr int kLanes = 4;
  #define LOAD vld1q_f32
  #define SPLAT vdupq_n_f32
  #define FMA(x, y, z) vfmaq_f32(z, x, y)
  #define FIRST(x) vgetq_lane_f32(x, 0)
  FALCHION_FMA_BODY(n)
}
#else
void fma_base(std::int64_t n) {
  using V = float;
  constexpr int kLanes = 1;
  #define LOAD *
  #define SPLAT
  #define FMA(x, y, z) ((x) * (y) + (z))
  #define FIRST
  FALCHION_FMA_BODY(n)
}
#endif

struct Unit {
  void (*run)(std::int64_t) = nullptr;
  double flops = 0;  // of one iteration
};

Unit find_unit(const std::string& name) {
#if defined(__x86_64__)
  static const bool amx = amx_here();
  if (name == "amx" && amx) return {amx_bf16, 4.0 * 2 * 16 * 16 * 32};
  if (name == "avx512_bf16" && __builtin_cpu_supports("avx512bf16")) return {dot_avx512_bf16, 4.0 * kChains * 16};
  if (name == "avx512" && __builtin_cpu_supports("avx512f")) return {fma_avx512, 2.0 * kChains * 16};
  if (name == "avx2" && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {fma_avx2, 2.0 * kChains * 8};
  if (name == "generic") return {fma_base, 2.0 * kChains * 4};
#elif defined(__aarch64__)
  if (name == "neon" || name == "generic") return {fma_base, 2.0 * kChains * 4};
#else
  if (name == "generic") return {fma_base, 2.0 * kChains};
#endif
  return {};
}

/// Runs task(t) on the library's own `threads` workers. Returns the seconds from the first one's start to the last
/// one's end. The workers read the clock themselves, because without a spare core a waiting thread would wake up late
/// and the rate would be too low. They are the workers that the kernels run on, so after a read of all memory they are
/// awake, each on its core.
template <class Task>
double timed_on(int threads, const Task& task) {
  struct Shared {
    const Task& task;
    std::vector<Clock::time_point> begin, end;
  } shared{task, std::vector<Clock::time_point>(static_cast<std::size_t>(threads)), {}};
  shared.end = shared.begin;
  const cpu::Pool pool = cpu::default_pool(threads);
  pool.parallel_for(
      pool.self, threads,
      [](void* context, int t) {
        auto& s = *static_cast<Shared*>(context);
        s.begin[static_cast<std::size_t>(t)] = Clock::now();
        s.task(t);
        s.end[static_cast<std::size_t>(t)] = Clock::now();
      },
      &shared);
  const auto span = *std::max_element(shared.end.begin(), shared.end.end()) -
                    *std::min_element(shared.begin.begin(), shared.begin.end());
  return std::chrono::duration<double>(span).count();
}

}  // namespace

bool unit_here(const std::string& unit) { return find_unit(unit).run != nullptr; }

double measure_peak_flops(const std::string& name, int threads) {
  const Unit unit = find_unit(name);
  if (!unit.run) return 0;
  std::int64_t n =
      1 << 14;  // then as many as 20 ms take, which is long beside starting threads and too short to throttle
  const auto run = [&] { return timed_on(threads, [&](int) { unit.run(n); }); };
  for (double t = run(); t < 20e-3; t = run()) n = static_cast<std::int64_t>(n * std::clamp(25e-3 / t, 1.5, 16.0));
  double best = 1e9;
  for (int i = 0; i < 7; ++i) best = std::min(best, run());
  return unit.flops * static_cast<double>(n) * threads / best;
}

DramReader::DramReader(int threads) : buffer_(std::size_t{1} << 30), threads_(threads) {
  timed_on(threads_, [&](int t) {  // first touched by the thread that will read it
    const std::size_t part = buffer_.size() / static_cast<std::size_t>(threads_);
    std::memset(buffer_.data() + part * static_cast<std::size_t>(t), t + 1, part);
  });
}

double DramReader::read() {
  const std::size_t part = buffer_.size() / static_cast<std::size_t>(threads_) / 128 * 16;  // 128-byte steps of 8 words
  return timed_on(threads_, [&](int t) {
    const std::uint64_t* p = buffer_.as<std::uint64_t>() + part * static_cast<std::size_t>(t);
    std::uint64_t sum[16] = {};
    for (std::size_t i = 0; i < part; i += 16)
      for (std::size_t j = 0; j < 16; ++j) sum[j] += p[i + j];
    for (const std::uint64_t s : sum) g_sink += s;
  });
}

double DramReader::best_bytes_per_second(int passes) {
  double best = 1e9;
  for (int i = 0; i < passes; ++i) best = std::min(best, read());
  return bytes() / best;
}

}  // namespace falchion::tools
