// tools/verify/backward/draw.cpp: random problems of attention's backward pass: those of the forward pass, with the
// features of this pass.
#include <string_view>

#include "verify/draw.hpp"

namespace falchion::tools::storm {
namespace {

void draw_wanted(Dice* dice, Problem* p) {
  Attention& a = p->attention;
  a.any_order = dice->chance(0.3);
  a.grads = dice->pick({Grads::rounded, Grads::rounded, Grads::rounded, Grads::f32, Grads::accumulate});
  a.zero_unused = dice->chance(0.25) && a.grads != Grads::accumulate;
  if (dice->chance(0.25)) a.frozen = static_cast<std::uint8_t>(dice->between(1, 3));
  a.grad_lse = dice->chance(0.3);
  a.grad_bias = a.bias && dice->chance(0.7);
  p->grad_bias.one = static_cast<unsigned>(dice->chance(0.3) ? 0 : dice->between(1, 15));
  a.grad_alibi = a.alibi && dice->chance(0.7);
  p->grad_alibi_by_batch = dice->chance(0.5);
  a.grad_sinks = a.sinks && dice->chance(0.8);
  p->grad_sinks_by_batch = dice->chance(0.3);
}

void draw_storages(Dice* dice, Problem* p) {
  p->storage["o"] = draw_storage(dice, true, true);
  p->storage["lse"] = draw_storage(dice, false, true);
  p->storage["lse"].zero = 0;  // rows that shared one lse would have probabilities far above 1
  p->storage["grad_o"] = draw_storage(dice, false, true);
  if (dice->chance(0.1)) p->storage["grad_o"] = {.zero = dice->pick({15U, 15U, 8U, 7U})};  // that of a plain sum of o
  p->storage["grad_lse"] = draw_storage(dice, false, true);
  for (const char* operand : {"grad_q", "grad_k", "grad_v"}) p->storage[operand] = draw_storage(dice, true, false);
  for (const char* operand : {"grad_bias", "grad_alibi", "grad_sinks"})
    p->storage[operand] = draw_storage(dice, false, false);
#define FALCHION_FORWARD_FIELD(kind, key, member, option, text) \
  if (std::string_view(#key) != "lse") p->storage.erase(#key);
#include "base/fields.def"
  if (dice->chance(0.4)) p->storage.clear();
}

void draw_data(Dice* dice, Problem* p) {
  Data& data = p->data;
  if (dice->chance(0.1)) data.grad = dice->pick({100.F, 1e-3F});
  if (dice->chance(0.5)) data.state = dice->pick<const char*>({"merged", "merged", "any", "gone"});
  if (dice->chance(0.04))
    data.plant.emplace_back(
        dice->pick<const char*>({"nan_o", "nan_lse", "inf_lse", "nan_grad_o", "inf_grad_o", "nan_grad_lse"}));
}

}  // namespace

void draw_attention_backward(Dice* dice, Problem* p) {
  draw_attention(dice, p);
  draw_wanted(dice, p);
  draw_storages(dice, p);
  draw_data(dice, p);
}

}  // namespace falchion::tools::storm
