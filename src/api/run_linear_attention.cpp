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
  if (!plan.linear->problem.packed) return {};
  if (x.q.shape[1] > kMost)
    return {Code::invalid, text("q.shape[1] = ", x.q.shape[1], " packed rows are over the limit of ", kMost)};
  const LinearAttention& a = plan.linear->problem;
  if (plan.workspace == 0 || x.q.shape[1] <= a.b * a.s) return {};
  return {Code::invalid, text("q.shape[1] = ", x.q.shape[1], " is over b * s = ", a.b * a.s, kTooLong)};
}

Status check_operand_places(const PlanData& plan, const LinearOperands& x, const void* workspace) {
  const bool forward = plan.pass == Pass::forward;
  const auto of = [](bool here, const Tensor& t) { return here ? data_of(t) : nullptr; };
  const Pointer pointers[] = {{"q", data_of(x.q)},
                              {"k", data_of(x.k)},
                              {"v", data_of(x.v)},
                              {"decay", data_of(x.decay)},
                              {"initial_state", data_of(x.initial_state)},
                              {"initial_z", data_of(x.initial_z)},
                              {"cu_seqlens", x.cu_seqlens},
                              {"o", of(forward, x.o)},
                              {"final_state", of(forward, x.final_state)},
                              {"final_z", of(forward, x.final_z)},
                              {"grad_o", of(!forward, x.grad_o)},
                              {"grad_final_state", of(!forward, x.grad_final_state)},
                              {"grad_final_z", of(!forward, x.grad_final_z)},
                              {"grad_q", of(!forward, x.grad_q)},
                              {"grad_k", of(!forward, x.grad_k)},
                              {"grad_v", of(!forward, x.grad_v)},
                              {"grad_decay", of(!forward, x.grad_decay)},
                              {"grad_initial_state", of(!forward, x.grad_initial_state)},
                              {"grad_initial_z", of(!forward, x.grad_initial_z)},
                              {"workspace", plan.workspace > 0 ? workspace : nullptr}};
  return check_places(plan, pointers);
}

Status run_on_gpu(const PlanData& plan, const LinearOperands& x, void* workspace, std::size_t bytes, Stream stream) {
  const cuda::OnDevice device(plan.gpu.ordinal);
  if (!device.status()) return device.status();
  if (Status status = check_device(plan); !status) return status;
  if (Status status = check_workspace(plan, workspace, bytes); !status) return status;
  if (plan.items == 0) return {};
  if (Status status = check_rows(plan, x); !status) return status;
  if (Status status = check_operand_places(plan, x, workspace); !status) return status;
  const auto [row, aligned] = linear_gpu_row(plan, x);
  if (row == nullptr) {
    const bool forward = plan.pass == Pass::forward;
    const LinearAttention& a = plan.linear->problem;
    const NamedTensor forwards[] = {{"q", &x.q}, {"k", &x.k}, {"v", &x.v}, {"o", &x.o}};
    const NamedTensor gradients[] = {{"q", &x.q},           {"k", &x.k},           {"v", &x.v},
                                     {"grad_o", &x.grad_o}, {"grad_q", &x.grad_q}, {"grad_k", &x.grad_k},
                                     {"grad_v", &x.grad_v}};
    return no_row_for(a.dtype, a.d_qk, a.d_v, forward ? std::span<const NamedTensor>(forwards) : gradients);
  }
  return launched(row->linear_gpu->launch(to_linear_gpu_args(plan, &x, workspace, aligned), stream));
}

/// The lengths lie on the host here.
Status check_total(const LinearAttention& a, const LinearOperands& x) {
  if (!a.packed || x.cu_seqlens[a.b] <= a.b * a.s) return {};
  return {Code::invalid, text("cu_seqlens[", a.b, "] = ", x.cu_seqlens[a.b], " is over b * s = ", a.b * a.s, kTooLong)};
}

Status run_on_host(const PlanData& plan, const LinearOperands& x, void* workspace, std::size_t bytes) {
  const LinearAttention& a = plan.linear->problem;
  if (Status status = check_workspace(plan, workspace, bytes); !status) return status;
  if (a.b == 0 || a.h_v == 0) return {};
  if (Status status = check_operand_places(plan, x, workspace); !status) return status;
  if (Status status = check_total(a, x); !status) return status;
  if (plan.backend == Backend::cpu) {
    plan.variant->linear_cpu->run(to_linear_args(plan, &x, workspace));
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
  if (Status status = validate_operands(plan.linear->problem, plan.pass, x); !status) return status;
  return on_gpu(plan) ? run_on_gpu(plan, x, workspace, bytes, stream) : run_on_host(plan, x, workspace, bytes);
}

}  // namespace falchion
