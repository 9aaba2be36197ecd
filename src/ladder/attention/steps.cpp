// src/ladder/attention/steps.cpp: lists the steps in their order. tools/ladder/attention.cpp runs the last one, which
// is the library's own kernel.
#include "ladder/attention/step.hpp"

namespace falchion::ladder {

namespace on_cpu {
extern const Step naive, flash_attention_1, flash_attention_2;
}
namespace on_gpu {
extern const Step naive, flash_attention_1, flash_attention_2, tensor_cores, swizzle, double_buffer;
extern const Step warp_roles, ping_pong, overlap;  // for sm_90 alone
}  // namespace on_gpu

std::span<const Step* const> cpu_steps() {
  static constexpr const Step* kSteps[] = {&on_cpu::naive, &on_cpu::flash_attention_1, &on_cpu::flash_attention_2};
  return kSteps;
}

std::span<const Step* const> gpu_steps() {
#if FALCHION_LADDER_CUDA
  static constexpr const Step* kSteps[] = {
    &on_gpu::naive,
    &on_gpu::flash_attention_1,
    &on_gpu::flash_attention_2,
    &on_gpu::tensor_cores,
    &on_gpu::swizzle,
    &on_gpu::double_buffer,
  #if FALCHION_LADDER_SM90
    &on_gpu::warp_roles,
    &on_gpu::ping_pong,
    &on_gpu::overlap,
  #endif
  };
  return kSteps;
#else
  return {};
#endif
}

}  // namespace falchion::ladder
