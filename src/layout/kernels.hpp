// src/layout/kernels.hpp: the layouts of Falchion's own GPU kernels, as CuTe prints them. kernels.inc is written by
// tests/layout_kernels_gen.cpp from the config headers that the kernels compile; a test of the GPU build compares.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace falchion::layout {

struct Kernel {
  std::string_view name;  // such as sm80:plain:128: backend, kind, head dim
  std::int64_t rows, keys, d, d_v, threads, stages, ctas, shared_bytes;
};

struct KernelLayout {
  std::string_view kernel, name, what, print;
  std::int64_t bytes;  // the shared memory that it takes; 0 for registers and for a view of another layout's memory
};

std::span<const Kernel> kernels();
const Kernel* find_kernel(std::string_view name);  ///< null if there is none
/// Every layout of every kernel; those of one kernel lie together.
std::span<const KernelLayout> kernel_layouts();
std::span<const KernelLayout> kernel_layouts(std::string_view kernel);

/// The kernel that the names sQ, sK, sVt, acc_s belong to if no kernel is named.
inline constexpr std::string_view kDefaultKernel = "sm80:plain:128";

}  // namespace falchion::layout
