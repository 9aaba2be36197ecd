// src/ladder/attention/steps.cpp: lists the steps in their order. tools/ladder/attention.cpp runs the last one, which
// is the library's own kernel.
#include "ladder/attention/step.hpp"

namespace falchion::ladder {

namespace on_cpu {
extern const Step naive, flash_attention_1, flash_attention_2;
}
namespace on_gpu {
extern const Step naive, flash_attention_1, flash_attention_2, tensor_cores, swizzle, double_buffer;
extern const Step warp_roles, ping_pong, overlap, eight_bits;  // for sm_90 alone
Status run_long_sums(const Problem& p, const Tensors& t, int tiles, Stream stream);
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
    &on_gpu::eight_bits,
  #endif
  };
  return kSteps;
#else
  return {};
#endif
}

#if FALCHION_LADDER_SM90
Status run_with_long_sums(const Problem& p, const Tensors& t, int tiles, Stream stream) {
  return on_gpu::run_long_sums(p, t, tiles, stream);
}
#else
Status run_with_long_sums(const Problem&, const Tensors&, int, Stream) {
  return {Code::unsupported, "this build has no steps for sm_90"};
}
#endif

}  // namespace falchion::ladder
