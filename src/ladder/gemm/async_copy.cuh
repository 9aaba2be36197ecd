// src/ladder/gemm/async_copy.cuh: cp.async, by which a thread has a piece copied from global to shared memory and goes
// on. Where the piece is outside of the matrix, nothing is read and 0 is written.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"

namespace falchion::ladder::gemm::on_gpu {

FALCHION_DEVICE std::uint32_t shared_address(const void* x) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(x));
}
FALCHION_DEVICE void copy_async_4(void* to, const void* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(inside ? 4 : 0)
               : "memory");
}
FALCHION_DEVICE void copy_async_16(void* to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}
/// The copies that this thread has started since the last commit become a group.
FALCHION_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits for this thread's groups, all but the last kBehind.
template <int kBehind>
FALCHION_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kBehind) : "memory");
}

}  // namespace falchion::ladder::gemm::on_gpu
