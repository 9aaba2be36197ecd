// src/api/run_attention.cpp: operands of attention -> the kernel that the plan chose.
#include <cstdint>

#include "api/run.hpp"
#include "api/validate.hpp"
#include "cuda/runtime.hpp"
#include "plan/attention.hpp"
#include "plan/attention_launch.hpp"
#include "plan/text.hpp"
#include "ref/attention_forward.hpp"

namespace falchion {
namespace {

/// CPU: the workspace holds b * s_k packed keys. Single sequences may be longer than s_k, all of them together may not:
/// the plan could not hold them, and keys are never dropped. (Lengths lie on the host here; kernels clamp what else is
/// wrong.)
Status check_total(const Attention& problem, const Operands& x) {
  if (!problem.packed || problem.b == 0 || x.cu_seqlens_k[problem.b] <= problem.b * problem.s_k) return {};
  return {Code::invalid, text("cu_seqlens_k[", problem.b, "] = ", x.cu_seqlens_k[problem.b],
                              " is over b * s_k = ", problem.b * problem.s_k, ": s_k is the longest length allowed")};
}

Status launch_on_gpu(const PlanData& plan, const Operands& operands, const OperandList& list, void* workspace,
                     Stream stream) {
  const auto [variant, aligned] = gpu_variant(plan, operands);
  if (variant == nullptr) {
    const Attention& a = plan.attention().problem;
    return no_variant_for(a.dtype, a.d_qk, a.d_v, list);
  }
  const gpu::AttentionArgs args =
      to_gpu_args(plan, operands, workspace, variant->facts_as<gpu::AttentionFacts>().rows, aligned);
  const gpu::AttentionKernel& kernel = *variant->kernel_as<gpu::AttentionKernel>();
  int error = kernel.launch(args, stream);
  if (error == 0 && plan.attention().problem.probabilities) error = kernel.probabilities(args, stream);
  return launched(error);
}

/// Kernels count the rows of a sequence in 31 bits; lengths that lie on the device are at most the totals.
Status check_totals(const PlanData& plan, const Operands& x) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (!plan.attention().problem.packed) return {};
  if (x.q.shape[1] * plan.attention().group > kMost) {
    return {Code::invalid, text("q.shape[1] = ", x.q.shape[1], " packed rows of ", plan.attention().group,
                                " heads each are over the limit of ", kMost)};
  }
  if (x.k.shape[1] <= kMost) return {};
  return {Code::invalid, text("k.shape[1] = ", x.k.shape[1], " packed rows are over the limit of ", kMost)};
}

bool nothing_to_write(const PlanData& plan, const Operands& x) {
  return x.o.shape[0] == 0 || x.o.shape[1] == 0 || x.o.shape[2] == 0 || plan.attention().problem.b == 0;
}

Status run_on_gpu(const PlanData& plan, const Operands& operands, const OperandList& list, void* workspace,
                  std::size_t bytes, Stream stream) {
  const cuda::OnDevice device(plan.gpu.ordinal);
  if (!device.status()) return device.status();
  if (Status status = check_device(plan); !status) return status;
  if (Status status = check_workspace(plan, workspace, bytes); !status) return status;
  if (nothing_to_write(plan, operands)) return {};
  if (Status status = check_totals(plan, operands); !status) return status;
  if (Status status = check_places(plan, list, workspace); !status) return status;
  return launch_on_gpu(plan, operands, list, workspace, stream);
}

Status run_on_host(const PlanData& plan, const Operands& operands, const OperandList& list, void* workspace,
                   std::size_t bytes) {
  if (Status status = check_workspace(plan, workspace, bytes); !status) return status;
  if (nothing_to_write(plan, operands)) return {};
  if (Status status = check_places(plan, list, workspace); !status) return status;
  if (Status status = check_total(plan.attention().problem, operands); !status) return status;
  if (plan.backend == Backend::ref) {
    ref::attention_forward(plan.attention().problem, operands, {});
  } else {
    plan.variant->kernel_as<cpu::AttentionKernel>()->run(to_args(plan, &operands, workspace));
  }
  return {};
}

}  // namespace

Status run_attention(const PlanData& plan, const Operands& operands, void* workspace, std::size_t bytes,
                     Stream stream) {
  const Attention& problem = plan.attention().problem;
  const OperandList list = operands_of(problem, operands);
  if (Status status = validate_operands(problem, operands, list); !status) return status;
  return on_gpu(plan) ? run_on_gpu(plan, operands, list, workspace, bytes, stream)
                      : run_on_host(plan, operands, list, workspace, bytes);
}

}  // namespace falchion
