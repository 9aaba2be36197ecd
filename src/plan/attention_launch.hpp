// src/plan/attention_launch.hpp: a plan of attention and its operands -> a kernel's arguments.
#pragma once

#include "args/cpu_attention_args.hpp"
#include "args/gpu_attention_args.hpp"
#include "base/fields.hpp"
#include "falchion/falchion.hpp"
#include "plan/launch.hpp"
#include "plan/plan_data.hpp"

namespace falchion {

/// An operand as kernels see it: scores of one key serve all keys.
inline View view_of(const Tensor& x, OperandField::Shape shape) {
  View view = view_of(x);
  if (shape == OperandField::scores && x.shape[3] == 1) view.stride[3] = 0;
  return view;
}

/// What a call has that is no field of the same name: totals, the band, random numbers.
void set_rest(const Attention& problem, const Operands* operands, AttentionCall* call) noexcept;

/// What the call of a pass, AttentionCall or AttentionBackwardCall, has of the problem, and of the operands where they
/// are not null. A field or an operand that a kernel takes is a member of the call, by its own name, and nothing else.
template <class Call>
void set_call(const Attention& a, Pass pass, const Operands* x, Call* call) noexcept {
#define FALCHION_ANY_FIELD(kind, key, member, option, text) \
  if constexpr (FieldKind::kind != FieldKind::band && requires { call->key = a.member; }) { call->key = a.member; }
#define FALCHION_LENGTHS(key, ...) call->key = x != nullptr && a.key ? x->key : nullptr;
#define FALCHION_OPERAND(name, in_forward, in_backward, shape, type, wanted, flag)                                    \
  if constexpr (requires { call->name; }) {                                                                           \
    const auto use = pass == Pass::forward ? OperandField::in_forward : OperandField::in_backward;                    \
    if (x != nullptr && use != OperandField::neither && (wanted)) call->name = view_of(x->name, OperandField::shape); \
  }
#include "base/fields.def"
  set_rest(a, x, call);
}

/// operands null: sizes only, for AttentionKernel::memory (packed totals are then their upper bounds b * s).
/// workspace null: no place for anything yet. Allocates nothing.
cpu::AttentionArgs to_args(const PlanData& plan, const Operands* operands, void* workspace) noexcept;

/// The same for a GPU kernel, that of a choice of the plan.
gpu::AttentionArgs to_gpu_args(const PlanData& plan, const Operands& operands, void* workspace, const Variant& taken,
                               bool aligned) noexcept;

/// The bytes of q after rotary embedding, by the hint s_q where it is packed; 0 without.
std::size_t rotated_bytes(const Attention& a) noexcept;

/// The parts of the workspace in order, each 64-byte aligned: packed K, packed V, scratch of each thread, partials, the
/// rotated q.
struct WorkspaceLayout {
  std::size_t packed_v, scratch, scratch_stride, partials, rotated, total;  // offsets in bytes; packed K lies at 0
};
WorkspaceLayout workspace_layout(const cpu::Memory& memory, int threads) noexcept;

}  // namespace falchion
