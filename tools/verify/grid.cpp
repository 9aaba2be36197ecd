// tools/verify/grid.cpp: see grid.hpp.
#include "verify/grid.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <type_traits>

#include "command/interrupt.hpp"
#include "plan/text.hpp"
#include "problem/backward.hpp"
#include "problem/work.hpp"
#include "tool.hpp"
#include "verify/attention/cases.hpp"
#include "verify/gemm/cases.hpp"
#include "verify/paths.hpp"

namespace falchion::tools {
namespace {

std::vector<Path> chosen_paths(const Grid& grid, Op op, DType dtype) {
  const Backend backend = parse_backend(grid.where.backend);
  if (!grid.where.level.empty()) return {{Backend::cpu, grid.where.level}};
  const char* operation = entry_of(op).operation;
  std::vector<Path> out;
  if (backend == Backend::best) out = usable_gpu_paths(dtype, operation);
  if (backend == Backend::best || backend == Backend::cpu)
    for (const Path& path : usable_paths(dtype, backend == Backend::best, true, operation)) out.push_back(path);
  if (out.empty()) return {{backend, ""}};
  return out;
}

/// Whether a case is skipped for sm90: Hopper's own variants were not requested and do not accept it. It runs on those
/// of sm80, which are verified too.
template <class Problem>
bool left_to_sm80(const Grid& grid, Op op, const Problem& problem, const Path& path) {
  if (path.backend != Backend::sm90 || parse_backend(grid.where.backend) != Backend::best) return false;
  Plan plan;
  if constexpr (std::is_same_v<Problem, Gemm>) {
    return Plan::make(problem, path.target(1), &plan).code == Code::unsupported;
  } else {
    return Plan::make(problem, pass_of(op), path.target(1), &plan).code == Code::unsupported;
  }
}

template <class Problem, class Verify>
void verify_paths(const std::string& name, Op op, const Problem& problem, const Grid& grid, const Verify& verify,
                  std::vector<Row>* rows) {
  for (const Path& path : chosen_paths(grid, op, problem.dtype)) {
    if (interrupted()) return;
    if (left_to_sm80(grid, op, problem, path)) continue;
    rows->push_back({name, op, problem, path, verify(path.target(static_cast<int>(grid.where.threads)))});
  }
}

void verify_gemm_instance(const std::string& name, const GemmInstance& instance, const Grid& grid,
                          std::vector<Row>* rows) {
  const judge::GemmReference reference(instance.problem, instance.operands());
  verify_paths(
      name, Op::gemm, instance.problem, grid,
      [&](const Target& target) { return verify_gemm(instance, reference, target); }, rows);
}

/// Makes and verifies the cases whose names contain the filter.
template <class Case, class Verify>
void verify_cases_of(const std::vector<Case>& cases, const Grid& grid, const Verify& verify) {
  const bool live = isatty(STDERR_FILENO) != 0;
  std::size_t done = 0;
  for (const Case& item : cases) {
    if (live) fmt::print(stderr, "\r\033[K{}/{} {}", ++done, cases.size(), item.name);
    if (item.name.find(grid.match) == std::string::npos) continue;
    for (const DType dtype : grid.types)
      if (!interrupted()) verify(item.name, item.make(dtype, grid.seed));
  }
  if (live) fmt::print(stderr, "\r\033[K");
}

}  // namespace

DType Row::dtype() const {
  return std::visit([](const auto& x) { return x.dtype; }, problem);
}

std::string Row::problem_text() const {
  if (const Gemm* gemm = std::get_if<Gemm>(&problem)) return problem_name(*gemm);
  const Attention& a = *std::get_if<Attention>(&problem);
  return pass_of(op) == Pass::backward ? problem_name(BackwardProblem{a}) : problem_name(a);
}

Json Row::problem_json() const {
  if (const Gemm* gemm = std::get_if<Gemm>(&problem)) return to_json(*gemm);
  const Attention& a = *std::get_if<Attention>(&problem);
  return pass_of(op) == Pass::backward ? to_json(BackwardProblem{a}) : to_json(a);
}

void verify_instance(const std::string& name, Op op, const Instance& instance, const Grid& grid,
                     std::vector<Row>* rows) {
  const Attention& a = instance.problem;
  if (pass_of(op) == Pass::backward) {
    const BackwardInputs inputs = make_backward_inputs(instance, grid.seed);
    const BackwardReference reference(instance, inputs);
    verify_paths(
        name, op, a, grid, [&](const Target& target) { return reference.verify(target); }, rows);
    return;
  }
  const Reference reference(instance);
  verify_paths(
      name, op, a, grid, [&](const Target& target) { return verify_path(instance, reference, target); }, rows);
}

std::vector<Row> verify_grid(const Grid& grid) {
  std::vector<Row> rows;
  for (const Op op : grid.ops) {
    if (op == Op::gemm) {
      verify_cases_of(gemm_verify_cases(grid.full), grid, [&](const std::string& name, const GemmInstance& x) {
        verify_gemm_instance(name, x, grid, &rows);
      });
      continue;
    }
    const auto cases = pass_of(op) == Pass::backward ? verify_backward_cases(grid.full) : verify_cases(grid.full);
    verify_cases_of(cases, grid,
                    [&](const std::string& name, const Instance& x) { verify_instance(name, op, x, grid, &rows); });
  }
  if (rows.empty() && !interrupted()) throw UsageError{"no case is left to verify"};
  return rows;
}

}  // namespace falchion::tools
