// src/plan/gemm_gpu_launch.cpp: how the operands of a run lie -> the variant that can move them, and what it is handed.
#include <algorithm>
#include <cstdint>

#include "plan/gemm.hpp"
#include "plan/gemm_call.hpp"
#include "plan/gemm_gpu.hpp"
#include "plan/launch.hpp"
#include "policy/divide.hpp"
#include "types/size.hpp"

namespace falchion {
namespace {

using gpu::Major;

/// Two axes that follow each other in memory are one, in all of these tensors.
template <class... Views>
void join_axes(std::int64_t whole, std::int64_t* inner, Views*... views) {
  const auto follows = [&](const View& x) { return x.data == nullptr || x.stride[2] == *inner * x.stride[3]; };
  if (*inner < whole && (follows(*views) && ...)) *inner = whole;
}

bool is_multiple(std::int64_t stride, std::int64_t of) { return stride % of == 0; }

/// Along which axis 16 bytes can be moved at a time. A run of them must not leave k1. up: rows from a gate to the other
/// half of its column, else 0.
Major major_of(const View& x, std::int64_t k, std::int64_t k1, std::int64_t up, int size) {
  const std::int64_t chunk = 16 / size;
  if (reinterpret_cast<std::uintptr_t>(x.data) % 16 != 0 || !is_multiple(x.stride[0], chunk)) return Major::neither;
  const bool by_k2 = k1 >= k || is_multiple(x.stride[2], chunk);
  const bool whole = k1 >= k || k1 % chunk == 0;
  if (x.stride[3] == 1 && is_multiple(x.stride[1], chunk) && by_k2 && whole) return Major::k;
  if (size == 2 && x.stride[1] == 1 && is_multiple(x.stride[3], chunk) && by_k2 && up % chunk == 0) return Major::rows;
  return Major::neither;
}

/// Can four neighbouring columns be moved at a time?
bool moves_four(const View& x, const GemmCall& call, std::int64_t size) {
  return x.data != nullptr && reinterpret_cast<std::uintptr_t>(x.data) % static_cast<std::uintptr_t>(4 * size) == 0 &&
         x.stride[3] == 1 && call.n1 % 4 == 0 && is_multiple(x.stride[0], 4) && is_multiple(x.stride[1], 4) &&
         (call.n1 >= call.n || is_multiple(x.stride[2], 4));
}

/// The call, with what is known of how its operands lie. Returns whether it is that of merged(problem).
bool set_gpu_call(const Gemm& g, const GemmOperands& x, gpu::GemmArgs* args) {
  const bool one_matrix = set_call(g, x, args);
  join_axes(args->k, &args->k1, &args->a, &args->b);
  join_axes(args->n, &args->n1, &args->c, &args->d, &args->residual);
  const int size = static_cast<int>(size_of(g.dtype));
  const std::int64_t size_c = size_of(dtype_of_c(g)), size_d = size_of(dtype_of_d(g));
  args->a_major = major_of(args->a, args->k, args->k1, 0, size);
  args->b_major = major_of(args->b, args->k, args->k1, g.activation == Activation::swiglu ? g.n : 0, size);
  args->c_whole = moves_four(args->c, *args, size_c);
  args->d_whole = moves_four(args->d, *args, size_d);
  args->residual_whole = moves_four(args->residual, *args, size_d);
  return one_matrix;
}

}  // namespace

GpuChoice gpu_variant(const PlanData& plan, const GemmOperands& x) noexcept {
  gpu::GemmArgs args;
  set_gpu_call(plan.gemm().problem, x, &args);
  const bool aligned = args.k == 0 || (args.a_major != Major::neither && args.b_major != Major::neither);
  return {aligned ? plan.variant : plan.gpu.unaligned, aligned};
}

gpu::GemmArgs to_gpu_gemm_args(const PlanData& plan, const Variant& variant, const GemmOperands& x,
                               void* workspace) noexcept {
  const GemmPlan& gemm = plan.gemm();
  const Gemm& g = gemm.problem;
  const gpu::GemmFacts& facts = variant.facts_as<gpu::GemmFacts>();
  gpu::GemmArgs args;
  const GemmGpuCut& cut = set_gpu_call(g, x, &args) ? gemm.gpu_merged : gemm.gpu;
  args.tiles_m = ceil_div(args.m, facts.rows);
  args.tiles_n = ceil_div(rows_of_b(g), facts.columns);
  args.splits = cut.splits;
  args.depth = cut.depth;
  args.early = cut.early;
  args.pitch = gemm_pitch(g);
  args.partials = static_cast<float*>(workspace);
  return args;
}

}  // namespace falchion
