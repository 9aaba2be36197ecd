// bench/overlap_probe.cu: what ordinary instructions cost while the tensor cores of the SM multiply, and what they cost
// the tensor cores. One warpgroup multiplies without a pause, and a second one runs one kind of instruction, so that
// each scheduler of the SM has one warp of either. docs/design/sm90_forward.md, "Why no maxima", draws conclusions.
//
//   nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a -o overlap_probe bench/overlap_probe.cu &&
//   ./overlap_probe
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

namespace {

constexpr int kProducts = 400, kChains = 16, kRepeats = 8;

/// The products of the first warpgroup: none; with both operands in shared memory (S = Q K^T); with A in registers
/// (O += P V); eight of one and then eight of the other, as attention has them.
enum class Products { none, shared, registers, both };
enum class Work { nothing, ex2, fma, fma_of_three, add, max, convert, softmax };

/// 16 independent instructions (or groups of them) of one kind.
template <Work kWork>
__device__ __forceinline__ void work(float (&x)[kChains], float c) {
#pragma unroll
  for (int i = 0; i < kChains; ++i) {
    float& other = x[(i + 5) % kChains];
    if constexpr (kWork == Work::ex2) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[i]));
    if constexpr (kWork == Work::fma) asm volatile("fma.rn.ftz.f32 %0, %0, %1, %1;" : "+f"(x[i]) : "f"(c));
    if constexpr (kWork == Work::fma_of_three)
      asm volatile("fma.rn.ftz.f32 %0, %0, %1, %2;" : "+f"(x[i]) : "f"(other), "f"(x[(i + 10) % kChains]));
    if constexpr (kWork == Work::add) asm volatile("add.ftz.f32 %0, %0, %1;" : "+f"(x[i]) : "f"(other));
    if constexpr (kWork == Work::max) asm volatile("max.ftz.f32 %0, %0, %1;" : "+f"(x[i]) : "f"(other));
    if constexpr (kWork == Work::convert) {
      std::uint32_t pair;
      asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x[i]), "f"(other));
      x[i] = __uint_as_float(pair);
    }
    if constexpr (kWork == Work::softmax)
      asm volatile(
          "{\n"
          ".reg .f32 t;\n"
          "fma.rn.ftz.f32 t, %0, %2, %3;\n"
          "ex2.approx.ftz.f32 %0, t;\n"
          "add.ftz.f32 %1, %1, %0;\n"
          "}\n"
          : "+f"(x[i]), "+f"(x[(i + 8) % kChains])
          : "f"(c), "f"(x[(i + 3) % kChains]));
  }
}

/// A descriptor of a tile in shared memory, 128 bytes wide and swizzled, eight rows after each other.
__device__ __forceinline__ std::uint64_t descriptor(std::uint32_t address) {
  return std::uint64_t{(address & 0x3FFFF) >> 4} | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

#define FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)
#define ACCUMULATORS                                                                                                 \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"  \
  "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57," \
  "%58,%59,%60,%61,%62,%63}"
__device__ __forceinline__ void multiply_shared(float (&d)[64], std::uint64_t a, std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " ACCUMULATORS ", %64, %65, 1, 1, 1, 0, 0;"
               : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48)
               : "l"(a), "l"(b));
}
__device__ __forceinline__ void multiply_registers(float (&d)[64], const std::uint32_t (&a)[4], std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " ACCUMULATORS
               ", {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
               : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ unsigned clock_now() {
  unsigned cycles;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(cycles));
  return cycles;
}

struct Result {
  unsigned product_cycles, work_cycles, rounds;
};

template <Products kKind>
__device__ __forceinline__ void multiply(std::uint32_t base, Result* out) {
  float s[64] = {}, o[64] = {};
  const std::uint32_t p[4] = {0x3F803F80 ^ threadIdx.x, 0x3F803F80, 0x3F803F80, 0x3F813F82};
  const unsigned start = clock_now();
#pragma unroll 1
  for (int r = 0; r < kProducts && kKind != Products::none; ++r) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    if constexpr (kKind != Products::registers) {
#pragma unroll
      for (int k = 0; k < 8; ++k) multiply_shared(s, descriptor(base + k * 32), descriptor(base + 16384 + k * 32));
      asm volatile("wgmma.commit_group.sync.aligned;");
    }
    if constexpr (kKind != Products::shared) {
#pragma unroll
      for (int k = 0; k < 8; ++k) multiply_registers(o, p, descriptor(base + 16384 + k * 32));
      asm volatile("wgmma.commit_group.sync.aligned;");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  const unsigned cycles = clock_now() - start;
  float keep = 0;
  for (int i = 0; i < 64; ++i) keep += s[i] + o[i];
  if (threadIdx.x == 0 || keep == 1.25f) out->product_cycles = cycles;
}

template <Products kKind, Work kWork>
__global__ void __launch_bounds__(256, 1) probe(Result* out, float c) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ volatile int done;
  if (threadIdx.x == 0) done = 0;
  for (unsigned i = threadIdx.x; i < 16384; i += 256)  // numbers near 1 whose last bits differ
    reinterpret_cast<std::uint32_t*>(memory)[i] = 0x3F803F80 + (i * 2654435761u & 0x007F007F);
  asm volatile("fence.proxy.async;");
  __syncthreads();
  if (threadIdx.x < 128) {
    multiply<kKind>(static_cast<std::uint32_t>(__cvta_generic_to_shared(memory)), out);
    done = 1;
    return;
  }
  float x[kChains];
  for (int i = 0; i < kChains; ++i) x[i] = c * static_cast<float>(i + static_cast<int>(threadIdx.x));
  const unsigned start = clock_now();
  unsigned rounds = 0;
#pragma unroll 1
  for (; kKind == Products::none ? rounds < kProducts : done == 0; ++rounds) {
#pragma unroll
    for (int i = 0; i < kRepeats; ++i) work<kWork>(x, c);
  }
  const unsigned cycles = clock_now() - start;
  float keep = 0;
  for (const float y : x) keep += y;
  if (threadIdx.x == 128 || keep == 1.25f) {
    out->work_cycles = cycles;
    out->rounds = rounds;
  }
}

template <Products kKind, Work kWork>
void column(Result* out) {
  constexpr int kShared = 65536;
  cudaFuncSetAttribute(probe<kKind, kWork>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  Result result{};
  for (int i = 0; i < 2; ++i) {  // the first launch warms up
    probe<kKind, kWork><<<1, 256, kShared>>>(out, 1e-3f);
    cudaMemcpy(&result, out, sizeof result, cudaMemcpyDeviceToHost);
  }
  const double products = kProducts * (kKind == Products::both ? 16. : 8.);
  const double each = result.rounds == 0 ? 0 : result.work_cycles / (double{kRepeats * kChains} * result.rounds);
  if (kKind == Products::none)
    std::printf("%8.2f        ", each);
  else
    std::printf("%8.2f (%5.1f)", each, result.product_cycles / products);
}

template <Work kWork>
void row(const char* name, Result* out) {
  std::printf("%-20s", name);
  column<Products::none, kWork>(out);
  column<Products::shared, kWork>(out);
  column<Products::registers, kWork>(out);
  column<Products::both, kWork>(out);
  std::printf("\n");
}

}  // namespace

int main() {
  Result* out = nullptr;
  if (cudaMalloc(&out, sizeof(Result)) != cudaSuccess) {
    std::printf("overlap_probe needs a Hopper GPU\n");
    return 1;
  }
  std::printf(
      "cycles of an instruction of one warp per scheduler (and of a product 64 x 128 x 16 beside "
      "it)\n%-20s%8s%22s%14s%14s\n",
      "", "alone", "Q K^T", "P V", "both");
  row<Work::nothing>("nothing", out);
  row<Work::ex2>("ex2", out);
  row<Work::fma>("fma, one register", out);
  row<Work::fma_of_three>("fma, three registers", out);
  row<Work::add>("add", out);
  row<Work::max>("max", out);
  row<Work::convert>("convert two to bf16", out);
  row<Work::softmax>("fma, ex2, add", out);
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) std::printf("overlap_probe: %s\n", cudaGetErrorString(error));
  return error != cudaSuccess;
}
