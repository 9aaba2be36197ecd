// src/runtime/place.cpp: implements place.hpp with the driver's functions instead of the runtime's, because
// cudaPointerGetAttributes starts CUDA if it was not running, and in a process whose context is broken it returns only
// that error. This was measured on two H200: cuPointerGetAttributes is correct in a broken context, in a thread without
// a context and, with CUDA_ERROR_NOT_INITIALIZED, before cuInit. Its attribute DEVICE_POINTER is the address itself
// only if the current context may use the memory. That is so for a peer's memory after cudaDeviceEnablePeerAccess, for
// a pool's after cudaMemPoolSetAccess, and for mapped memory after cuMemSetAccess. (ACCESS_FLAGS does not help: it has
// the access of the device that owns the memory.)
#include "runtime/place.hpp"

#if defined(__linux__)
  #include <dlfcn.h>
  #include <link.h>

  #include <atomic>
  #include <cstddef>
  #include <cstring>

  #include "runtime/driver_numbers.hpp"
#endif

namespace falchion::cuda {

#if defined(__linux__)

namespace {

struct Driver {
  int (*pointer_attributes)(unsigned count, int* attributes, void** values, DevicePointer pointer) = nullptr;
  int (*current_context)(void** context) = nullptr;
  int (*set_context)(void* context) = nullptr;
};

/// The result of a walk over the list of loaded libraries: how many were ever loaded (each entry has that number), and
/// whether one of them is the driver.
struct Loaded {
  unsigned long long count = 0;
  bool look_for_driver = false, driver = false;
};
int look_at(dl_phdr_info* library, std::size_t, void* context) noexcept {
  auto* loaded = static_cast<Loaded*>(context);
  loaded->count = library->dlpi_adds;
  const char* slash = library->dlpi_name == nullptr ? nullptr : std::strrchr(library->dlpi_name, '/');
  const char* file = slash == nullptr ? "" : slash + 1;
  loaded->driver = std::strncmp(file, "libcuda.so", 10) == 0;
  return loaded->driver || !loaded->look_for_driver ? 1 : 0;  // 1 ends the walk
}

Driver functions_of_driver() noexcept {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);  // never closed, so that the driver stays loaded
  if (library == nullptr) return {};
  return {reinterpret_cast<decltype(Driver::pointer_attributes)>(dlsym(library, "cuPointerGetAttributes")),
          reinterpret_cast<decltype(Driver::current_context)>(dlsym(library, "cuCtxGetCurrent")),
          reinterpret_cast<decltype(Driver::set_context)>(dlsym(library, "cuCtxSetCurrent"))};
}

/// Whether the process has loaded the driver. If it has not, dlopen takes 20 us, and it allocates. So the list of
/// loaded libraries is walked instead, and only if something was loaded since the last walk.
bool is_loaded() noexcept {
  static std::atomic<unsigned long long> walked{0};
  Loaded loaded;
  dl_iterate_phdr(look_at, &loaded);
  if (loaded.count == walked.load(std::memory_order_relaxed)) return false;
  loaded.look_for_driver = true;
  dl_iterate_phdr(look_at, &loaded);
  if (!loaded.driver) walked.store(loaded.count, std::memory_order_relaxed);
  return loaded.driver;
}

/// The driver's functions, or null if there is no driver or it lacks one of them.
const Driver* driver() noexcept {
  static std::atomic<bool> found{false};
  if (!found.load(std::memory_order_relaxed)) {
    if (!is_loaded()) return nullptr;
    found.store(true, std::memory_order_relaxed);
  }
  static const Driver functions = functions_of_driver();
  const bool complete = functions.pointer_attributes != nullptr && functions.current_context != nullptr &&
                        functions.set_context != nullptr;
  return complete ? &functions : nullptr;
}

void* context_of(const Driver& driver) noexcept {
  void* context = nullptr;
  return driver.current_context(&context) == 0 ? context : nullptr;
}

}  // namespace

bool driver_is_loaded() noexcept { return driver() != nullptr; }

void* thread_context() noexcept {
  const Driver* cuda = driver();
  return cuda == nullptr ? nullptr : context_of(*cuda);
}

void restore_context(void* context) noexcept {
  const Driver* cuda = driver();
  if (cuda != nullptr && context_of(*cuda) != context) cuda->set_context(context);
}

Place place_of(const void* pointer) noexcept {
  const Driver* cuda = driver();
  if (cuda == nullptr || pointer == nullptr) return Place::host;
  unsigned type = 0, managed = 0;
  DevicePointer on_device = 0;
  int attributes[] = {kMemoryType, kIsManaged, kDevicePointer};
  void* values[] = {&type, &managed, &on_device};
  const auto address = static_cast<DevicePointer>(reinterpret_cast<std::uintptr_t>(pointer));
  const int error = cuda->pointer_attributes(3, attributes, values, address);
  // CUDA has not been started, or has stopped at the end of the process, or is only a stub. So the memory is not
  // CUDA's.
  if (error == kNotInitialized || error == kDeinitialized || error == kStubLibrary) return Place::host;
  if (error != 0) return Place::unknown;
  if (managed != 0) return Place::managed;
  if (type == kTypeDevice) return on_device == address ? Place::here : Place::other_device;
  if (type != kTypeHost) return Place::host;  // the driver does not know it
  // The memory is locked, but kernels may see it at another address than the host does, or not at all.
  return on_device == address || context_of(*cuda) == nullptr ? Place::pinned : Place::host;
}

#else  // other systems have no GPU variants, so no driver is looked for there

bool driver_is_loaded() noexcept { return false; }
void* thread_context() noexcept { return nullptr; }
void restore_context(void*) noexcept {}
Place place_of(const void*) noexcept { return Place::host; }

#endif

}  // namespace falchion::cuda
