// tools/verify/grid.cpp: see grid.hpp.
#include "verify/grid.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include "plan/text.hpp"
#include "problem/backward.hpp"
#include "problem/work.hpp"
#include "tool.hpp"
#include "verify/cases.hpp"
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

/// Whether a case is left out for sm90: nobody asked for Hopper's own variants, and they do not take this case. It runs
/// on those of sm80, which are verified too.
bool left_to_sm80(const Grid& grid, Op op, const Attention& problem, const Path& path) {
  if (path.backend != Backend::sm90 || parse_backend(grid.where.backend) != Backend::best) return false;
  Plan plan;
  return Plan::make(problem, pass_of(op), path.target(1), &plan).code == Code::unsupported;
}

template <class Verify>
void verify_paths(const std::string& name, Op op, const Attention& problem, const Grid& grid, const Verify& verify,
                  std::vector<Row>* rows) {
  for (const Path& path : chosen_paths(grid, op, problem.dtype)) {
    if (left_to_sm80(grid, op, problem, path)) continue;
    rows->push_back({name, op, problem, path, verify(path.target(static_cast<int>(grid.where.threads)))});
  }
}

}  // namespace

std::string Row::problem_text() const {
  return pass_of(op) == Pass::backward ? problem_name(BackwardProblem{problem}) : problem_name(problem);
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
  const bool live = isatty(STDERR_FILENO) != 0;
  for (const Op op : grid.ops) {
    const auto cases = pass_of(op) == Pass::backward ? verify_backward_cases(grid.full) : verify_cases(grid.full);
    std::size_t done = 0;
    for (const VerifyCase& item : cases) {
      if (live) fmt::print(stderr, "\r\033[K{}/{} {}", ++done, cases.size(), item.name);
      if (item.name.find(grid.match) == std::string::npos) continue;
      for (const DType dtype : grid.types) verify_instance(item.name, op, item.make(dtype, grid.seed), grid, &rows);
    }
  }
  if (live) fmt::print(stderr, "\r\033[K");
  if (rows.empty()) throw UsageError{"no case is left to verify"};
  return rows;
}

}  // namespace falchion::tools
