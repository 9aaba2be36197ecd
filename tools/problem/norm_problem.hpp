// tools/problem/norm_problem.hpp: norms of the command: their options, names and random tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/names.hpp"
#include "command/command.hpp"
#include "falchion/falchion.hpp"
#include "plan/json.hpp"
#include "problem/operation.hpp"
#include "problem/tensors.hpp"

namespace falchion::tools {

double flop_count(
    const Norm& problem);  // of an element: 3 (rms) or 6 (layer), and 1 for each of weight, bias, residual
double byte_count(const Norm& problem);  // each tensor once

/// A norm's backward pass.
struct NormBackwardProblem : Norm {};
double flop_count(const NormBackwardProblem& problem);  // of an element: 13 (rms) or 16 (layer), likewise
double byte_count(const NormBackwardProblem& problem);
std::string problem_name(const NormBackwardProblem& problem);

std::string size_name(const Norm& problem);     // "rows16384 d4096"
std::string feature_name(const Norm& problem);  // "rms weight residual"
std::string problem_name(const Norm& problem);  // both
Json to_json(const Norm& problem);

inline const std::vector<std::string> kNormKinds = {"layer", "rms"};
inline const std::string kUsualNormKind = name(Norm{}.kind);  // the library's own default, in every subcommand
NormKind parse_norm_kind(const std::string& one_of_them);

/// The options that only norms have. d is that of attention's sizes. Lists of sizes: every combination.
struct NormOptions {
  std::vector<std::int64_t> rows;
  std::string kind = kUsualNormKind;
  bool add_residual = false;

  void add_to(Command& command);
  /// One for each type and combination, with a weight (for layer also a bias) of the type of x. By default rows are
  /// 4096 and d is 4096. In the backward pass the gradient of the sum is added with a residual.
  std::vector<Norm> expand(Op op, const std::vector<std::string>& dtypes, const std::vector<std::int64_t>& d) const;

  static constexpr std::initializer_list<const char*> kNames = {"--rows", "--kind", "--add-residual"};
};

/// A norm with its tensors.
struct NormInstance {
  Norm problem;
  HostTensor x, residual, weight, bias, y, residual_out, mean, rstd;
  HostTensor grad_y, grad_residual_out, grad_x, grad_weight, grad_bias;
  NormOperands operands() const;
};
/// Rows of (1, rows, 1, d), random normal ones, without mean and rstd; outputs are poisoned with NaN.
NormInstance make_norm_instance(const Norm& problem, std::uint64_t seed);
/// The same of the backward pass, with all gradients.
NormInstance make_norm_backward_instance(const NormBackwardProblem& problem, std::uint64_t seed);

}  // namespace falchion::tools
