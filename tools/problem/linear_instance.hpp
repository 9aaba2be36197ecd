// tools/problem/linear_instance.hpp: a problem of linear attention with random tensors, and what one run of it writes.
#pragma once

#include <cstdint>
#include <vector>

#include "problem/tensors.hpp"
#include "problem/work.hpp"

namespace falchion::tools {

struct LinearInstance {
  HostTensor q, k, v, decay, grad_o;                 // inputs
  HostTensor o, grad_q, grad_k, grad_v, grad_decay;  // outputs, poisoned with NaN: an element nobody wrote is seen

  LinearOperands operands() const;
  std::vector<const HostTensor*> outputs() const;  ///< those of the pass that have rows of tokens
};

/// Random normal inputs. Decays are as models have them: 1 - 2^(-5 - h) for each
/// head (retention), or e^(-|x| / 10) for each token.
LinearInstance make_linear_instance(const LinearProblem& problem, std::uint64_t seed, Layout layout = Layout::bshd);

}  // namespace falchion::tools
