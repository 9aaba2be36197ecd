// python/xla/handlers.cpp: the custom calls that JAX registers: each operation and pass on two platforms.
//
// None of them says that it may be traced into a command buffer (a CUDA graph): a replay would use the workspace of the
// run that was traced, which goes back to XLA's allocator when that run returns.
#include <cstdint>
#include <string>

#include "call.hpp"
#include "merge.hpp"
#include "operations.hpp"
#include "threads.hpp"
#include "xla/ffi/api/ffi.h"

namespace falchion::xla_ffi {
namespace {

namespace ffi = xla::ffi;

/// Nothing is thrown into XLA: no memory is the one thing that may be thrown here.
template <class Operation>
ffi::Error guarded(std::int32_t pass, const Platform& platform, const ffi::RemainingArgs& inputs,
                   const ffi::RemainingRets& results, ffi::Dictionary attributes) try {
  return call<Operation>(pass, platform, inputs, results, attributes);
} catch (const std::exception& thrown) { return ffi::Error::Internal(thrown.what()); }

template <class Operation, std::int32_t kPass>
ffi::Error on_host(ffi::ThreadPool pool, ffi::RemainingArgs inputs, ffi::RemainingRets results,
                   ffi::Dictionary attributes) {
  const LentThreads lent(&pool);
  Platform platform;
  platform.threads = static_cast<std::int32_t>(pool.num_threads());
  return guarded<Operation>(kPass, platform, inputs, results, attributes);
}

template <class Operation, std::int32_t kPass>
ffi::Error on_cuda(void* stream, std::int32_t device, ffi::ScratchAllocator scratch, ffi::RemainingArgs inputs,
                   ffi::RemainingRets results, ffi::Dictionary attributes) {
  Platform platform;
  platform.device = device;
  platform.stream = stream;
  platform.scratch = &scratch;
  return guarded<Operation>(kPass, platform, inputs, results, attributes);
}

auto host_binding() { return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().RemainingArgs().RemainingRets().Attrs(); }
auto cuda_binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::PlatformStream<void*>>()
      .Ctx<ffi::DeviceOrdinal>()
      .Ctx<ffi::ScratchAllocator>()
      .RemainingArgs()
      .RemainingRets()
      .Attrs();
}

}  // namespace
}  // namespace falchion::xla_ffi

#define FALCHION_HANDLERS(name, Operation, pass)                                                           \
  extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* name##_cpu(XLA_FFI_CallFrame* frame) {  \
    static auto* handler = falchion::xla_ffi::host_binding()                                               \
                               .To(falchion::xla_ffi::on_host<falchion::xla_ffi::Operation, pass>)         \
                               .release();                                                                 \
    return handler->Call(frame);                                                                           \
  }                                                                                                        \
  extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* name##_cuda(XLA_FFI_CallFrame* frame) { \
    static auto* handler = falchion::xla_ffi::cuda_binding()                                               \
                               .To(falchion::xla_ffi::on_cuda<falchion::xla_ffi::Operation, pass>)         \
                               .release();                                                                 \
    return handler->Call(frame);                                                                           \
  }

FALCHION_HANDLERS(falchion_attention_forward, AttentionOperation, FAL_FORWARD)
FALCHION_HANDLERS(falchion_attention_backward, AttentionOperation, FAL_BACKWARD)
FALCHION_HANDLERS(falchion_linear_attention_forward, LinearOperation, FAL_FORWARD)
FALCHION_HANDLERS(falchion_linear_attention_backward, LinearOperation, FAL_BACKWARD)
FALCHION_HANDLERS(falchion_gemm, GemmOperation, FAL_FORWARD)
FALCHION_HANDLERS(falchion_norm, NormOperation, FAL_FORWARD)
FALCHION_HANDLERS(falchion_norm_backward, NormOperation, FAL_BACKWARD)
FALCHION_HANDLERS(falchion_merge, Merge, FAL_FORWARD)
