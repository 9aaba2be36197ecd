// python/xla/attention.cpp: softmax attention as an operation of call.hpp.
#include "operations.hpp"

namespace falchion::xla_ffi {
namespace {

using Known = AttentionOperation::Known;
using Operands = fal_operands;
using Problem = fal_attention;

/// Which axes a buffer has, by the shape that fields.def gives to an operand.
struct AxesOf {
  static constexpr Axes q = Axes::rows, k = q, v = q, o = q, loose_o = q;
  static constexpr Axes row_numbers = Axes::statistics, scores = Axes::scores, pairs = scores;
  static constexpr Axes head_numbers = Axes::slopes;
  static constexpr Axes page_table = Axes::whole, rotary = Axes::whole, key_numbers = Axes::whole,
                        query_numbers = Axes::whole, k_new = Axes::rows, v_new = k_new;
};

constexpr Known kNames[] = {
#define FALCHION_OPERAND(name_, in_forward, in_backward, shape, ...)              \
  {.name = #name_,                                                                \
   .axes = AxesOf::shape,                                                         \
   .tensor = &Operands::name_,                                                    \
   .flag = [](auto problem) -> std::uint8_t Problem::* {                          \
     if constexpr (requires { problem.name_; }) return &decltype(problem)::name_; \
     return nullptr;                                                              \
   }(Problem{})},
#define FALCHION_LENGTHS(key, ...) \
  {.name = #key, .axes = Axes::lengths, .lengths = &Operands::key, .flag = &Problem::key},
#include "../../src/base/fields.def"
    {.name = "page_starts", .axes = Axes::starts, .lengths = &Operands::page_starts},
    {.name = "rng", .axes = Axes::rng},
    {.name = "cu_seqlens_q", .axes = Axes::starts, .lengths = &Operands::cu_seqlens_q, .flag = &Problem::packed},
    {.name = "cu_seqlens_k", .axes = Axes::starts, .lengths = &Operands::cu_seqlens_k, .flag = &Problem::packed},
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

/// How many keys a sequence of a cache may have: those that there is room for, of pages at most `longest` where it is
/// not 0.
std::int64_t keys_of_cache(const Problem& problem, const Operands& operands, std::int64_t longest) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  const std::int64_t size = operands.k.shape[1], columns = operands.page_table.shape[1];
  if (problem.page_size == 0) return size;
  const std::int64_t room = columns > kMost / size ? kMost : columns * size;
  return longest > 0 && longest < room ? longest : room;
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
  problem->cache = attributes->flag("cache");
  problem->append = operands->k_new.shape[3] > 0 || operands->v_new.shape[3] > 0;
  problem->rotary_dim = 2 * operands->rotary.shape[3];
  problem->rotary_pairs = attributes->flag("rotary_pairs");
  problem->split_keys = attributes->integer("split_keys");
  if (operands->page_table.shape[2] == 1) problem->page_size = operands->k.shape[1];
  if (problem->cache) problem->s_k = keys_of_cache(*problem, *operands, attributes->integer("max_k"));
  if (!problem->packed) problem->b = operands->q.shape[0];
  problem->band = {attributes->integer("left"), attributes->integer("right"), attributes->code("align"),
                   static_cast<std::int32_t>(attributes->integer("diagonal"))};
#define FIELD_type(key)
#define FIELD_size(key)
#define FIELD_band(key)
#define FIELD_number(key) problem->key = attributes->number(#key);
#define FIELD_tensor(key)
#define FIELD_flag(key) problem->key = attributes->flag(#key);
#define FIELD_packing(key)
#define FALCHION_FIELD(kind, key, ...) FIELD_##kind(key)
#include "../../src/base/fields.def"
  if (problem->bias) broadcast(*problem, &operands->bias);
  if (problem->mask) broadcast(*problem, &operands->mask);
  if (pass == FAL_FORWARD) return;
  problem->lse = 0;  // it is an input here
#define GRADIENT_flag(key) problem->key = attributes->flag(#key);
#define GRADIENT_word(key)
#define GRADIENT_tensor(key)
#define GRADIENT_output(key)
#define FALCHION_BACKWARD_FIELD(kind, key, ...) GRADIENT_##kind(key)
#include "../../src/base/fields.def"
  if (!lists(results, "grad_q")) problem->frozen |= 1;
  if (!lists(results, "grad_k")) problem->frozen |= 2;
}

}  // namespace falchion::xla_ffi
