// src/ladder/backward/steps.cpp: lists the steps in their order. tools/ladder/backward.cpp runs the last ones, which
// are the library's own kernels.
#include "ladder/backward/step.hpp"

namespace falchion::ladder::backward {

namespace on_cpu {
extern const Step naive, recompute;
}
namespace on_gpu {
extern const Step naive, recompute, tensor_cores, swizzle, double_buffer;
extern const Step warp_roles;  // for sm_90 alone
}  // namespace on_gpu

std::span<const Step* const> cpu_steps() {
  static constexpr const Step* kSteps[] = {&on_cpu::naive, &on_cpu::recompute};
  return kSteps;
}

std::span<const Step* const> gpu_steps() {
#if FALCHION_LADDER_CUDA
  static constexpr const Step* kSteps[] = {
    &on_gpu::naive,
    &on_gpu::recompute,
    &on_gpu::tensor_cores,
    &on_gpu::swizzle,
    &on_gpu::double_buffer,
  #if FALCHION_LADDER_SM90
    &on_gpu::warp_roles,
  #endif
  };
  return kSteps;
#else
  return {};
#endif
}

}  // namespace falchion::ladder::backward
