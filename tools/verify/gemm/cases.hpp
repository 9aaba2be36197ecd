// tools/verify/gemm/cases.hpp: the grid of GEMMs of `falchion verify --op gemm`: corner cases first, then ordinary
// ones.
#pragma once

#include <string>
#include <vector>

#include "judge/gemm.hpp"
#include "problem/errors.hpp"
#include "problem/gemm_problem.hpp"

namespace falchion::tools {

struct GemmVerifyCase {
  std::string name;  // what is special about it
  Gemm problem;
  GemmShape shape{};
  const char* nan = "";  // the operand that holds a NaN: "a", "b", "c"

  /// With an 8-bit type d is bf16 where the case does not name its type.
  GemmInstance make(DType dtype, std::uint64_t seed) const;
};

/// `quick` has some 30 small problems. `full` also has larger ones, and every feature on every shape.
std::vector<GemmVerifyCase> gemm_verify_cases(bool full);

/// Runs one path on the instance and checks d.
Verdict verify_gemm(const GemmInstance& instance, const judge::GemmReference& reference, const Target& target);

}  // namespace falchion::tools
