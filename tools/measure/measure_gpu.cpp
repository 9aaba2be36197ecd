// tools/measure/measure_gpu.cpp
#include "measure/measure_gpu.hpp"
#include "api/data_of.hpp"

#include <fmt/core.h>

#include "command/table.hpp"
#include "plan/plan_data.hpp"
#include "plan/read_rate.hpp"
#include "plan/text.hpp"
#include "tool.hpp"

namespace falchion::tools {

namespace {

const Attention& problem_of(const Plan& plan, const Operands&) { return data_of(plan)->attention().problem; }
const LinearAttention& problem_of(const Plan& plan, const LinearOperands&) { return data_of(plan)->linear().problem; }
const Gemm& problem_of(const Plan& plan, const GemmOperands&) { return data_of(plan)->gemm().problem; }
const Norm& problem_of(const Plan& plan, const NormOperands&) { return data_of(plan)->norm().problem; }
const Quantise& problem_of(const Plan& plan, const QuantiseOperands&) { return data_of(plan)->quantise().problem; }

}  // namespace

template <class AnyOperands>
GpuRun<AnyOperands>::GpuRun(const Plan& plan, const AnyOperands& host) : plan_(plan) {
  require(cuda::CopyOf<AnyOperands>::make(problem_of(plan, host), host, {}, &copy_), "copy to the GPU");
  require(cuda::Memory::make(plan.workspace_bytes(), &workspace_), "workspace");
  require(cuda::synchronize());
}

template <class AnyOperands>
void GpuRun<AnyOperands>::run() {
  void* memory = workspace_.size() > 0 ? workspace_.data() : nullptr;
  require(plan_.run(copy_.operands(), memory, workspace_.size()));
}

template <class AnyOperands>
Samples GpuRun<AnyOperands>::sample(int runs, bool cold) {
  const std::size_t flush_bytes = std::max<std::size_t>(4 * cuda::current_device().l2, std::size_t{64} << 20);
  if (cold && flush_.size() == 0) require(cuda::Memory::make(flush_bytes, &flush_), "a buffer that flushes the L2");
  run();
  require(cuda::synchronize());
  Samples out;
  cuda::Timer timer;
  for (int i = 0; i < runs && (i == 0 || !interrupted()); ++i) {
    if (cold)
      require(cuda::fill(flush_.data(), i, flush_.size()));
    else
      run();
    require(timer.start());
    run();
    require(timer.stop());
    double seconds = 0;
    require(timer.seconds(&seconds));
    out.seconds.push_back(seconds);
  }
  return out;
}

template <class AnyOperands>
void GpuRun<AnyOperands>::download() {
  require(copy_.download(), "copy from the GPU");
}

template class GpuRun<Operands>;
template class GpuRun<LinearOperands>;
template class GpuRun<GemmOperands>;
template class GpuRun<NormOperands>;
template class GpuRun<QuantiseOperands>;

GpuLimits GpuLimits::measure() {
  const cuda::Device device = cuda::current_device();
  GpuLimits out{device.name, 0, read_rate_of(device.name), device.sm, device.sms, device.clock_hz};
  const std::size_t bytes = std::max<std::size_t>(16 * device.l2, std::size_t{256} << 20);
  cuda::Memory from, to;
  require(cuda::Memory::make(bytes, &from));
  require(cuda::Memory::make(bytes, &to));
  cuda::Timer timer;
  for (int i = 0; i < 8; ++i) {
    double seconds = 0;
    require(timer.start());
    require(cuda::copy(to.data(), from.data(), bytes));
    require(timer.stop());
    require(timer.seconds(&seconds));
    if (i > 0 && seconds > 0) out.copy = std::max(out.copy, 2.0 * static_cast<double>(bytes) / seconds);
  }
  return out;
}

double GpuLimits::nominal(DType dtype) const {
  // Dense products a clock and SM, two flop each (NVIDIA's architecture whitepapers: A100, GA102, Ada, H100).
  const double tensor = sm == 90 ? 2048 : sm == 80 ? 1024 : sm == 89 || sm == 86 ? 256 : 0;
  const double fma = sm == 80 ? 64 : 128;
  return 2 * (dtype == DType::f32 ? fma : tensor) * sms * clock_hz;
}

std::string GpuLimits::text(DType dtype) const {
  return fmt::format(
      "{}, {} SMs at up to {:.2f} GHz; nominal {} {} (mma.sync reaches some 62 % of it on sm_90); copies {}{}", name,
      sms, clock_hz / 1e9, falchion::name(dtype), format_rate(nominal(dtype), "FLOP/s"), format_rate(copy, "B/s"),
      read > 0 ? fmt::format("; a launch that only reads {}", format_rate(read, "B/s")) : "");
}

}  // namespace falchion::tools
