// tools/verify/norm_backward/shrink.cpp: what may be simpler in the gradients of a norm.
#include "verify/shrink_steps.hpp"

namespace falchion::tools::storm {

void simplify_norm_backward(const Problem& from, Steps* steps) {
  for (const int frozen : {0, 1, 2})
    offer(from, steps, [&](Problem& p) { p.norm.frozen = static_cast<std::uint8_t>(frozen); });
  offer(from, steps, [](Problem& p) { p.grad_weight_dtype = p.grad_bias_dtype = DType::f32; });
  simplify_norm(from, steps);
}

}  // namespace falchion::tools::storm
