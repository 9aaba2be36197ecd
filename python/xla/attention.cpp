// python/xla/attention.cpp: softmax attention as an operation of call.hpp.
#include "operations.hpp"

namespace falchion::xla_ffi {
namespace {

using Known = AttentionOperation::Known;
using Operands = fal_operands;
using Problem = fal_attention;

constexpr Known kNames[] = {
    {.name = "q", .axes = Axes::rows, .tensor = &Operands::q},
    {.name = "k", .axes = Axes::rows, .tensor = &Operands::k},
    {.name = "v", .axes = Axes::rows, .tensor = &Operands::v},
    {.name = "o", .axes = Axes::rows, .tensor = &Operands::o},
    {.name = "lse", .axes = Axes::statistics, .tensor = &Operands::lse, .flag = &Problem::lse},
    {.name = "alibi", .axes = Axes::slopes, .tensor = &Operands::alibi, .flag = &Problem::alibi},
    {.name = "bias", .axes = Axes::scores, .tensor = &Operands::bias, .flag = &Problem::bias},
    {.name = "mask", .axes = Axes::scores, .tensor = &Operands::mask, .flag = &Problem::mask},
    {.name = "rng", .axes = Axes::rng},
    {.name = "cu_seqlens_q", .axes = Axes::starts, .lengths = &Operands::cu_seqlens_q, .flag = &Problem::packed},
    {.name = "cu_seqlens_k", .axes = Axes::starts, .lengths = &Operands::cu_seqlens_k, .flag = &Problem::packed},
    {.name = "used_q", .axes = Axes::lengths, .lengths = &Operands::used_q, .flag = &Problem::used_q},
    {.name = "used_k", .axes = Axes::lengths, .lengths = &Operands::used_k, .flag = &Problem::used_k},
    {.name = "first_k", .axes = Axes::lengths, .lengths = &Operands::first_k, .flag = &Problem::first_k},
    {.name = "grad_o", .axes = Axes::rows, .tensor = &Operands::grad_o},
    {.name = "grad_lse", .axes = Axes::statistics, .tensor = &Operands::grad_lse, .flag = &Problem::grad_lse},
    {.name = "grad_q", .axes = Axes::rows, .tensor = &Operands::grad_q},
    {.name = "grad_k", .axes = Axes::rows, .tensor = &Operands::grad_k},
    {.name = "grad_v", .axes = Axes::rows, .tensor = &Operands::grad_v},
    {.name = "grad_bias", .axes = Axes::scores, .tensor = &Operands::grad_bias, .flag = &Problem::grad_bias},
    {.name = "grad_alibi", .axes = Axes::slopes, .tensor = &Operands::grad_alibi, .flag = &Problem::grad_alibi},
};

bool lists(std::string_view names, std::string_view wanted) {
  while (!names.empty()) {
    if (next_name(&names) == wanted) return true;
  }
  return false;
}

/// An axis of one element of a bias or mask stands for all of that axis.
void broadcast(const Problem& problem, fal_tensor* x) {
  const std::int64_t full[4] = {problem.b, problem.h_q, problem.s_q, problem.s_k};
  for (int axis = 0; axis < 4; ++axis) {
    if (x->shape[axis] != 1) continue;
    x->shape[axis] = full[axis];
    x->stride[axis] = 0;
  }
}

}  // namespace

const Known* AttentionOperation::find(std::string_view name) {
  for (const Known& known : kNames) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

void AttentionOperation::complete(std::int32_t pass, std::string_view results, Attributes* attributes,
                                  Operands* operands, Problem* problem) {
  problem->dtype = operands->q.dtype;
  problem->h_q = operands->q.shape[2];
  problem->h_k = operands->k.shape[2];
  problem->d_qk = operands->q.shape[3];
  problem->d_v = operands->v.shape[3];
  problem->s_q = problem->packed ? attributes->integer("max_q") : operands->q.shape[1];
  problem->s_k = problem->packed ? attributes->integer("max_k") : operands->k.shape[1];
  if (!problem->packed) problem->b = operands->q.shape[0];
  problem->band = {attributes->integer("left"), attributes->integer("right"), attributes->code("align"),
                   static_cast<std::int32_t>(attributes->integer("diagonal"))};
  problem->scale = attributes->number("scale");
  problem->softcap = attributes->number("softcap");
  problem->dropout = attributes->number("dropout");
  if (problem->bias) broadcast(*problem, &operands->bias);
  if (problem->mask) broadcast(*problem, &operands->mask);
  if (pass == FAL_FORWARD) return;
  problem->lse = 0;  // it is an input here
  problem->any_order = attributes->flag("any_order");
  problem->zero_unused = problem->packed || problem->used_q || problem->used_k || problem->first_k;
  if (!lists(results, "grad_q")) problem->frozen |= 1;
  if (!lists(results, "grad_k")) problem->frozen |= 2;
}

}  // namespace falchion::xla_ffi
