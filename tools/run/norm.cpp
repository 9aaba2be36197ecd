// tools/run/norm.cpp: see norm.hpp.
#include "run/norm.hpp"

#include <fmt/core.h>

#include "api/validate.hpp"
#include "plan/text.hpp"
#include "problem/files.hpp"
#include "problem/norm_problem.hpp"
#include "run/report.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

using Axes = std::vector<std::int64_t>;

/// (d), (s, d), (b, s, d) or (b, s, h, d), with the four axes of the last form. `axes` gets those of the file.
HostTensor read_rows(const RunOptions& options, const std::string& path, Axes* axes = nullptr) {
  return options.tensors.read(path, [&](Axes* shape) {
    if (shape->empty() || shape->size() > 4)
      throw UsageError{fmt::format("{}: {} axes; rows of a norm have one to four", path, shape->size())};
    if (axes != nullptr) *axes = *shape;
    if (shape->size() < 4) shape->insert(shape->end() - 1, 1);
    while (shape->size() < 4) shape->insert(shape->begin(), 1);
  });
}

NormInstance load(const RunOptions& options, Axes* axes) {
  const NormRunOptions& from = options.norm;
  if (from.x.empty()) throw UsageError{"no rows: give --x (rows, d), a .npy file"};
  NormInstance out;
  out.x = read_rows(options, from.x, axes);
  if (!options.residual.empty()) out.residual = read_rows(options, options.residual);
  if (!from.weight.empty()) out.weight = read_rows(options, from.weight);
  if (!options.tensors.bias.empty()) out.bias = read_rows(options, options.tensors.bias);
  Norm& n = out.problem;
  const Shape& shape = out.x.view.shape;
  n.kind = parse_norm_kind(from.kind);
  n.dtype = out.x.view.dtype;
  if (from.y_f32) n.dtype_y = DType::f32;
  if (!options.residual.empty()) n.dtype_residual = out.residual.view.dtype;
  n.rows = shape[0] * shape[1] * shape[2];
  n.d = shape[3];
  n.eps = from.eps;
  n.zero_centered = from.zero_centered;
  n.weight = !from.weight.empty();
  n.bias = !options.tensors.bias.empty();
  n.residual = !options.residual.empty();
  n.residual_out = !from.residual_out.empty();
  n.mean = !from.mean.empty();
  n.rstd = !from.rstd.empty();
  const Shape rows{shape[0], shape[1], shape[2], 1};
  out.y = make_tensor(from.y_f32 ? DType::f32 : n.dtype, shape);
  if (n.residual_out) out.residual_out = make_tensor(out.residual.view.dtype, shape);
  if (n.mean) out.mean = make_tensor(DType::f32, rows);
  if (n.rstd) out.rstd = make_tensor(DType::f32, rows);
  return out;
}

/// Each output goes into a file of its own, with the axes of x; mean and rstd have no last one.
void write_outputs(const RunOptions& options, const NormInstance& x, const Axes& axes) {
  const auto put = [](const std::string& path, const char* name, const HostTensor& tensor, const Axes& shape) {
    if (!path.empty()) write_tensors(path, {{name, &tensor, shape}});
  };
  const Axes rows(axes.begin(), axes.end() - 1);
  put(options.out, "y", x.y, axes);
  put(options.norm.residual_out, "residual_out", x.residual_out, axes);
  put(options.norm.mean, "mean", x.mean, rows);
  put(options.norm.rstd, "rstd", x.rstd, rows);
}

}  // namespace

int run_norm(const RunOptions& options) {
  const NormRunOptions& files = options.norm;
  const NamedFiles outputs_to = {{"--out", &options.out},
                                 {"--residual-out", &files.residual_out},
                                 {"--mean", &files.mean},
                                 {"--rstd", &files.rstd}};
  check_files(options, {{"--x", &files.x}, {"--residual", &options.residual}, {"--weight", &files.weight}}, outputs_to);
  Axes axes;
  const NormInstance x = load(options, &axes);
  const Norm& n = x.problem;
  const Prepared prepared(n, options.where.target());
  const NormOperands operands = x.operands();
  require(validate_operands(n, Pass::forward, operands));
  const Samples time =
      prepared.on_gpu() ? time_on_gpu(prepared, operands, options) : time_on_cpu(prepared, operands, options);
  write_outputs(options, x, axes);
  const Report report{fmt::format("{} {}", name(n.dtype), problem_name(n)), to_json(n), flop_count(n), byte_count(n),
                      true};
  report.print(prepared.plan(), time, options, outputs_to);
  return exit_ok;
}

}  // namespace falchion::tools
