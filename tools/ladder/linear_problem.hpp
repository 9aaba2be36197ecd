// tools/ladder/linear_problem.hpp: the problem of the steps of `falchion ladder linear`, and its exact result.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ladder/ladder.hpp"
#include "ladder/linear/step.hpp"
#include "problem/tensors.hpp"

namespace falchion::tools {

/// The problem with its tensors in every type that a step uses, and the exact result of a sample of its heads. The
/// tensors are random normal numbers that are exact in bf16, so the exact result is the same for all types.
class LinearLadderProblem {
 public:
  LinearLadderProblem(Side side, const ladder::linear::Problem& problem, std::uint64_t seed);

  const ladder::linear::Problem& sizes() const { return problem_; }
  Side side() const { return side_; }
  DType library_dtype() const { return side_ == Side::gpu ? DType::bf16 : DType::f32; }
  ladder::linear::Tensors tensors(DType dtype, void* workspace) const;
  LinearAttention attention() const;  ///< the same for the library
  LinearOperands operands() const;    ///< likewise

  /// Bytes of q, k, v and o, each once.
  double bytes(DType dtype) const;
  void poison(DType dtype) const { memory(dtype).o.poison(); }
  /// The check of the current O: every element written; the sampled heads within the limit.
  struct Check {
    double error = 0, limit = 0;  // RMS of the errors of 64 tokens over that of the exact values, the worst
    std::string wrong{};          // empty: passed
  };
  Check check(DType dtype) const;
  std::string what_is_checked() const;

 private:
  struct Memory {
    SideMemory q, k, v, o;
    Memory(Side side, std::size_t qk_bytes, std::size_t v_bytes)
        : q(side, qk_bytes), k(side, qk_bytes), v(side, v_bytes), o(side, v_bytes) {}
  };
  const Memory& memory(DType dtype) const { return dtype == DType::f32 ? f32_ : *bf16_; }
  Shape qk_shape() const { return {problem_.b, problem_.s, problem_.h, problem_.d_qk}; }
  Shape v_shape() const { return {problem_.b, problem_.s, problem_.h, problem_.d_v}; }
  int head(std::int64_t n) const;  ///< the sample's head number n
  void make_exact(const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v);

  Side side_;
  ladder::linear::Problem problem_;
  Memory f32_;
  std::unique_ptr<Memory> bf16_;  // on the GPU
  std::int64_t heads_;            // sampled
  HostTensor exact_;              // (heads, s, 1, d_v) f32
};

}  // namespace falchion::tools
