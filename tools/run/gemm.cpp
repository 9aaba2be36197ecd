// tools/run/gemm.cpp: see gemm.hpp.
#include "run/gemm.hpp"

#include <fmt/core.h>

#include "api/validate.hpp"
#include "plan/gemm.hpp"
#include "plan/text.hpp"
#include "problem/files.hpp"
#include "problem/gemm_problem.hpp"
#include "run/report.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

/// The files of the inputs, as options name them.
NamedFiles input_files(const RunOptions& options) {
  const GemmRunOptions& g = options.gemm;
  return {{"--a", &g.a},           {"--b", &g.b},           {"--c", &g.c},
          {"--bias-n", &g.bias_n}, {"--bias-m", &g.bias_m}, {"--residual", &options.residual}};
}

/// (m, k), (batch, m, k) or (batch, m, k2, k1), with the four axes of the last form.
HostTensor read_matrix(const RunOptions& options, const std::string& path) {
  return options.tensors.read(path, [&](std::vector<std::int64_t>* shape) {
    if (shape->size() < 2 || shape->size() > 4)
      throw UsageError{fmt::format(
          "{}: {} axes; a matrix has two, with a batch three, with its columns cut in two four", path, shape->size())};
    if (shape->size() == 2) shape->insert(shape->begin(), 1);
    if (shape->size() == 3) shape->insert(shape->begin() + 2, 1);
  });
}

/// A bias: a list of numbers, one for each column (the last axis) or for each row (the second).
HostTensor read_bias(const RunOptions& options, const std::string& path, bool of_rows) {
  return options.tensors.read(path, [&](std::vector<std::int64_t>* shape) {
    if (shape->size() != 1) throw UsageError{fmt::format("{}: {} axes; a bias has one", path, shape->size())};
    const std::int64_t n = shape->front();
    *shape = of_rows ? std::vector<std::int64_t>{1, n, 1, 1} : std::vector<std::int64_t>{1, 1, 1, n};
  });
}

GemmInstance load(const RunOptions& options) {
  const GemmRunOptions& from = options.gemm;
  require_all("matrices", {{"--a", from.a}, {"--b", from.b}}, ", .npy files of (m, k) and (n, k)");
  GemmInstance x;
  x.a = read_matrix(options, from.a);
  x.b = read_matrix(options, from.b);
  if (!from.c.empty()) x.c = read_matrix(options, from.c);
  if (!options.residual.empty()) x.residual = read_matrix(options, options.residual);
  if (!from.bias_n.empty()) x.bias_n = read_bias(options, from.bias_n, false);
  if (!from.bias_m.empty()) x.bias_m = read_bias(options, from.bias_m, true);
  Gemm& g = x.problem;
  const Shape& a = x.a.view.shape;
  g.dtype = x.a.view.dtype;
  g.batch = a[0];
  g.m = a[1];
  g.k = a[2] * a[3];
  g.activation = parse_activation(from.activation);
  const std::int64_t rows = x.b.view.shape[1];
  if (g.activation == Activation::swiglu && rows % 2 != 0)
    throw UsageError{fmt::format("--b: {} rows; with swiglu it has a gate and an \"up\" row for each column", rows)};
  g.n = g.activation == Activation::swiglu ? rows / 2 : rows;
  g.alpha = from.alpha;
  g.beta = from.c.empty() ? 0 : from.beta;
  if (g.beta != 0) g.dtype_c = x.c.view.dtype;
  if (from.d_f32) g.dtype_d = DType::f32;
  g.bias_n = !from.bias_n.empty();
  g.bias_m = !from.bias_m.empty();
  g.residual = !options.residual.empty();
  const HostTensor& like = g.beta != 0 ? x.c : x.residual;  // they determine how n is cut
  const bool is_cut = like.view.shape[2] > 1;
  x.d = make_tensor(dtype_of_d(g), {g.batch, g.m, is_cut ? like.view.shape[2] : 1, is_cut ? like.view.shape[3] : g.n});
  return x;
}

void write_d(const RunOptions& options, const GemmInstance& x) {
  if (options.out.empty()) return;
  const Shape& s = x.d.view.shape;
  std::vector<std::int64_t> shape(s.begin(), s.end());
  if (s[2] == 1)
    shape = s[0] == 1 ? std::vector<std::int64_t>{s[1], s[3]} : std::vector<std::int64_t>{s[0], s[1], s[3]};
  write_tensors(options.out, {{"d", &x.d, shape}});
}

}  // namespace

int run_gemm(const RunOptions& options) {
  const NamedFiles outputs_to = {{"--out", &options.out}};
  check_files(options, input_files(options), outputs_to);
  const GemmInstance x = load(options);
  const Gemm& g = x.problem;
  const Prepared prepared(g, options.where.target());
  const GemmOperands operands = x.operands();
  require(validate_operands(g, Pass::forward, operands));
  const Samples time =
      prepared.on_gpu() ? time_on_gpu(prepared, operands, options) : time_on_cpu(prepared, operands, options);
  write_d(options, x);
  const bool few = g.batch * g.m <= 16;  // then memory is the limit
  const Report report{fmt::format("{} {}", name(g.dtype), problem_name(g)), to_json(g), flop_count(g), byte_count(g),
                      few};
  report.print(prepared.plan(), time, options, outputs_to);
  return exit_ok;
}

}  // namespace falchion::tools
