// src/ladder/linear/steps.cpp: lists the steps in their order. tools/ladder/linear.cpp runs the last one, which is the
// library's own kernel.
#include "ladder/linear/step.hpp"

namespace falchion::ladder::linear {

namespace on_cpu {
extern const Step recurrent, chunks;
}
namespace on_gpu {
extern const Step recurrent, low_occupancy, dispatch, vector_loads, double_buffer;  // in f32
extern const Step tensor_core_chunks, segments;                                     // in bf16
}  // namespace on_gpu

std::span<const Step* const> cpu_steps() {
  static constexpr const Step* kSteps[] = {&on_cpu::recurrent, &on_cpu::chunks};
  return kSteps;
}

std::span<const Step* const> gpu_steps() {
#if FALCHION_LADDER_CUDA
  static constexpr const Step* kSteps[] = {
      &on_gpu::recurrent,     &on_gpu::low_occupancy,      &on_gpu::dispatch, &on_gpu::vector_loads,
      &on_gpu::double_buffer, &on_gpu::tensor_core_chunks, &on_gpu::segments,
  };
  return kSteps;
#else
  return {};
#endif
}

}  // namespace falchion::ladder::linear
