// src/runtime/driver_numbers.hpp: the few numbers of cuda.h that place.cpp needs in builds that have no cuda.h. They
// belong to the driver's ABI and do not change; tests/door_gpu_test.cpp compares them with cuda.h.
#pragma once

namespace falchion::cuda {

using DevicePointer = unsigned long long;  // CUdeviceptr

constexpr int kMemoryType = 2, kDevicePointer = 3, kIsManaged = 8;         // CU_POINTER_ATTRIBUTE_...
constexpr unsigned kTypeHost = 1, kTypeDevice = 2;                         // CU_MEMORYTYPE_...
constexpr int kNotInitialized = 3, kDeinitialized = 4, kStubLibrary = 34;  // CUDA_ERROR_...

}  // namespace falchion::cuda
