// python/xla/linear_attention.cpp: causal linear attention as an operation of call.hpp.
#include "operations.hpp"

namespace falchion::xla_ffi {
namespace {

using Known = LinearOperation::Known;
using Operands = fal_linear_operands;
using Problem = fal_linear_attention;

constexpr Known kNames[] = {
    {.name = "q", .axes = Axes::rows, .tensor = &Operands::q},
    {.name = "k", .axes = Axes::rows, .tensor = &Operands::k},
    {.name = "v", .axes = Axes::rows, .tensor = &Operands::v},
    {.name = "o", .axes = Axes::rows, .tensor = &Operands::o},
    {.name = "decay", .axes = Axes::by_token, .tensor = &Operands::decay},
    {.name = "initial_state", .axes = Axes::state, .tensor = &Operands::initial_state, .flag = &Problem::initial_state},
    {.name = "initial_z", .axes = Axes::state_z, .tensor = &Operands::initial_z},
    {.name = "final_state", .axes = Axes::state, .tensor = &Operands::final_state, .flag = &Problem::final_state},
    {.name = "final_z", .axes = Axes::state_z, .tensor = &Operands::final_z},
    {.name = "cu_seqlens", .axes = Axes::starts, .lengths = &Operands::cu_seqlens, .flag = &Problem::packed},
    {.name = "grad_o", .axes = Axes::rows, .tensor = &Operands::grad_o},
    {.name = "grad_final_state",
     .axes = Axes::state,
     .tensor = &Operands::grad_final_state,
     .flag = &Problem::final_state},
    {.name = "grad_final_z", .axes = Axes::state_z, .tensor = &Operands::grad_final_z},
    {.name = "grad_q", .axes = Axes::rows, .tensor = &Operands::grad_q},
    {.name = "grad_k", .axes = Axes::rows, .tensor = &Operands::grad_k},
    {.name = "grad_v", .axes = Axes::rows, .tensor = &Operands::grad_v},
    {.name = "grad_decay", .axes = Axes::by_token, .tensor = &Operands::grad_decay},
    {.name = "grad_initial_state", .axes = Axes::state, .tensor = &Operands::grad_initial_state},
    {.name = "grad_initial_z", .axes = Axes::state_z, .tensor = &Operands::grad_initial_z},
};

}  // namespace

const Known* LinearOperation::find(std::string_view name) {
  for (const Known& known : kNames) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

void LinearOperation::complete(std::int32_t, std::string_view, Attributes* attributes, Operands* operands,
                               Problem* problem) {
  problem->dtype = operands->q.dtype;
  problem->h_qk = operands->q.shape[2];
  problem->h_v = operands->v.shape[2];
  problem->d_qk = operands->q.shape[3];
  problem->d_v = operands->v.shape[3];
  problem->s = problem->packed ? attributes->integer("max_s") : operands->q.shape[1];
  if (!problem->packed) problem->b = operands->q.shape[0];
  problem->scale = attributes->number("scale");
  problem->eps = attributes->number("eps");
  problem->feature_map = attributes->code("feature_map");
  problem->decay = attributes->code("decay");
  problem->normalise = attributes->flag("normalise");
  problem->reverse = attributes->flag("reverse");
}

}  // namespace falchion::xla_ffi
