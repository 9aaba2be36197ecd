// src/ladder/gemm/13_stream_k.cu: the roles of step 11 and the store of step 12, and where the last wave of tiles would
// not fill the device, its tiles are cut along k (Osama and others, Stream-K, arXiv:2301.03598). It runs on sm_90
// alone.
#include "base/host_device.hpp"
#include "ladder/gemm/shares.hpp"
#include "ladder/gemm/store_tile.cuh"

namespace falchion::ladder::gemm::on_gpu {
namespace {

using Tile = HopperTile<128, 256, kConsumers, 4>;

struct Shared {
  Tile::Ring ring;
  Outgoing<2> out[kConsumers];
};

/// The sums of a part that does not begin its tile, in memory, in the order of the registers. A block leaves no more
/// than one part, and each consumer has a place and a flag of its own.
class Parts {
 public:
  static constexpr int kSums = TileProduct<Tile>::kSums, kPlaces = kMostClusters * kCluster * kConsumers;
  static constexpr std::size_t kFlagBytes = kPlaces * sizeof(int);
  static constexpr std::size_t kBytes = kFlagBytes + sizeof(float) * 128 * kSums * kPlaces;
  explicit Parts(void* memory)
      : flags_(static_cast<int*>(memory)), sums_(reinterpret_cast<float*>(static_cast<char*>(memory) + kFlagBytes)) {}
  int* flags() const { return flags_; }

  FALCHION_DEVICE void leave(TileProduct<Tile>& product, int cluster, int warpgroup) const {
    const int at = place(cluster, warpgroup);
    float* const to = sums_ + std::int64_t{at} * 128 * kSums + threadIdx.x % 128;
    product.for_each([&](int i, float sum) { to[i * 128] = sum; });
    sm90::sync_threads<128>(1 + warpgroup);
    if (threadIdx.x % 128 == 0)
      asm volatile("fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%0], 1;" ::"l"(flags_ + at) : "memory");
  }
  FALCHION_DEVICE void add(TileProduct<Tile>& product, int cluster, int warpgroup) const {
    const int at = place(cluster, warpgroup);
    if (threadIdx.x % 128 == 0) {
      int there = 0;
      while (there == 0)
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(flags_ + at) : "memory");
    }
    sm90::sync_threads<128>(1 + warpgroup);
    const float* const from = sums_ + std::int64_t{at} * 128 * kSums + threadIdx.x % 128;
    product.for_each([&](int i, float& sum) { sum += __ldcg(from + i * 128); });
  }

 private:
  static FALCHION_DEVICE int place(int cluster, int warpgroup) {
    return (cluster * kCluster + static_cast<int>(block_rank_in_cluster())) * kConsumers + warpgroup;
  }

  int* flags_;
  float* sums_;
};

__global__ void __cluster_dims__(kCluster) __launch_bounds__(kRoleThreads, 1)
    multiply(const __grid_constant__ Operands<bf16>, const __grid_constant__ TensorMaps maps,
             const __grid_constant__ Sizes sizes, const Parts parts) {
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const int warpgroup = cutlass::canonical_warp_group_idx(), cluster = cluster_number();
  const Shares shares(pairs(sizes), sizes.blocks, clusters());
  const auto work_on = [&](const Share& share) { return work_of<Tile>(sizes, share.tile, share.first, share.end); };
  init_barriers<Tile>(shared.ring);
  if (warpgroup == kConsumers) {
    cutlass::arch::warpgroup_reg_dealloc<kProducerRegisters>();
    if (threadIdx.x % 128 == 0)
      produce<Tile>(maps, shared.ring,
                    [&](const auto& f) { shares.for_each(cluster, [&](const Share& share) { f(work_on(share)); }); });
  } else {
    cutlass::arch::warpgroup_reg_alloc<kConsumerRegisters>();
    TileProduct<Tile> product(warpgroup);
    Tile::Position at;
    shares.for_each(cluster, [&](const Share& share) {
      consume(product, shared.ring, at, share.end - share.first, [] {});
      if (share.first > 0) {
        parts.leave(product, cluster, warpgroup);
        return;
      }
      const int others = shares.others(cluster, share);
      for (int other = 1; other <= others; ++other) parts.add(product, cluster + other, warpgroup);
      const Work work = work_on(share);
      store_tile(product, shared.out[warpgroup], maps.c, work.i0, work.j0, 1 + warpgroup);
    });
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
  }
  cluster_sync();
}

/// The parts lie behind the matrices whose rows are not whole.
std::size_t offset_of_parts(const Problem& p) { return (whole_rows_bytes<bf16>(p) + 255) / 256 * 256; }
std::size_t workspace_bytes(const Problem& p) { return offset_of_parts(p) + Parts::kBytes; }

Status run(const Problem& p, const Tensors& t, Stream stream) {
  const Parts parts(static_cast<char*>(t.workspace) + offset_of_parts(p));
  if (const cudaError_t error = cudaMemsetAsync(parts.flags(), 0, Parts::kFlagBytes, static_cast<cudaStream_t>(stream));
      error != cudaSuccess)
    return to_status(error);
  return launch_roles<Tile>(multiply, sizeof(Shared), p, t, stream, parts);
}

}  // namespace

extern const Step stream_k;
const Step stream_k = {
    "stream-k",
    "The last tiles cut along k",
    "13_stream_k.cu",
    "A device computes as many tiles at a time as it has multiprocessors, and where the tiles are a few more than so "
    "many "
    "waves, the last wave leaves most of it idle: 5120 x 5120 are 6.06 waves of tiles, which take as long as 7. Here "
    "the "
    "tiles of the last wave and of the one before are laid in a row, all products of the first, then of the second, "
    "and "
    "the row is cut into equal parts. A block may so begin in the middle of a tile and end in the middle of another. A "
    "part without the beginning of its tile leaves its sums in memory, and the block that has the beginning adds them, "
    "in the order of k, so that each run gives the same bits. Each such part writes and reads 131 KB, so tiles are cut "
    "only where much more than that would be idle.",
    DType::bf16,
    workspace_bytes,
    run,
    90};

}  // namespace falchion::ladder::gemm::on_gpu
