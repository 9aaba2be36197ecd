// tools/measure/measure_gpu.hpp: times runs on the device with its own events, and has the limits for comparison.
#pragma once

#include <string>

#include "measure/measure.hpp"
#include "problem/device_copy.hpp"

namespace falchion::tools {

/// A plan's operands and workspace on the device, for as long as this lives. Throws UsageError.
template <class AnyOperands>
class GpuRun {
 public:
  GpuRun(const Plan& plan, const AnyOperands& host);

  /// With `cold` a buffer of several times the L2 is written before each run. Otherwise an untimed run precedes each.
  /// So in both cases the host's launch is not part of the time.
  Samples sample(int runs, bool cold);
  void download();  ///< the outputs, to the host's tensors

 private:
  void run();

  const Plan& plan_;
  cuda::CopyOf<AnyOperands> copy_;
  cuda::Memory workspace_, flush_;
};
extern template class GpuRun<Operands>;
extern template class GpuRun<LinearOperands>;
extern template class GpuRun<GemmOperands>;
extern template class GpuRun<NormOperands>;
extern template class GpuRun<QuantiseOperands>;

/// The limits of this device.
struct GpuLimits {
  std::string name;
  double copy = 0;  // bytes read and written a second, measured
  double read = 0;  // bytes read a second by a launch that only reads, of the devices that src/plan/read_rate.hpp knows
  int sm = 0, sms = 0;
  double clock_hz = 0;

  static GpuLimits measure();
  /// Nominal flop/s: SMs x highest clock x flop per clock of the type's unit. For bf16 and f16 that is the dense tensor
  /// cores with f32 sums, for f32 fused multiply-adds. It is 0 for an unknown architecture.
  double nominal(DType dtype) const;
  /// The same for linear attention, which computes a product in f32 as three others: of f16 in Hopper's variants, else
  /// of TF32, which is half as fast.
  double nominal_of_three_f16() const { return nominal(DType::f16) / 3; }
  double nominal_of_three_tf32() const { return nominal(DType::f16) / 6; }
  std::string text(DType dtype) const;
};

}  // namespace falchion::tools
