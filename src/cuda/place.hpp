// src/cuda/place.hpp: whose memory an address is. CUDA's driver is asked, and only where the process has started it: in
// a process that does not use CUDA every address is the host's, and asking neither loads nor starts anything.
#pragma once

#include <cstdint>

namespace falchion::cuda {

enum class Place : std::uint8_t {
  host,     // ordinary memory: kernels cannot use it
  pinned,   // host memory that CUDA has locked (cudaMallocHost, cudaHostRegister): both sides use it, at one address
  managed,  // cudaMallocManaged: both sides use it
  here,     // memory of a GPU that kernels of the current device may use; the host cannot
  other_device,  // memory of a GPU that kernels of the current device may not use (nor, in a thread that has no CUDA
                 // context yet, of any device); the host cannot either
  unknown        // the driver does not say
};
constexpr bool host_can_use(Place place) {
  return place == Place::host || place == Place::pinned || place == Place::managed;
}
constexpr bool device_can_use(Place place) {
  return place == Place::here || place == Place::pinned || place == Place::managed;
}

/// Could an address be other than the host's? False until CUDA's driver is loaded. Costs some 20 ns, allocates nothing.
bool driver_is_loaded() noexcept;

/// Asked anew each time: memory is freed, and access to it is given and taken. null is the host's.
Place place_of(const void* pointer) noexcept;

/// This thread's CUDA context, without which no GPU's memory is within reach; null where it has none.
void* thread_context() noexcept;
/// Gives the thread that context back, where another was made current since.
void restore_context(void* context) noexcept;

}  // namespace falchion::cuda
