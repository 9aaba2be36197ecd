// src/plan/gemm_gpu_few.hpp: how Hopper's GEMM kernel for few rows cuts a problem.
#pragma once

#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"
#include "runtime/runtime.hpp"

namespace falchion {

bool is_few_of_hopper(const Variant& variant);
/// The columns of a tile and the CTAs of a cluster with the shortest time. No tile: the grid would be too large.
GemmGpuCut cut_few(const Gemm& g, const cuda::Device& device);

}  // namespace falchion
