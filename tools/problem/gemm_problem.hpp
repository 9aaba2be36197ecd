// tools/problem/gemm_problem.hpp: GEMMs of the command: their options, names and random tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command/command.hpp"
#include "falchion/falchion.hpp"
#include "plan/json.hpp"
#include "problem/tensors.hpp"

namespace falchion::tools {

double flop_count(const Gemm& problem);  // 2 m n k for each entry of the batch, with swiglu twice that
double byte_count(const Gemm& problem);  // each tensor once; the batch shares b

std::vector<std::string> activation_names();
Activation parse_activation(const std::string& name);
inline constexpr Scaling kScalings[] = {Scaling::none, Scaling::tensor, Scaling::row_col, Scaling::block128};
Scaling parse_scaling(const std::string& name);

std::string size_name(const Gemm& problem);     // "m16 n4096 k4096", with the batch where it is not 1
std::string feature_name(const Gemm& problem);  // "gemm", "gemm gelu_tanh bias-n"
std::string problem_name(const Gemm& problem);  // both
Json to_json(const Gemm& problem);

/// The options that only GEMMs have. Lists of sizes: every combination.
struct GemmOptions {
  std::vector<std::int64_t> batch, m, n, k;
  std::string activation = "none", scaling = "none";
  bool bias_n = false, residual = false, d_f32 = false;

  void add_to(Command& command);
  bool sizes_given() const { return !m.empty() || !n.empty() || !k.empty() || !batch.empty(); }
  /// One for each type and combination; sizes that are not given are 1024, and the batch 1.
  std::vector<Gemm> expand(const std::vector<std::string>& dtypes) const;

  static constexpr std::initializer_list<const char*> kNames = {
      "--batch", "--m", "--n", "--k", "--activation", "--bias-n", "--residual", "--d-f32", "--scaling"};
};

/// The free choices of a problem's tensors.
struct GemmShape {
  std::int64_t k2 = 1, n2 = 1;  // into how many parts k and n are cut
  bool own_b = false;           // each entry of the batch has its own b; else they share one
};

/// A GEMM with its tensors; d is poisoned with NaN.
struct GemmInstance {
  Gemm problem;
  HostTensor a, b, c, d, residual, bias_n, bias_m, scale_a, scale_b;
  GemmOperands operands() const;
};
/// The tensors are random normal ones.
GemmInstance make_gemm_instance(const Gemm& problem, std::uint64_t seed, const GemmShape& shape = {});

}  // namespace falchion::tools
