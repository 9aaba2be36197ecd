// src/judge/gemm.hpp: judges D of a GEMM by the definition in double (rule.hpp says how). The naive computation sums in
// f32 in the order of k and does what follows in f32. Where sums cancel it may be lucky, so an error also passes that
// the definition makes when a, b, c and the biases are moved by half a unit of f32.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "falchion/falchion.hpp"
#include "judge/rule.hpp"

namespace falchion::judge {

class GemmReference {
 public:
  /// x are operands in the host's memory, in the problem's types or f32, which must not change while this object lives.
  /// Of d only the shape counts.
  GemmReference(const Gemm& problem, const GemmOperands& x);

  /// got: a d of the problem, anywhere in the host's memory.
  ErrorReport check(const Tensor& got) const;
  const Tensor& exact() const { return exact_.view; }

 private:
  struct Result {
    std::vector<float> memory;
    Tensor view{};
  };
  Result empty() const;
  Result definition(const GemmOperands& inputs) const;
  Result naive() const;
  double granted() const;

  Gemm problem_;
  GemmOperands inputs_;
  Result exact_, naive_;
  double naive_error_ = 0, largest_ = 0;
  mutable double granted_ = -1;  // below 0: not computed yet
};

}  // namespace falchion::judge
