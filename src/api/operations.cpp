// src/api/operations.cpp: the table of operations.
#include <iterator>

#include "plan/operation.hpp"

namespace falchion {

std::span<const std::reference_wrapper<const Operation>> operations() {
  static const std::reference_wrapper<const Operation> kAll[] = {
      kAttentionForward, kAttentionBackward, kLinearAttentionForward, kLinearAttentionBackward, kGemm, kNorm,
      kNormBackward,     kQuantise};
  return kAll;
}

}  // namespace falchion
