// src/api/run_attention.cpp: operands of attention -> the kernel that the plan chose.
#include <cstdint>

#include "api/run.hpp"
#include "api/validate.hpp"
#include "plan/attention_gpu.hpp"
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

Status launch_on_gpu(const PlanData& plan, const Operands& operands, void* workspace, Stream stream) {
  const auto [row, aligned] = gpu_row(plan, operands);
  if (row == nullptr) {
    return {Code::unsupported,
            text(aligned ? "q, k or v has a stride that TMA cannot follow (below the head dim, 2^40 bytes or more)"
                         : "q, k, v or o is not 16-byte aligned (pointer, strides, head dim)",
                 ", and this build has no general row for ", name(plan.problem.dtype))};
  }
  const gpu::AttentionArgs args = to_gpu_args(plan, operands, workspace, row->facts.rows, aligned);
  int error = row->gpu->launch(args, stream);
  if (error == 0 && plan.problem.probabilities) error = row->gpu->probabilities(args, stream);
  return launched(error);
}

/// Kernels count the rows of a sequence in 31 bits; lengths that lie on the device are at most the totals.
Status check_totals(const PlanData& plan, const Operands& x) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (!plan.problem.packed) return {};
  if (x.q.shape[1] * plan.gpu.group <= kMost && x.k.shape[1] <= kMost) return {};
  return {Code::invalid, text("packed: q.shape[1] = ", x.q.shape[1], " rows of ", plan.gpu.group,
                              " heads and k.shape[1] = ", x.k.shape[1], " are to be at most ", kMost)};
}

bool nothing_to_write(const PlanData& plan, const Operands& x) {
  return x.o.shape[0] == 0 || x.o.shape[1] == 0 || x.o.shape[2] == 0 || plan.problem.b == 0;
}

Status run_on_gpu(const PlanData& plan, const Operands& operands, void* workspace, std::size_t bytes, Stream stream) {
  if (Status status = check_device(plan); !status) return status;
  if (Status status = check_workspace(plan, workspace, bytes); !status) return status;
  if (nothing_to_write(plan, operands)) return {};
  if (Status status = check_totals(plan, operands); !status) return status;
  const Operands& x = operands;
  const Pointer pointers[] = {{"q", data_of(x.q)},
                              {"k", data_of(x.k)},
                              {"v", data_of(x.v)},
                              {"o", data_of(x.o)},
                              {"lse", data_of(x.lse)},
                              {"row_max", data_of(x.row_max)},
                              {"probabilities", data_of(x.probabilities)},
                              {"bias", data_of(x.bias)},
                              {"mask", data_of(x.mask)},
                              {"alibi", x.alibi},
                              {"cu_seqlens_q", x.cu_seqlens_q},
                              {"cu_seqlens_k", x.cu_seqlens_k},
                              {"used_q", x.used_q},
                              {"used_k", x.used_k},
                              {"workspace", plan.workspace > 0 ? workspace : nullptr}};
  if (Status status = check_on_device(plan, pointers); !status) return status;
  return launch_on_gpu(plan, operands, workspace, stream);
}

}  // namespace

Status run_attention(const PlanData& plan, const Operands& operands, void* workspace, std::size_t bytes,
                     Stream stream) {
  if (Status status = validate_operands(plan.problem, operands); !status) return status;
  if (on_gpu(plan)) return run_on_gpu(plan, operands, workspace, bytes, stream);
  if (Status status = check_total(plan.problem, operands); !status) return status;
  if (Status status = check_workspace(plan, workspace, bytes); !status) return status;
  if (nothing_to_write(plan, operands)) return {};
  if (plan.backend == Backend::ref) {
    ref::attention_forward(plan.problem, operands, {});
  } else {
    plan.variant->cpu->run(to_args(plan, &operands, workspace));
  }
  return {};
}

}  // namespace falchion
