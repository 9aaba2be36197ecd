// tools/verify/grid.hpp: runs the tables of problems (cases.hpp), or given tensors, on each path of this machine.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "problem/errors.hpp"
#include "problem/instance.hpp"
#include "problem/levels.hpp"
#include "problem/operation.hpp"
#include "problem/problem_options.hpp"

namespace falchion::tools {

/// The request.
struct Grid {
  std::vector<Op> ops;  // of Kind::attention and Kind::gemm
  std::vector<DType> types;
  bool full = false;
  std::string match;
  std::uint64_t seed = 1;
  TargetOptions where;
};

/// One case on one path.
struct Row {
  std::string name;
  Op op;
  std::variant<Attention, Gemm> problem;
  Path path;
  Verdict verdict;
  DType dtype() const;
  std::string problem_text() const;  ///< "b1 h2 s48 d64 causal", "b1 h2 s48 d64 causal backward"
  Json problem_json() const;
};

/// In the backward pass o and lse come from a forward pass, and grad_o is random.
void verify_instance(const std::string& name, Op op, const Instance& instance, const Grid& grid,
                     std::vector<Row>* rows);
/// Throws UsageError if no case is left.
std::vector<Row> verify_grid(const Grid& grid);

}  // namespace falchion::tools
