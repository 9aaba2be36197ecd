// src/ladder/linear/dispatch.cuh: decides for steps 03 to 05 which of two kernels runs, by an estimate from the SM
// count of the device and the occupancy of the kernels.
#pragma once

#include <algorithm>
#include <cmath>

#include "ladder/launch.cuh"
#include "ladder/linear/step.hpp"

namespace falchion::ladder::linear::on_gpu {

/// The cycles that one step of a block takes. `alone` is the time until it is done, which is mostly latency. `busy` is
/// the part of it in which it keeps other blocks on the same SM from working.
struct Pace {
  double alone, busy;
};

/// What a kernel will take. A block does its steps one after another, and the blocks come in waves.
struct Cost {
  double blocks = 0, steps = 0;  // blocks of the grid; steps of one block
  double sms = 1, resident = 1;  // SMs of the device; blocks that it holds at once
  double cycles(const Pace& pace) const {
    return steps * std::max(pace.alone * std::ceil(blocks / resident), pace.busy * blocks / sms);
  }
};

/// Fills in sms and resident of *cost from the device and the occupancy calculator. Errors: device.
template <class... Parameters>
Status ask_device(void (*kernel)(Parameters...), int threads, Cost* cost) {
  int device = 0, sms = 0, blocks = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess) error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0);
  cost->sms = std::max(1, sms);
  cost->resident = std::max(1, sms * blocks);
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

extern const Candidate recurrent_kernel, low_occupancy_kernel;  // the kernels of steps 01 and 02

}  // namespace falchion::ladder::linear::on_gpu
