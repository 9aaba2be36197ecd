// tools/verify/attention/cases.hpp: the grid of `falchion verify`: corner cases first, then ordinary ones.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "problem/instance.hpp"

namespace falchion::tools {

struct VerifyCase {
  std::string name;  // what is special about it
  Attention problem;
  std::vector<std::int64_t> lengths_q, lengths_k;  // the case is packed when these are not empty
  std::function<void(Instance*)> plant = nullptr;  // changes the random inputs

  Instance make(DType dtype, std::uint64_t seed) const;
};

/// `quick` has some 35 small problems. `full` also has longer ones and every feature on every shape.
std::vector<VerifyCase> verify_cases(bool full);
/// The same problems, with the features of the backward pass.
std::vector<VerifyCase> verify_backward_cases(bool full);

}  // namespace falchion::tools
