// src/ladder/linear/dispatch.cuh: which of two kernels is to run: an estimate from the SM count of the device and the
// occupancy of the kernels, for steps 03 to 05.
#pragma once

#include <algorithm>
#include <cmath>

#include "ladder/launch.cuh"
#include "ladder/linear/step.hpp"

namespace falchion::ladder::linear::on_gpu {

/// Cycles of one step of a block: alone until it is done, most of that latency; busy: those in which it keeps others
/// in the same SM from working.
struct Pace {
  double alone, busy;
};

/// What a kernel will take. A block does its steps one after the other; the blocks come in waves.
struct Cost {
  double blocks = 0, steps = 0;  // of the grid; of one block
  double sms = 1, resident = 1;  // of the device; blocks that it holds at once
  double cycles(const Pace& pace) const {
    return steps * std::max(pace.alone * std::ceil(blocks / resident), pace.busy * blocks / sms);
  }
};

/// Cost::sms and resident, as the occupancy calculator says of this kernel. Errors: device.
template <class... Parameters>
Status ask_device(void (*kernel)(Parameters...), int threads, Cost* cost) {
  int device = 0, sms = 0, blocks = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess) error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0);
  cost->sms = std::max(1, sms), cost->resident = std::max(1, sms * blocks);
  return to_status(error);
}

/// A kernel that can say what it will take.
struct Candidate {
  Status (*cycles)(const Problem&, double*);
  Status (*run)(const Problem&, const Tensors&, Stream);
};

inline Status run_cheaper(const Candidate& one, const Candidate& other, const Problem& p, const Tensors& t,
                          Stream stream) {
  if (Status status = p.check(); !status) return status;
  double cycles_of_one = 0, cycles_of_other = 0;
  if (Status status = one.cycles(p, &cycles_of_one); !status) return status;
  if (Status status = other.cycles(p, &cycles_of_other); !status) return status;
  return (cycles_of_one <= cycles_of_other ? one : other).run(p, t, stream);
}

extern const Candidate recurrent_kernel, low_occupancy_kernel;  // of steps 01 and 02

}  // namespace falchion::ladder::linear::on_gpu
