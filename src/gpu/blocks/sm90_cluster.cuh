// src/gpu/blocks/sm90_cluster.cuh: synchronisation between the CTAs of a cluster, and reads of another CTA's shared
// memory. The barriers of CUTLASS order memory accesses within a CTA; these do so across a cluster.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include <cute/arch/cluster_sm90.hpp>
#include <cute/arch/util.hpp>

#include "base/host_device.hpp"

namespace falchion::sm90 {

/// The shared memory address in CTA `rank` of the cluster that corresponds to `x` in this one.
template <class T>
FALCHION_DEVICE std::uint32_t address_in(const T* x, int rank) {
  return cute::set_block_rank(cute::cast_smem_ptr_to_uint(x), static_cast<std::uint32_t>(rank));
}

FALCHION_DEVICE void init_cluster_barrier(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(cute::cast_smem_ptr_to_uint(barrier)), "r"(arrivals)
               : "memory");
}
/// Arrives at a barrier of CTA `rank`. Its waiters see the writes of this thread, and those of others that this thread
/// has waited for.
FALCHION_DEVICE void arrive_in(const std::uint64_t* barrier, int rank) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(address_in(barrier, rank))
               : "memory");
}
/// Waits at a barrier of this CTA for all CTAs that arrive there.
FALCHION_DEVICE void wait_for_cluster(const std::uint64_t* barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(cute::cast_smem_ptr_to_uint(barrier)),
      "r"(parity)
      : "memory");
}
/// Reads four floats at an address from address_in.
FALCHION_DEVICE float4 load_from_cluster(std::uint32_t address) {
  float4 x;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(address)
               : "memory");
  return x;
}

}  // namespace falchion::sm90
