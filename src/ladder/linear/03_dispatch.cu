// src/ladder/linear/03_dispatch.cu: runs step 01 or step 02, the one with the shorter estimated time on this device. It
// has no kernel of its own.
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
    "The faster of the two, by SMs and occupancy",
    "03_dispatch.cu",
    "fast-transformers takes the second kernel below 40 heads, which was right for one GPU of its day. Here each "
    "kernel estimates what it will take: the number of serial steps times the cycles of a step. The cycles grow when "
    "more blocks are resident than the multiprocessors can serve at full speed. How many blocks fit is asked of the "
    "device: its SM count times cudaOccupancyMaxActiveBlocksPerMultiprocessor. On 132 multiprocessors the two kernels "
    "take the same time near 90 heads at d 64, and near 22 at d 128. Neither kernel becomes faster, but one always "
    "gets the better of the two.",
    DType::f32,
    no_workspace,
    run};

}  // namespace falchion::ladder::linear::on_gpu
