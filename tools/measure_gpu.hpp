// tools/measure_gpu.hpp: runs timed on the device by its own events, and the limits that they are held against.
#pragma once

#include <string>

#include "gpu/device_copy.hpp"
#include "measure.hpp"

namespace falchion::tools {

/// A plan's operands and workspace on the device, for as long as this lives. Throws UsageError.
class GpuRun {
 public:
  GpuRun(const Plan& plan, const Operands& host);

  /// cold: a buffer of several times the L2 is written before each run. Warm: an untimed run goes before each, so that
  /// the host's launch is not in the time either way.
  Samples sample(int runs, bool cold);
  void download();  ///< the outputs, to the host's tensors

 private:
  void run();

  const Plan& plan_;
  gpu::DeviceCopy copy_;
  gpu::Memory workspace_, flush_;
};

/// What this device can do.
struct GpuLimits {
  std::string name;
  double copy = 0;  // bytes read and written a second, measured
  int sm = 0, sms = 0;
  double clock_hz = 0;

  static GpuLimits measure();
  /// Nominal flop/s: SMs x highest clock x flop a clock of the type's unit (bf16, f16: dense tensor cores with f32
  /// sums; f32: fused multiply-adds). 0 where the architecture is not known.
  double nominal(DType dtype) const;
  std::string text(DType dtype) const;
};

}  // namespace falchion::tools
