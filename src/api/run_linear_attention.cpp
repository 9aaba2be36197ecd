// src/api/run_linear_attention.cpp: operands of linear attention -> the kernel that the plan chose.
#include <cstdint>

#include "api/run.hpp"
#include "api/validate.hpp"
#include "cuda/runtime.hpp"
#include "plan/linear_attention.hpp"
#include "plan/text.hpp"
#include "ref/linear_attention.hpp"

namespace falchion {
namespace {

// A workspace holds b * s packed tokens. Single sequences may be longer than s, all of them together may not: the plan
// could not hold them, and tokens are never dropped.
constexpr const char* kTooLong = ": s is the longest length allowed";

/// Kernels count the rows of a sequence in 31 bits; lengths that lie on the device are at most the rows.
Status check_rows(const PlanData& plan, const LinearOperands& x) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (!plan.linear().problem.packed) return {};
  if (x.q.shape[1] > kMost)
    return {Code::invalid, text("q.shape[1] = ", x.q.shape[1], " packed rows are over the limit of ", kMost)};
  const LinearAttention& a = plan.linear().problem;
  if (plan.workspace == 0 || x.q.shape[1] <= a.b * a.s) return {};
  return {Code::invalid, text("q.shape[1] = ", x.q.shape[1], " is over b * s = ", a.b * a.s, kTooLong)};
}

Status run_on_gpu(const PlanData& plan, const LinearOperands& x, const OperandList& list, void* workspace,
                  std::size_t bytes, Stream stream) {
  const cuda::OnDevice device(plan.gpu.ordinal);
  if (!device.status()) return device.status();
  if (Status status = check_device(plan); !status) return status;
  if (Status status = check_workspace(plan, workspace, bytes); !status) return status;
  if (plan.items == 0) return {};
  if (Status status = check_rows(plan, x); !status) return status;
  if (Status status = check_places(plan, list, workspace); !status) return status;
  const auto [variant, aligned] = gpu_variant(plan, x);
  if (variant == nullptr) {
    const LinearAttention& a = plan.linear().problem;
    return no_variant_for(a.dtype, a.d_qk, a.d_v, list);
  }
  const gpu::LinearAttentionKernel& kernel = *variant->kernel_as<gpu::LinearAttentionKernel>();
  return launched(kernel.launch(to_linear_gpu_args(plan, &x, workspace, aligned), stream));
}

/// The lengths lie on the host here.
Status check_total(const LinearAttention& a, const LinearOperands& x) {
  if (!a.packed || x.cu_seqlens[a.b] <= a.b * a.s) return {};
  return {Code::invalid, text("cu_seqlens[", a.b, "] = ", x.cu_seqlens[a.b], " is over b * s = ", a.b * a.s, kTooLong)};
}

Status run_on_host(const PlanData& plan, const LinearOperands& x, const OperandList& list, void* workspace,
                   std::size_t bytes) {
  const LinearAttention& a = plan.linear().problem;
  if (Status status = check_workspace(plan, workspace, bytes); !status) return status;
  if (a.b == 0 || a.h_v == 0) return {};
  if (Status status = check_places(plan, list, workspace); !status) return status;
  if (Status status = check_total(a, x); !status) return status;
  if (plan.backend == Backend::cpu) {
    plan.variant->kernel_as<cpu::LinearAttentionKernel>()->run(to_linear_args(plan, &x, workspace));
  } else if (plan.pass == Pass::forward) {
    ref::linear_attention_forward(a, x, workspace);
  } else {
    ref::linear_attention_backward(a, x, workspace);
  }
  return {};
}

}  // namespace

Status run_linear_attention(const PlanData& plan, const LinearOperands& x, void* workspace, std::size_t bytes,
                            Stream stream) {
  const LinearAttention& a = plan.linear().problem;
  const OperandList list = operands_of(a, plan.pass, x);
  if (Status status = validate_operands(a, x, list); !status) return status;
  return on_gpu(plan) ? run_on_gpu(plan, x, list, workspace, bytes, stream)
                      : run_on_host(plan, x, list, workspace, bytes);
}

}  // namespace falchion
