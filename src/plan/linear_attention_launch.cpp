// src/plan/linear_attention_launch.cpp: fills a kernel's arguments from a plan of linear attention. It decides nothing.
#include <algorithm>
#include <cstdint>

#include "plan/launch.hpp"
#include "plan/linear_attention.hpp"

namespace falchion {
namespace {

char kThere = 0;  // stands for an operand that there will be

void set_call(const PlanData& plan, const LinearOperands* operands, LinearAttentionCall* args) {
  const LinearAttention& a = plan.linear().problem;
  args->b = a.b;
  args->s = a.s;
  args->h_qk = a.h_qk;
  args->h_v = a.h_v;
  args->d_qk = a.d_qk;
  args->d_v = a.d_v;
  args->packed = a.packed;
  if (a.packed) args->total = a.b * a.s;
  args->scale = a.scale;
  args->eps = a.eps;
  args->elu = a.feature_map == FeatureMap::elu_plus_one;
  args->normalise = a.normalise;
  args->reverse = a.reverse;
  args->decay_by_head = a.decay == Decay::head;
  const LinearOperands none;
  const LinearOperands& x = operands != nullptr ? *operands : none;
  const auto set = [operands](bool wanted, const Tensor& from, View* to) {
    if (wanted) *to = view_of(from);
    if (wanted && operands == nullptr) to->data = &kThere;
  };
  const bool forward = plan.pass == Pass::forward, z = a.normalise;
  set(true, x.q, &args->q);
  set(true, x.k, &args->k);
  set(true, x.v, &args->v);
  set(forward, x.o, &args->o);
  set(a.decay != Decay::none, x.decay, &args->decay);
  set(a.initial_state, x.initial_state, &args->initial_state);
  set(a.initial_state && z, x.initial_z, &args->initial_z);
  set(forward && a.final_state, x.final_state, &args->final_state);
  set(forward && a.final_state && z, x.final_z, &args->final_z);
  if (a.packed && operands != nullptr) {
    args->cu_seqlens = x.cu_seqlens;
    args->total = x.q.shape[1];
  }
  if (forward) return;
  set(true, x.grad_o, &args->grad_o);
  set(a.final_state, x.grad_final_state, &args->grad_final_state);
  set(a.final_state && z, x.grad_final_z, &args->grad_final_z);
  set(true, x.grad_q, &args->grad_q);
  set(true, x.grad_k, &args->grad_k);
  set(true, x.grad_v, &args->grad_v);
  set(a.decay != Decay::none, x.grad_decay, &args->grad_decay);
  set(a.initial_state, x.grad_initial_state, &args->grad_initial_state);
  set(a.initial_state && z, x.grad_initial_z, &args->grad_initial_z);
}

}  // namespace

cpu::LinearAttentionArgs to_linear_args(const PlanData& plan, const LinearOperands* operands,
                                        void* workspace) noexcept {
  cpu::LinearAttentionArgs args;
  set_call(plan, operands, &args);
  if (operands != nullptr && args.packed)  // no more than the workspace holds
    args.total = std::min(args.total, args.b * args.s);
  args.pool = pool_of(plan);
  args.threads = plan.threads;
  args.segments = plan.linear().segments;
  args.segment = plan.linear().segment;
  if (workspace == nullptr) return args;
  const cpu::LinearMemory& memory = plan.linear().memory;
  auto* base = static_cast<std::byte*>(workspace);
  args.states = reinterpret_cast<float*>(base);
  args.scratch = base + aligned(memory.states);
  args.scratch_bytes = aligned(memory.scratch);
  return args;
}

gpu::LinearAttentionArgs to_linear_gpu_args(const PlanData& plan, const LinearOperands* operands, void* workspace,
                                            bool aligned) noexcept {
  gpu::LinearAttentionArgs args;
  set_call(plan, operands, &args);
  args.segments = plan.linear().segments;
  args.segment = plan.linear().segment;
  args.parts = plan.linear().parts;
  args.states = static_cast<float*>(workspace);
  args.aligned = aligned;
  args.wide = plan.linear().wide;
  return args;
}

}  // namespace falchion
