// tools/verify/backward/shrink.cpp: what may be simpler in a problem of softmax attention's backward pass.
#include "base/fields.hpp"
#include "verify/shrink_steps.hpp"

namespace falchion::tools::storm {

void simplify_attention_backward(const Problem& from, Steps* steps) {
  each_field(from.attention, [&](const Field& field, const auto&) {
    if (!field.forward) offer(from, steps, [&](Problem& p) { reset(&p.attention, field); });
  });
  offer(from, steps, [](Problem& p) { p.grad_bias = {}; });
  offer(from, steps, [](Problem& p) { p.grad_alibi_by_batch = false; });
  offer(from, steps, [](Problem& p) { p.grad_sinks_by_batch = false; });
  offer(from, steps, [](Problem& p) { p.data.grad = 1; });
  offer(from, steps, [](Problem& p) { p.data.state = Data{}.state; });
  simplify_attention(from, steps);
}

}  // namespace falchion::tools::storm
