// tools/ladder/gemm_problem.hpp: the problem of the steps of `falchion ladder gemm`, and its exact result.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "judge/gemm.hpp"
#include "ladder/gemm/step.hpp"
#include "ladder/ladder.hpp"
#include "problem/tensors.hpp"

namespace falchion::tools {

/// The matrices in one type, with random normal numbers. The exact result is known for a sample of the elements of C,
/// by the definition in double, and for each 64 columns of a row, whose sum with random signs needs no C: C s = A (B
/// s), where s is 0 in all other columns. The sum detects errors larger than 64 roundings can add up to. At 4096 x 4096
/// x 4096, where an element is usually some 64, that is 0.006 in f32 and 6 in bf16. So in bf16 a 0 in the place of an
/// element below 6, which 7 % of them are, is not detected. NaN, which C is filled with before a step, always is.
class GemmLadderProblem {
 public:
  GemmLadderProblem(Side side, const ladder::gemm::Problem& problem, DType dtype, std::uint64_t seed);

  const ladder::gemm::Problem& sizes() const { return problem_; }
  Side side() const { return side_; }
  DType dtype() const { return dtype_; }
  ladder::gemm::Tensors tensors(void* workspace) const;
  Gemm gemm() const;              ///< the same for the library
  GemmOperands operands() const;  ///< likewise

  void poison() const { c_.poison(); }
  /// Checks the current C.
  judge::ErrorReport check() const;
  std::string what_is_checked() const;

 private:
  std::int64_t row(std::int64_t n) const;     ///< of the sample's row number n
  std::int64_t column(std::int64_t n) const;  ///< likewise
  std::string wrong_group(const HostTensor& c) const;

  Side side_;
  ladder::gemm::Problem problem_;
  DType dtype_;
  SideMemory a_, b_, c_;
  std::int64_t rows_, columns_;                      // of the sample
  HostTensor sampled_a_, sampled_b_;                 // (1, rows, 1, k), (1, columns, 1, k)
  std::unique_ptr<judge::GemmReference> reference_;  // of the sample
  std::vector<double> signs_;                        // of the columns
  std::vector<double> sums_, limits_;                // right sums (m, groups of columns), and how far off in each row
};

}  // namespace falchion::tools
