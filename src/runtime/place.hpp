// src/runtime/place.hpp: whose memory an address is. CUDA's driver is queried, but only if the process has started it.
// In a process that does not use CUDA every address is the host's, and a query neither loads nor starts anything.
#pragma once

#include <cstdint>

namespace falchion::cuda {

enum class Place : std::uint8_t {
  host,     // ordinary memory, which kernels cannot use
  pinned,   // host memory that CUDA has locked (cudaMallocHost, cudaHostRegister); both sides use it, at one address
  managed,  // memory of cudaMallocManaged, which both sides use
  here,     // memory of a GPU that kernels of the current device may use; the host cannot
  other_device,  // memory of a GPU that kernels of the current device may not use (nor, in a thread that has no CUDA
                 // context yet, of any device); the host cannot either
  unknown        // the driver gives no answer
};
constexpr bool host_can_use(Place place) {
  return place == Place::host || place == Place::pinned || place == Place::managed;
}
constexpr bool device_can_use(Place place) {
  return place == Place::here || place == Place::pinned || place == Place::managed;
}

/// Whether an address may be other than the host's. It is false until CUDA's driver is loaded. The call takes some 20
/// ns and allocates nothing.
bool driver_is_loaded() noexcept;

/// The place of a pointer. The driver is queried each time, because memory is freed, and access to it is granted and
/// revoked. A null pointer counts as the host's.
Place place_of(const void* pointer) noexcept;

/// This thread's CUDA context, or null where it has none; without one it cannot use any GPU's memory.
void* thread_context() noexcept;
/// Makes that context current again, if another one has become current since.
void restore_context(void* context) noexcept;

}  // namespace falchion::cuda
