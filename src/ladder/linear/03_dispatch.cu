// src/ladder/linear/03_dispatch.cu: has no kernel of its own. It runs step 01 or step 02, whichever an estimate for
// this device says is faster.
#include "ladder/linear/dispatch.cuh"

namespace falchion::ladder::linear::on_gpu {
namespace {

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return run_cheaper(recurrent_kernel, low_occupancy_kernel, p, t, stream);
}

}  // namespace

extern const Step dispatch;
const Step dispatch = {
    "dispatch",
    "One or the other, by SMs and occupancy",
    "03_dispatch.cu",
    "fast-transformers takes the second kernel below 40 heads, which was right for one GPU of its day. Here both say "
    "what they will take: serial steps times cycles a step, and those grow once more blocks are resident than the "
    "multiprocessors serve at their own pace. How many fit is asked of the device: its SM count times "
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor. On 132 multiprocessors and at d 64 the two meet near 90 heads, "
    "at d 128 near 22. Neither becomes faster by it; one only gets the better of the two.",
    DType::f32,
    no_workspace,
    run};

}  // namespace falchion::ladder::linear::on_gpu
