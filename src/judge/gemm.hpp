// src/judge/gemm.hpp: judges D of a GEMM by the definition in double (see rule.hpp). The naive computation sums in f32
// in the order of k and computes the epilogue in f32. With few elements its error may be unusually small, so an error
// also passes that the roundings of any sum in f32 can cause: three of them at the magnitude of the terms, times the
// root of k / 64 if that is more, carried through the activation. (With swiglu, where two sums multiply each other, 3
// of 300 small problems missed the limit of the naive computation alone, by noise of 6.7e-7 of the value.) Sums of i8
// are exact, so only their epilogue is granted an error, and in i32 nothing is. Sums of e4m3 on Hopper's tensor cores
// are also granted the error of promoted_sums.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "falchion/falchion.hpp"
#include "judge/rule.hpp"

namespace falchion::judge {

/// How sums of e4m3 are computed: f32 all along, or f32 after each 128 of k, as on Hopper's tensor cores.
enum class Sums { f32, promoted };

class GemmReference {
 public:
  /// x are operands in the host's memory, in the problem's types or f32, which must not change while this object lives.
  /// Of d only the shape is read.
  GemmReference(const Gemm& problem, const GemmOperands& x);

  /// got: a d of the problem, anywhere in the host's memory.
  ErrorReport check(const Tensor& got, Sums sums = Sums::f32) const;
  const Tensor& exact() const { return exact_.view; }

 private:
  struct Result {
    std::vector<float> memory;  // of D in i32 its bits
    Tensor view{};
  };
  Result empty(const std::array<std::int64_t, 4>& shape, DType dtype) const;
  Result definition(const Gemm& problem, const GemmOperands& inputs) const;
  Result naive() const;
  /// Z without the activation, computed from the magnitudes of all terms.
  Result magnitudes(Gemm problem, GemmOperands inputs) const;
  /// The error granted to each element of `sums` (Z, without an activation), beside the roundings of f32.
  std::vector<double> cut_off_of(const Gemm& sums, const GemmOperands& x) const;
  /// Whether the error of promoted sums may change the sign of the sum behind an element of D, or make it 0. An
  /// infinite scale then gives either infinity, or NaN; without one the answer is no.
  bool may_cancel(const std::array<std::int64_t, 4>& at) const;
  /// The largest change of an element of D by the roundings of f32, and of promoted sums.
  double granted(Sums sums) const;

  Gemm problem_;
  GemmOperands inputs_;
  Result exact_, naive_;
  double naive_error_ = 0, largest_ = 0;
  mutable std::array<double, 2> granted_{-1, -1};  // of both kinds of sums; below 0: not computed yet
};

}  // namespace falchion::judge
