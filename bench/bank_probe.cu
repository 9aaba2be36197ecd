// bench/bank_probe.cu: accesses to shared memory, one a kernel, to hold the hardware's counters against the model of
// `falchion layout banks`. bench/bank_probe.py runs it under ncu and prints both. By hand:
//   nvcc -std=c++17 -O2 -arch=sm_90 -cudart static -o bank_probe bench/bank_probe.cu && ./bank_probe
// It prints a line a kernel, in the order of the launches: name, accesses of a warp, cycles from the first to the last.
#include <cuda_runtime.h>
#include <cstdint>
#include <cstdio>

namespace {

constexpr unsigned kWarps = 4, kAccessesAWarp = 4096, kSharedBytes = 32768;

// ---- Where an element lies: (row, column) -> offset, in elements ----------------------------------------------------

template <unsigned kStride>
struct RowMajor {
  static __device__ unsigned offset(unsigned row, unsigned column) { return row * kStride + column; }
};
/// Returns the offset under Sw<kBits,kBase,kShift> o (a panel of rows of kStride).
template <int kBits, int kBase, int kShift, unsigned kStride>
struct Swizzled {
  static __device__ unsigned offset(unsigned row, unsigned column) {
    const unsigned linear = row * kStride + column;
    return linear ^ ((linear >> kShift) & (((1u << kBits) - 1) << kBase));
  }
};
/// Returns the offset in FlashAttention-2's sQ: Sw<3,3,3> o ((_8,_16),(_64,_2)):((_64,_512),(_1,_8192)), which has two
/// pages of 64 columns.
struct TwoPages {
  static __device__ unsigned offset(unsigned row, unsigned column) {
    return Swizzled<3, 3, 3, 64>::offset(row, column % 64) + column / 64 * 8192;
  }
};

// ---- What a warp does: the lane's byte address, and the instruction -------------------------------------------------

/// The matrices follow one another down kRows rows first, and then along the columns.
template <class Place, unsigned kRows>
struct LdmatrixX4 {
  static __device__ unsigned address(unsigned lane) { return 2 * Place::offset(lane % kRows, lane / kRows * 8); }
  static __device__ unsigned run(unsigned address, const void*, unsigned) {
    unsigned a, b, c, d;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(address)
                 : "memory");
    return a ^ b ^ c ^ d;
  }
};

/// A lane takes 16 bytes, and kThreadsARow lanes lie beside each other in a row.
template <class Place, unsigned kThreadsARow>
struct Rows16 {
  static __device__ unsigned address(unsigned lane) {
    return 2 * Place::offset(lane / kThreadsARow, lane % kThreadsARow * 8);
  }
};
template <class Place, unsigned kThreadsARow>
struct StoreV4 : Rows16<Place, kThreadsARow> {
  static __device__ unsigned run(unsigned address, const void*, unsigned value) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%1,%1,%1};" ::"r"(address), "r"(value) : "memory");
    return value;
  }
};
/// This copies from a matrix of 128 columns in global memory, as a tile of Q is read.
template <class Place, unsigned kThreadsARow>
struct CpAsync16 : Rows16<Place, kThreadsARow> {
  static __device__ unsigned run(unsigned address, const void* matrix, unsigned) {
    const unsigned lane = threadIdx.x % 32, row = lane / kThreadsARow, column = lane % kThreadsARow * 8;
    const char* source = static_cast<const char*>(matrix) + 2 * (row * 128 + column);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(source) : "memory");
    return 0;
  }
};

/// This is the accumulator of an mma, as pairs of 16 bits. A lane has row lane / 4, and columns 2 (lane % 4) and the
/// next.
template <class Place>
struct StoreAccumulator {
  static __device__ unsigned address(unsigned lane) { return 2 * Place::offset(lane / 4, lane % 4 * 2); }
  static __device__ unsigned run(unsigned address, const void*, unsigned value) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
    return value;
  }
};

/// This reads a column of a 32x32 matrix of f32.
template <class Place>
struct LoadColumn {
  static __device__ unsigned address(unsigned lane) { return 4 * Place::offset(lane, 0); }
  static __device__ unsigned run(unsigned address, const void*, unsigned) {
    unsigned a;
    asm volatile("ld.volatile.shared.b32 %0, [%1];" : "=r"(a) : "r"(address) : "memory");
    return a;
  }
};

/// A lane takes 8 or 16 bytes, one lane behind the other.
struct LoadV2Line {
  static __device__ unsigned address(unsigned lane) { return 8 * lane; }
  static __device__ unsigned run(unsigned address, const void*, unsigned) {
    unsigned a, b;
    asm volatile("ld.volatile.shared.v2.b32 {%0,%1}, [%2];" : "=r"(a), "=r"(b) : "r"(address) : "memory");
    return a ^ b;
  }
};
struct LoadV4Line {
  static __device__ unsigned address(unsigned lane) { return 16 * lane; }
  static __device__ unsigned run(unsigned address, const void*, unsigned) {
    unsigned a, b, c, d;
    asm volatile("ld.volatile.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(address)
                 : "memory");
    return a ^ b ^ c ^ d;
  }
};
/// Lanes 2i and 2i + 1 want the same banks. Four wavefronts could serve the warp if its phases did not consist of
/// neighbours.
struct LoadV4Pairs : LoadV4Line {
  static __device__ unsigned address(unsigned lane) {
    return 16 * (lane / 2 % 8) + 128 * (lane % 2) + 256 * (lane / 16);
  }
};

// ---- The kernel, and the list of them -------------------------------------------------------------------------------

/// step is 0, but the compiler does not know that. So it can neither hoist an access out of the loop nor drop one.
template <class Access>
__global__ void probe(const void* matrix, unsigned step, unsigned* sink, long long* cycles) {
  __shared__ __align__(1024) unsigned char shared[kSharedBytes];
  unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared)) + Access::address(threadIdx.x % 32);
  unsigned value = threadIdx.x;
  __syncthreads();
  const long long start = clock64();
#pragma unroll 8
  for (unsigned i = 0; i < kAccessesAWarp; ++i) {
    value ^= Access::run(address, matrix, value);
    address += step;
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) *cycles = clock64() - start;
  sink[threadIdx.x] = value;
}

struct Probe {
  const char* name;
  void (*kernel)(const void*, unsigned, unsigned*, long long*);
};
const Probe kProbes[] = {
    {"ldmatrix_x4_row_major", probe<LdmatrixX4<RowMajor<128>, 16>>},
    {"ldmatrix_x4_swizzled", probe<LdmatrixX4<TwoPages, 16>>},
    {"ldmatrix_x4_padded", probe<LdmatrixX4<RowMajor<136>, 16>>},
    {"ldmatrix_x4_panel_32", probe<LdmatrixX4<RowMajor<32>, 8>>},
    {"ldmatrix_x4_panel_32_sw233", probe<LdmatrixX4<Swizzled<2, 3, 3, 32>, 8>>},
    {"ldmatrix_x4_panel_32_sw333", probe<LdmatrixX4<Swizzled<3, 3, 3, 32>, 8>>},
    {"store_16b_8_a_row_row_major", probe<StoreV4<RowMajor<128>, 8>>},
    {"store_16b_8_a_row_swizzled", probe<StoreV4<TwoPages, 8>>},
    {"store_16b_8_a_row_padded", probe<StoreV4<RowMajor<136>, 8>>},
    {"store_16b_16_a_row_swizzled", probe<StoreV4<TwoPages, 16>>},
    {"cp_async_8_a_row_row_major", probe<CpAsync16<RowMajor<128>, 8>>},
    {"cp_async_8_a_row_swizzled", probe<CpAsync16<TwoPages, 8>>},
    {"cp_async_8_a_row_padded", probe<CpAsync16<RowMajor<136>, 8>>},
    {"cp_async_16_a_row_swizzled", probe<CpAsync16<TwoPages, 16>>},
    {"accumulator_store_row_major", probe<StoreAccumulator<RowMajor<128>>>},
    {"accumulator_store_swizzled", probe<StoreAccumulator<TwoPages>>},
    {"accumulator_store_padded", probe<StoreAccumulator<RowMajor<136>>>},
    {"f32_column_row_major", probe<LoadColumn<RowMajor<32>>>},
    {"f32_column_padded", probe<LoadColumn<RowMajor<33>>>},
    {"f32_column_sw505", probe<LoadColumn<Swizzled<5, 0, 5, 32>>>},
    {"load_8b_line", probe<LoadV2Line>},
    {"load_16b_line", probe<LoadV4Line>},
    {"load_16b_pairs", probe<LoadV4Pairs>},
};

bool failed(cudaError_t error, const char* what) {
  if (error != cudaSuccess) std::fprintf(stderr, "bank_probe: %s: %s\n", what, cudaGetErrorString(error));
  return error != cudaSuccess;
}

}  // namespace

int main() {
  void* matrix = nullptr;
  unsigned* sink = nullptr;
  long long* cycles = nullptr;
  if (failed(cudaMalloc(&matrix, kSharedBytes), "memory") || failed(cudaMalloc(&sink, 32 * kWarps * 4), "memory") ||
      failed(cudaMalloc(&cycles, sizeof *cycles), "memory") || failed(cudaMemset(matrix, 0, kSharedBytes), "memset"))
    return 1;
  std::printf("name,accesses,cycles\n");
  for (const Probe& p : kProbes) {
    p.kernel<<<1, 32 * kWarps>>>(matrix, 0u, sink, cycles);
    long long took = 0;
    if (failed(cudaGetLastError(), p.name) ||
        failed(cudaMemcpy(&took, cycles, sizeof took, cudaMemcpyDeviceToHost), p.name))
      return 1;
    std::printf("%s,%u,%lld\n", p.name, kWarps * kAccessesAWarp, took);
  }
  return 0;
}
