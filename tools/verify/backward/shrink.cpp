// tools/verify/backward/shrink.cpp: what may be simpler in a problem of softmax attention's backward pass.
#include "verify/shrink_steps.hpp"

namespace falchion::tools::storm {

void simplify_attention_backward(const Problem& from, Steps* steps) {
  for (bool Attention::*which : {&Attention::grad_bias, &Attention::grad_alibi, &Attention::grad_lse,
                                 &Attention::any_order, &Attention::zero_unused})
    offer(from, steps, [&](Problem& p) { p.attention.*which = false; });
  offer(from, steps, [](Problem& p) { p.attention.grads = Grads::rounded; });
  offer(from, steps, [](Problem& p) { p.attention.frozen = 0; });
  offer(from, steps, [](Problem& p) { p.grad_bias = {}; });
  offer(from, steps, [](Problem& p) { p.grad_alibi_by_batch = false; });
  offer(from, steps, [](Problem& p) { p.data.grad = 1; });
  offer(from, steps, [](Problem& p) { p.data.state = Data{}.state; });
  simplify_attention(from, steps);
}

}  // namespace falchion::tools::storm
