// src/judge/norm_rows.hpp: what the judges of both passes of a norm share: the memory of the three results, and the
// comparison of each row by itself (see rule.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "falchion/falchion.hpp"
#include "ref/elements.hpp"

namespace falchion::judge {

class NormRowsReference {
 public:
  /// got: the outputs of the problem, anywhere in the host's memory. Returns "" if all are right, else the first error.
  std::string check(const NormOperands& got) const;

 protected:
  struct Output {
    const char* name;
    Tensor NormOperands::*tensor;
    bool wanted;
  };
  /// The inputs, and the outputs in f32.
  struct Result {
    std::vector<std::vector<float>> memory;
    NormOperands view;
  };
  NormRowsReference(const Norm& problem, const NormOperands& x, std::vector<Output> outputs);

  Norm problem_;
  NormOperands inputs_;
  std::vector<Output> outputs_;
  Result exact_, naive_, granted_;  // granted: for each element

 private:
  Result empty() const;
};

/// One row of the inputs.
struct NormRow {
  const Norm& n;
  const NormOperands& x;
  std::int64_t b, s, h;

  double element(const Tensor& of, std::int64_t j) const { return ref::load(of, ref::at(of, b, s, h, j)); }
  double weight(std::int64_t j) const { return n.weight ? (n.zero_centered ? 1 : 0) + element(x.weight, j) : 1; }
  void put(const Tensor& to, std::int64_t j, double value) const { ref::store(to, ref::at(to, b, s, h, j), value); }
};

/// The power of two that brings the largest magnitude of a row, or the root of eps, to about 1.
double norm_naive_scale(float eps, double largest);

template <class Row, class F>
void for_each_row(const Norm& n, const NormOperands& x, const F& f) {
  const auto& shape = x.x.shape;
  for (std::int64_t b = 0; b < shape[0]; ++b)
    for (std::int64_t s = 0; s < shape[1]; ++s)
      for (std::int64_t h = 0; h < shape[2]; ++h) f(Row{{n, x, b, s, h}});
}

}  // namespace falchion::judge
