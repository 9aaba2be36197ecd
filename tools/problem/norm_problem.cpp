// tools/problem/norm_problem.cpp
#include "problem/norm_problem.hpp"

#include <fmt/core.h>

#include "plan/explain.hpp"
#include "plan/norm.hpp"
#include "plan/text.hpp"
#include "plan/work.hpp"
#include "problem/problem_options.hpp"

namespace falchion::tools {

double flop_count(const Norm& n) {
  const double an_element =
      (n.kind == NormKind::layer ? 6 : 3) + (n.weight ? 1 : 0) + (n.bias ? 1 : 0) + (n.residual ? 1 : 0);
  return an_element * static_cast<double>(n.rows) * static_cast<double>(n.d);
}
double byte_count(const Norm& n) { return norm_bytes(n); }

double flop_count(const NormBackwardProblem& n) {
  const double an_element = (n.kind == NormKind::layer ? 16 : 13) + (n.weight ? 1 : 0) + (n.residual_out ? 1 : 0);
  return an_element * static_cast<double>(n.rows) * static_cast<double>(n.d);
}
double byte_count(const NormBackwardProblem& n) { return norm_backward_bytes(n); }
std::string problem_name(const NormBackwardProblem& n) { return size_name(n) + " norm backward " + feature_name(n); }

std::string size_name(const Norm& n) { return fmt::format("rows{} d{}", n.rows, n.d); }

std::string feature_name(const Norm& n) {
  std::string out = name(n.kind);
  if (n.weight) out += n.zero_centered ? " 1+weight" : " weight";
  if (n.bias) out += " bias";
  if (n.residual) out += n.residual_out ? " residual in-out" : " residual";
  if (!n.residual && n.residual_out) out += " residual";
  if (dtype_of_y(n) != n.dtype) out += fmt::format(" y-{}", name(dtype_of_y(n)));
  return out;
}

NormKind parse_norm_kind(const std::string& text) { return text == "rms" ? NormKind::rms : NormKind::layer; }

std::string problem_name(const Norm& n) { return size_name(n) + " norm " + feature_name(n); }

Json to_json(const Norm& n) { return problem_facts(n).with("features", feature_name(n)); }

void NormOptions::add_to(Command& command) {
  command.group("What a norm computes (sizes are lists: every combination; --d is the row)");
  command.list("--rows", &rows, "Rows");
  command.choice("--kind", &kind, kNormKinds, "Layer norm or RMSNorm");
  command.flag("--add-residual", &add_residual, "With a residual that is added before, and the sum written");
}

std::vector<Norm> NormOptions::expand(Op op, const std::vector<std::string>& dtypes,
                                      const std::vector<std::int64_t>& d) const {
  const auto or_else = [](const std::vector<std::int64_t>& list) {
    return list.empty() ? std::vector<std::int64_t>{4096} : list;
  };
  std::vector<Norm> out;
  for (const std::string& dtype : dtypes.empty() ? std::vector<std::string>{"bf16"} : dtypes)
    for (const std::int64_t count : or_else(rows))
      for (const std::int64_t row : or_else(d)) {
        Norm n{.dtype = parse_dtype(dtype), .rows = count, .d = row};
        n.kind = parse_norm_kind(kind);
        n.weight = true;
        n.bias = n.kind == NormKind::layer;
        n.residual = add_residual && pass_of(op) == Pass::forward;
        n.residual_out = add_residual;
        out.push_back(n);
      }
  return out;
}

NormOperands NormInstance::operands() const {
  NormOperands o;
  o.x = x.view;
  o.residual = residual.view;
  o.weight = weight.view;
  o.bias = bias.view;
  o.y = y.view;
  o.residual_out = residual_out.view;
  o.mean = mean.view;
  o.rstd = rstd.view;
  o.grad_y = grad_y.view;
  o.grad_residual_out = grad_residual_out.view;
  o.grad_x = grad_x.view;
  o.grad_weight = grad_weight.view;
  o.grad_bias = grad_bias.view;
  return o;
}

NormInstance make_norm_instance(const Norm& n, std::uint64_t seed) {
  NormInstance out;
  out.problem = n;
  const Shape all{1, n.rows, 1, n.d}, row{1, 1, 1, n.d};
  out.x = make_random(n.dtype, all, seed);
  out.y = make_poisoned(dtype_of_y(n), all);
  if (n.residual) out.residual = make_random(dtype_of_residual(n), all, seed + 1);
  if (n.residual_out) out.residual_out = make_poisoned(dtype_of_residual(n), all);
  if (n.weight) out.weight = make_random(n.dtype, row, seed + 2);
  if (n.bias) out.bias = make_random(n.dtype, row, seed + 3);
  return out;
}

NormInstance make_norm_backward_instance(const NormBackwardProblem& n, std::uint64_t seed) {
  NormInstance out;
  out.problem = n;
  const Shape all{1, n.rows, 1, n.d}, row{1, 1, 1, n.d};
  out.x = make_random(n.dtype, all, seed);
  out.grad_y = make_random(dtype_of_y(n), all, seed + 1);
  if (n.residual_out) out.grad_residual_out = make_random(dtype_of_residual(n), all, seed + 2);
  out.grad_x = make_poisoned(n.dtype, all);
  if (n.weight) {
    out.weight = make_random(n.dtype, row, seed + 3);
    out.grad_weight = make_poisoned(n.dtype, row);
  }
  if (n.bias) out.grad_bias = make_poisoned(n.dtype, row);
  return out;
}

}  // namespace falchion::tools
