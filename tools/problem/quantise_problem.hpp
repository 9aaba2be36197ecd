// tools/problem/quantise_problem.hpp: Quantise of the command: its options, names and random tensors.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "command/command.hpp"
#include "falchion/falchion.hpp"
#include "plan/json.hpp"
#include "problem/tensors.hpp"

namespace falchion::tools {

double flop_count(const Quantise& problem);  // of an element: 3, and 1 for the mean, and log2 of the rotation's side
double byte_count(const Quantise& problem);  // each tensor once

std::string size_name(const Quantise& problem);     // "b1 h16 s4096 d128"
std::string feature_name(const Quantise& problem);  // "to e4m3 rows1 rotated"
std::string problem_name(const Quantise& problem);  // both
Json to_json(const Quantise& problem);

/// The options that only Quantise has. Its sizes are those of q.
struct QuantiseOptions {
  std::string to = "e4m3";
  std::int64_t tokens = 1;
  bool smooth = false, rotate = false;

  void add_to(Command& command);
  bool given() const { return to != "e4m3" || tokens != 1 || smooth || rotate; }
  Quantise problem(const Attention& sizes) const;

  static constexpr std::initializer_list<const char*> kNames = {"--to", "--tokens-a-scale", "--smooth", "--rotate"};
};

/// With its tensors.
struct QuantiseInstance {
  Quantise problem;
  HostTensor x, mean, scale, y;
  QuantiseOperands operands() const;
};
/// Random normal numbers; scale, mean and y are outputs.
QuantiseInstance make_quantise_instance(const Quantise& problem, std::uint64_t seed);

}  // namespace falchion::tools
