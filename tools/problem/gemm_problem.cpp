// tools/problem/gemm_problem.cpp
#include "problem/gemm_problem.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/size.hpp"
#include "plan/explain.hpp"
#include "plan/gemm.hpp"
#include "plan/text.hpp"
#include "plan/work.hpp"
#include "problem/problem_options.hpp"
#include "tool.hpp"

namespace falchion::tools {

double flop_count(const Gemm& g) { return gemm_flops(g); }
double byte_count(const Gemm& g) { return gemm_bytes(g, true); }

std::vector<std::string> activation_names() {
  std::vector<std::string> out;
  for (int i = 0; i <= static_cast<int>(Activation::swiglu); ++i) out.emplace_back(name(static_cast<Activation>(i)));
  return out;
}

Activation parse_activation(const std::string& text) {
  const auto names = activation_names();
  const auto found = std::find(names.begin(), names.end(), word_of("--activation", text, names));
  return static_cast<Activation>(found - names.begin());
}

Scaling parse_scaling(const std::string& text) { return named<Scaling>("--scaling", text, kScalings); }

std::string size_name(const Gemm& g) {
  const std::string batch = g.batch == 1 ? "" : fmt::format("b{} ", g.batch);
  return fmt::format("{}m{} n{} k{}", batch, g.m, g.n, g.k);
}

std::string feature_name(const Gemm& g) {
  std::string out = "gemm";
  if (g.activation != Activation::none) out += fmt::format(" {}", name(g.activation));
  if (g.alpha != 1) out += fmt::format(" alpha {:g}", g.alpha);
  if (g.beta != 0) out += fmt::format(" beta {:g}", g.beta);
  if (g.bias_n) out += " bias-n";
  if (g.bias_m) out += " bias-m";
  if (g.residual) out += " residual";
  if (g.scaling != Scaling::none) out += fmt::format(" scaling {}", name(g.scaling));
  if (dtype_of_d(g) != g.dtype) out += fmt::format(" d-{}", name(dtype_of_d(g)));
  return out;
}

std::string problem_name(const Gemm& g) { return size_name(g) + " " + feature_name(g); }

Json to_json(const Gemm& g) { return problem_facts(g).with("features", feature_name(g)); }

void GemmOptions::add_to(Command& command) {
  command.group("What a GEMM computes (sizes are lists: every combination)");
  command.list("--batch", &batch, "Entries of the batch, which share b");
  command.list("--m", &m, "Rows of a");
  command.list("--n", &n, "Columns of d");
  command.list("--k", &k, "What is summed over");
  command.choice("--activation", &activation, activation_names(), "What the sums go through");
  command.flag("--bias-n", &bias_n, "With a bias of each column");
  command.flag("--residual", &residual, "With a residual that is added last");
  command.flag("--d-f32", &d_f32, "d in f32, whatever the type of a");
  command.choice("--scaling", &scaling, names_of<Scaling>(kScalings), "Scales of an a and b of e4m3 or i8");
}

std::vector<Gemm> GemmOptions::expand(const std::vector<std::string>& dtypes) const {
  const auto or_else = [](const std::vector<std::int64_t>& list, std::int64_t value) {
    return list.empty() ? std::vector<std::int64_t>{value} : list;
  };
  std::vector<Gemm> out;
  for (const std::string& dtype : dtypes.empty() ? std::vector<std::string>{"bf16"} : dtypes)
    for (const std::int64_t entries : or_else(batch, 1))
      for (const std::int64_t rows : or_else(m, 1024))
        for (const std::int64_t columns : or_else(n, 1024))
          for (const std::int64_t depth : or_else(k, 1024)) {
            Gemm g{.dtype = parse_dtype(dtype), .batch = entries, .m = rows, .n = columns, .k = depth};
            g.activation = parse_activation(activation);
            g.bias_n = bias_n;
            g.residual = residual;
            if (is_8bit(g.dtype)) g.dtype_d = DType::bf16;
            if (d_f32) g.dtype_d = DType::f32;
            g.scaling = parse_scaling(scaling);
            out.push_back(g);
          }
  return out;
}

GemmOperands GemmInstance::operands() const {
  GemmOperands x;
  x.a = a.view;
  x.b = b.view;
  x.c = c.view;
  x.d = d.view;
  x.residual = residual.view;
  x.bias_n = bias_n.view;
  x.bias_m = bias_m.view;
  x.scale_a = scale_a.view;
  x.scale_b = scale_b.view;
  return x;
}

GemmInstance make_gemm_instance(const Gemm& g, std::uint64_t seed, const GemmShape& shape) {
  GemmInstance x;
  x.problem = g;
  const std::int64_t k1 = g.k / shape.k2, b_rows = rows_of_b(g);
  const Shape of_d{g.batch, g.m, shape.n2, g.n / shape.n2};
  x.a = make_random(g.dtype, {g.batch, g.m, shape.k2, k1}, seed);
  x.b = make_random(g.dtype, {shape.own_b ? g.batch : 1, b_rows, shape.k2, k1}, seed + 1);
  x.d = make_poisoned(dtype_of_d(g), of_d);
  if (g.residual) x.residual = make_random(dtype_of_d(g), of_d, seed + 2);
  const DType of_bias = is_8bit(g.dtype) ? DType::f32 : g.dtype;
  if (g.bias_n) x.bias_n = make_random(of_bias, {1, 1, 1, b_rows}, seed + 3);
  if (g.bias_m) x.bias_m = make_random(of_bias, {1, g.m, 1, 1}, seed + 4);
  if (g.scaling != Scaling::none) {
    const ScaleCount of_a = scales_of_a(g), of_b = scales_of_b(g);
    x.scale_a = make_random(DType::f32, {1, of_a.rows, of_a.along_k, 1}, seed + 6);
    x.scale_b = make_random(DType::f32, {1, of_b.rows, of_b.along_k, 1}, seed + 7);
  }
  if (g.beta != 0) x.c = make_random(dtype_of_c(g), of_d, seed + 5);
  return x;
}

}  // namespace falchion::tools
