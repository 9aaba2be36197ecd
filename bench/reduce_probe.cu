// bench/reduce_probe.cu: what it costs Hopper to add f32 tiles of shared memory to global memory, as the gradient of q
// is summed in the backward pass of attention: how many bytes a clock one SM and all SMs add, whether loads contend
// with that, how long it takes until the next CTA may add to the same tile where the order is fixed, and what stores
// into the shared memory of a neighbouring CTA cost. docs/design/sm90_backward.md has the figures.
//
//   nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a -o reduce_probe bench/reduce_probe.cu && ./reduce_probe
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

constexpr int kRounds = 2000, kTile = 64 * 128 * 4;  // bytes of a tile of 64 queries of head dim 128

__device__ __forceinline__ std::uint32_t shared_address(const void* x) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(x));
}

/// Adds `bytes` of shared memory to global memory.
__device__ __forceinline__ void bulk_add(float* to, const void* from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until at most kLeft groups have yet to read shared memory, or (kDone) to be written.
template <int kLeft, bool kDone>
__device__ __forceinline__ void wait() {
  if constexpr (kDone)
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kLeft) : "memory");
  else
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kLeft) : "memory");
}

__device__ __forceinline__ void init(std::uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)));
}
__device__ __forceinline__ void load(void* to, const void* from, int bytes, std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void wait(std::uint64_t* barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

/// Thread 0 adds a tile in each round, with two in flight; CTA n begins at tile n * step of `tiles`. Thread 32 loads
/// `loaded` tiles for each that is added.
__global__ void add_tiles(float* sums, int tiles, int step, const float* inputs, int loaded, bool adds,
                          long long* cycles) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ std::uint64_t barriers[2];
  for (int i = threadIdx.x; i < 4 * kTile / 4; i += blockDim.x) reinterpret_cast<float*>(memory)[i] = 0;
  if (threadIdx.x == 0) {
    init(&barriers[0]);
    init(&barriers[1]);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const long long start = clock64();
  if (threadIdx.x == 0 && adds) {
    for (int round = 0; round < kRounds; ++round) {
      const int tile = (static_cast<int>(blockIdx.x) * step + round) % tiles;
      bulk_add(sums + static_cast<std::size_t>(tile) * (kTile / 4), memory + round % 2 * kTile, kTile);
      commit();
      wait<1, false>();
    }
    wait<0, true>();
  }
  if (threadIdx.x == 32) {
    for (int round = 0; round < kRounds * loaded; ++round) {
      if (round >= 2) wait(&barriers[round % 2], round / 2 - 1 & 1);
      load(memory + (2 + round % 2) * kTile, inputs + static_cast<std::size_t>(round % 256) * (kTile / 4), kTile,
           &barriers[round % 2]);
    }
    for (int round = kRounds * loaded - (loaded > 0 ? 2 : 0); round < kRounds * loaded; ++round)
      wait(&barriers[round % 2], round / 2 & 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - start;
}

/// The CTAs add to one tile in a fixed order, again and again.
__global__ void add_in_order(float* sums, int bytes, unsigned* turn, int rounds) {
  extern __shared__ __align__(1024) unsigned char memory[];
  if (threadIdx.x != 0) return;
  for (int round = 0; round < rounds; ++round) {
    const unsigned mine = round * gridDim.x + blockIdx.x;
    unsigned now;
    do { asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory"); } while (now != mine);
    if (bytes > 0) {
      bulk_add(sums, memory, bytes);
      commit();
      wait<0, true>();
    }
    asm volatile("fence.proxy.async.global;" ::: "memory");
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(turn), "r"(mine + 1) : "memory");
  }
}

/// All threads add vectors of four floats from registers.
__global__ void add_vectors(float* sums, int tiles, int step, long long* cycles) {
  const long long start = clock64();
  for (int round = 0; round < kRounds / 4; ++round) {
    const int tile = (static_cast<int>(blockIdx.x) * step + round) % tiles;
    float* const to = sums + static_cast<std::size_t>(tile) * (kTile / 4);
    for (int i = threadIdx.x; i < kTile / 16; i += blockDim.x)
      asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %1, %1, %1};" ::"l"(to + 4 * i), "f"(0.f) : "memory");
  }
  __syncthreads();
  if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - start;
}

/// All threads of both CTAs of a pair store 16 bytes at a time into the other's shared memory.
__global__ void __cluster_dims__(2, 1, 1) store_to_neighbour(long long* cycles) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto cluster = cooperative_groups::this_cluster();
  auto* const other = cluster.map_shared_rank(reinterpret_cast<float4*>(memory), cluster.block_rank() ^ 1);
  cluster.sync();
  const long long start = clock64();
  for (int round = 0; round < kRounds; ++round) {
    for (int i = threadIdx.x; i < kTile / 16; i += blockDim.x) other[i] = make_float4(0, 0, 0, 0);
  }
  cluster.sync();
  if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - start;
}

class Probe {
 public:
  Probe() {
    cudaMalloc(&sums_, std::size_t{4096} * kTile);
    cudaMalloc(&inputs_, std::size_t{256} * kTile);
    cudaMalloc(&cycles_, sizeof(long long) * 1024);
    cudaMalloc(&turn_, 4);
    cudaMemset(inputs_, 0, std::size_t{256} * kTile);
    for (auto* kernel : {reinterpret_cast<const void*>(add_tiles), reinterpret_cast<const void*>(add_in_order),
                         reinterpret_cast<const void*>(store_to_neighbour)})
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 4 * kTile);
  }
  /// Prints bytes added, and loaded, for each clock of an SM.
  void add(int ctas, int tiles, int step, int loaded, bool adds, const char* what) {
    for (int i = 0; i < 2; ++i) add_tiles<<<ctas, 64, 4 * kTile>>>(sums_, tiles, step, inputs_, loaded, adds, cycles_);
    const double each = static_cast<double>(kRounds) * kTile / longest(ctas);
    std::printf("%4d CTAs  %-58s %6.1f added %6.1f loaded\n", ctas, what, adds ? each : 0., each * loaded);
  }
  void add_registers(int ctas, int threads, int tiles, int step, const char* what) {
    for (int i = 0; i < 2; ++i) add_vectors<<<ctas, threads>>>(sums_, tiles, step, cycles_);
    std::printf("%4d CTAs  %-58s %6.1f added\n", ctas, what, static_cast<double>(kRounds / 4) * kTile / longest(ctas));
  }
  void order(int bytes) {
    constexpr int kTurns = 50, kCtas = 132;
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    float ms = 0;
    for (int i = 0; i < 2; ++i) {
      cudaMemset(turn_, 0, 4);
      cudaEventRecord(begin);
      add_in_order<<<kCtas, 32, 2 * kTile>>>(sums_, bytes, turn_, kTurns);
      cudaEventRecord(end);
      cudaEventSynchronize(end);
      cudaEventElapsedTime(&ms, begin, end);
    }
    std::printf("  from one CTA's turn to the next one's, %5d bytes added: %5.0f ns\n", bytes,
                ms * 1e6 / kTurns / kCtas);
  }
  void neighbour(int threads) {
    for (int i = 0; i < 2; ++i) store_to_neighbour<<<132, threads, 4 * kTile>>>(cycles_);
    std::printf("  %4d threads store into the neighbour: %6.1f bytes a clock of each SM\n", threads,
                static_cast<double>(kRounds) * kTile / longest(132));
  }

 private:
  double longest(int ctas) {
    std::vector<long long> cycles(static_cast<std::size_t>(ctas));
    cudaMemcpy(cycles.data(), cycles_, sizeof(long long) * cycles.size(), cudaMemcpyDeviceToHost);
    return static_cast<double>(*std::max_element(cycles.begin(), cycles.end()));
  }

  float *sums_ = nullptr, *inputs_ = nullptr;
  long long* cycles_ = nullptr;
  unsigned* turn_ = nullptr;
};

}  // namespace

int main() {
  Probe probe;
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    std::printf("reduce_probe needs a Hopper GPU: %s\n", cudaGetErrorString(error));
    return 1;
  }
  std::printf("bulk adds of 32 KB from shared memory, bytes a clock of each SM\n");
  for (const int ctas : {1, 2, 8, 33, 66, 132}) probe.add(ctas, 4, 4, 0, true, "4 tiles for all");
  for (const int ctas : {1, 8, 66, 132}) probe.add(ctas, 528, 4, 0, true, "528 tiles (17 MB), 4 CTAs apart");
  probe.add(132, 2048, 16, 0, true, "2048 tiles (67 MB)");
  probe.add(132, 528, 4, 1, true, "528 tiles, and one is loaded for each");
  probe.add(132, 528, 4, 2, true, "528 tiles, and two are loaded for each");
  probe.add(132, 528, 4, 1, false, "loads alone");
  std::printf("adds of 16 bytes from registers, bytes a clock of each SM\n");
  for (const int ctas : {1, 132}) {
    probe.add_registers(ctas, 128, 528, 4, "128 threads, 528 tiles");
    probe.add_registers(ctas, 256, 528, 4, "256 threads, 528 tiles");
  }
  std::printf("adds to one tile in a fixed order\n");
  for (const int bytes : {0, 1024, 8192, 16384, 32768}) probe.order(bytes);
  std::printf("pairs of CTAs\n");
  for (const int threads : {128, 256, 512}) probe.neighbour(threads);
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) std::printf("reduce_probe: %s\n", cudaGetErrorString(error));
  return error != cudaSuccess;
}
