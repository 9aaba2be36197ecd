// tools/run/run.cpp: `falchion run`: attention on tensors from files; its backward pass: backward.cpp; a GEMM:
// gemm.cpp; a norm: norm.cpp.
#include <fmt/core.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/fields.hpp"
#include "command/interrupt.hpp"
#include "command/table.hpp"
#include "plan/text.hpp"
#include "problem/files.hpp"
#include "problem/gemm_problem.hpp"
#include "problem/levels.hpp"
#include "problem/norm_problem.hpp"
#include "problem/slices.hpp"
#include "problem/work.hpp"
#include "run/backward.hpp"
#include "run/dump.hpp"
#include "run/gemm.hpp"
#include "run/norm.hpp"
#include "run/report.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

/// A low rate in flop/s, to predict whether a run takes seconds or milliseconds.
double modest_rate(const Plan& plan) {
  if (plan_backend(plan) == "ref") return 3e8;
  const std::string level = plan_level(plan);
  return (level == "generic" ? 5e9 : level == "amx" ? 1e12 : 6e10) * plan_threads(plan);
}

Samples compute(const Prepared& prepared, const Instance& instance, const Operands& x, const RunOptions& options,
                const Target& target) {
  if (prepared.on_gpu()) {
    if (options.progress) throw UsageError{"--progress: a GPU computes all heads at once"};
    return time_on_gpu(prepared, x, options);
  }
  const bool long_work = flop_count(instance.problem, &x) > 2 * modest_rate(prepared.plan());
  if (options.progress || (long_work && options.repeat == 1 && isatty(STDERR_FILENO))) {
    const auto slices = slices_of(instance.problem, x, target);
    if (!slices.empty()) {
      const auto start = Clock::now();
      run_with_progress(slices, target);
      return {{seconds_since(start)}};
    }
  }
  return time_on_cpu(prepared, x, options);
}

void write_outputs(const RunOptions& options, const Outputs& outputs) {
  const Shape& s = outputs.o.view.shape;
  const bool heads_first = options.tensors.layout() == Layout::bhsd;
  std::vector<NamedTensor> archive;
  const auto put = [&](const std::string& path, const char* name, const HostTensor& tensor,
                       std::vector<std::int64_t> shape) {
    if (!tensor.view.data) return;
    if (!path.empty()) write_tensors(path, {{name, &tensor, shape}});
    archive.push_back({name, &tensor, shape});
  };
  const auto rows = [](const HostTensor& t) {
    return std::vector<std::int64_t>(t.view.shape.begin(), t.view.shape.end() - (t.view.shape[3] == 1 ? 1 : 0));
  };
  const bool to_archive = ends_with(options.out, ".safetensors");
  put(to_archive ? "" : options.out, "o", outputs.o,
      heads_first ? std::vector<std::int64_t>{s[0], s[2], s[1], s[3]}
                  : std::vector<std::int64_t>{s[0], s[1], s[2], s[3]});
  put(options.lse, "lse", outputs.lse, rows(outputs.lse));
  put(options.row_max, "row_max", outputs.row_max, rows(outputs.row_max));
  const Shape& p = outputs.probabilities.view.shape;
  put(options.probabilities, "probabilities", outputs.probabilities, {p.begin(), p.end()});
  if (to_archive) write_tensors(options.out, archive);
}

int run_forward(const RunOptions& options) {
  const NamedFiles outputs_to = {{"--out", &options.out},
                                 {"--lse", &options.lse},
                                 {"--row-max", &options.row_max},
                                 {"--probabilities", &options.probabilities}};
  check_files(options, {}, outputs_to);
  Instance instance = options.tensors.load(options.features);
  Attention& a = instance.problem;
  const bool archive = ends_with(options.out, ".safetensors");
  a.lse = !options.lse.empty() || archive;
  a.row_max = !options.row_max.empty();
  a.probabilities = !options.probabilities.empty();
  instance.require_valid();
  const Target target = options.where.target();
  const Prepared prepared(a, target);
  const Outputs outputs(instance, a.dtype, options.tensors.layout());
  outputs.clear();
  Operands x = instance.operands();
  outputs.attach(&x);
  const Samples time = compute(prepared, instance, x, options, target);
  write_outputs(options, outputs);
  const Report report{fmt::format("{} {}", name(a.dtype), problem_name(a)), to_json(a), flop_count(a, &x),
                      byte_count(a, &x), is_decode(a)};
  report.print(prepared.plan(), time, options, outputs_to);
  return exit_ok;
}

/// Options that only the backward pass has. Its files determine the requested gradients.
std::vector<const char*> names_of_backward() {
  std::vector<const char*> out = {"--o", "--grad-o", "--grad-q", "--grad-k", "--grad-v"};
#define FALCHION_BACKWARD_FIELD(kind, key, member, option, text) \
  if (std::string_view(option) != "--frozen") out.push_back(option);
#include "base/fields.def"
  return out;
}

/// Options that no operation but attention has, in the order of the help.
std::vector<const char*> names_of_attention() {
  std::vector<const char*> out = {
      "--q", "--k", "--v", "--qkv", "--layer", "--axes", "--mask", "--cu-seqlens-q", "--cu-seqlens-k"};
#define FALCHION_LENGTHS(key, side, usual, has, option, text) out.push_back(option);
#include "base/fields.def"
  for (const char* name : FeatureOptions::names()) out.push_back(name);
#define FALCHION_FORWARD_FIELD(kind, key, member, option, text) out.push_back(option);
#include "base/fields.def"
  out.push_back("--progress");
  for (const char* name : names_of_backward()) out.push_back(name);
  return out;
}

/// Refuses options that the pass does not have.
void check_use(const RunOptions& options, const Given& given) {
  if (!options.dump.empty()) {
    const std::string why = "--dump says all of that itself";
    given.refuse({"--op", "--bias", "--residual", "--dtype", "--as"}, why);
    given.refuse(names_of_attention(), why);
    given.refuse(GemmRunOptions::kNames, why);
    return given.refuse(NormRunOptions::kNames, why);
  }
  const std::string why = "it has no effect here; it is an option of --op ";
  const Op op = parse_op(options.op);
  if (options.repeat > 1) given.refuse({"--progress"}, "it times one run, head by head; leave --repeat out");
  if (op != Op::gemm) given.refuse(GemmRunOptions::kNames, why + name(Op::gemm));
  if (op != Op::norm) given.refuse(NormRunOptions::kNames, why + name(Op::norm));
  if (op == Op::gemm || op == Op::norm) {
    given.refuse(names_of_attention(), why + operation_list(Kind::attention));
    if (op == Op::gemm) {
      given.refuse({"--bias"}, why + operation_list({Op::attention, Op::attention_backward, Op::norm}));
      if (options.gemm.c.empty()) given.refuse({"--beta"}, "it is the factor of --c, which is not given");
    }
    return;
  }
  options.tensors.check(given);
  given.refuse({"--residual"}, why + operation_list({Op::gemm, Op::norm}));
  if (op == Op::attention) {
    given.refuse(names_of_backward(), why + name(Op::attention_backward));
  } else {
    given.refuse({"--row-max", "--probabilities", "--progress"}, why + name(Op::attention));
  }
}

void add_gemm_options(Command& command, RunOptions* options) {
  GemmRunOptions* gemm = &options->gemm;
  command.group("GEMM (--op gemm): D = activation(alpha A B^T + beta C + biases) + residual, .npy files");
  command.text("--a", &gemm->a, "A: (m, k), (batch, m, k) or (batch, m, k2, k1)", "FILE");
  command.text("--b", &gemm->b, "B: (n, k) and so on; swiglu: 2 n rows, the gates first", "FILE");
  command.text("--c", &gemm->c, "C: (m, n) and so on", "FILE");
  command.text("--bias-n", &gemm->bias_n, "A bias for each row of B", "FILE");
  command.text("--bias-m", &gemm->bias_m, "A bias for each row of A", "FILE");
  command.text("--residual", &options->residual, "What is added last, as C. Norm: what is added to X first", "FILE");
  command.choice("--activation", &gemm->activation, activation_names(), "What the sums go through");
  command.number("--alpha", &gemm->alpha, "The factor of the product");
  command.number("--beta", &gemm->beta, "The factor of C");
  command.flag("--d-f32", &gemm->d_f32, "D in f32, whatever the type of A");
}

void add_norm_options(Command& command, NormRunOptions* norm) {
  command.group("Norm (--op norm): Y = (V - mean) rstd weight + bias, where V = X + residual, .npy files");
  command.text("--x", &norm->x, "X: (d), (rows, d), (b, s, d) or (b, s, h, d)", "FILE");
  command.text("--weight", &norm->weight, "The factors: (d), or with more axes as X; so is --bias", "FILE");
  command.choice("--kind", &norm->kind, kNormKinds, "Layer norm or RMSNorm");
  command.number("--eps", &norm->eps, "What is added to the variance");
  command.flag("--zero-centered", &norm->zero_centered, "The factor is 1 + weight");
  command.flag("--y-f32", &norm->y_f32, "Y in f32, whatever the type of X");
  command.text("--residual-out", &norm->residual_out, "Where V goes, in the type of the residual", "FILE");
  command.text("--mean", &norm->mean, "Where the mean of each row goes, f32", "FILE");
  command.text("--rstd", &norm->rstd, "Where the inverse of each row's deviation goes, f32", "FILE");
}

int run_operation(const RunOptions& options) {
  if (!options.dump.empty()) return run_dump(options);
  switch (parse_op(options.op)) {
    case Op::gemm: return run_gemm(options);
    case Op::norm: return run_norm(options);
    case Op::attention_backward: return run_backward(options);
    default: return run_forward(options);
  }
}

}  // namespace

void add_run(Command& command) {
  const auto options = std::make_shared<RunOptions>();
  command.choice("--op", &options->op,
                 {name(Op::attention), name(Op::attention_backward), name(Op::gemm), name(Op::norm)},
                 "What is computed");
  command.text("--dump", &options->dump, "Run again what FALCHION_TRACE_DUMP wrote; --out: all outputs", "FILE");
  command.integer("--repeat", &options->repeat, 1, 1000000, "Timed runs after a warm-up; the median counts");
  command.flag("--progress", &options->progress,
               "Run head by head and say how far (by itself on a terminal, for long work)");
  command.flag("--no-limit", &options->no_limit, "Do not measure this machine's limit beside it (saves half a second)");
  command.flag("--json", &options->as_json, "Machine-readable output");
  options->tensors.add_to(command);
  options->features.add_to(command);
  command.group("Outputs (.npy, or .safetensors for several in one file)");
  command.text("--out", &options->out,
               "O, in the type and axes of Q; .safetensors: LSE too. Backward: a .safetensors file of all gradients",
               "FILE");
  command.text("--lse", &options->lse, "Natural log of the sum of exponentials (b, h, s_q). Backward: an input",
               "FILE");
  command.text("--row-max", &options->row_max, "Largest score of each row (b, h, s_q)", "FILE");
  command.text("--probabilities", &options->probabilities, "P (b, h, s_q, s_k), before dropout", "FILE");
  command.group("Backward pass (--op attention-backward)");
  command.text("--grad-o", &options->grad_o, "The gradient of O, with its type and axes", "FILE");
  command.text("--o", &options->o, "O; without it and --lse a forward pass makes both", "FILE");
  command.text("--grad-lse", &options->grad_lse, "The gradient of the LSE (b, h, s_q), f32", "FILE");
  command.text("--grad-q", &options->grad_q, "Where the gradient of Q goes; what is not named is not computed", "FILE");
  command.text("--grad-k", &options->grad_k, "That of K", "FILE");
  command.text("--grad-v", &options->grad_v, "That of V", "FILE");
  command.text("--grad-bias", &options->grad_bias, "That of the bias, f32, with its extents", "FILE");
  command.text("--grad-alibi", &options->grad_alibi, "That of the ALiBi slopes, f32, (h)", "FILE");
  command.text("--grad-sinks", &options->grad_sinks, "That of the sinks, f32, (h)", "FILE");
  command.choice("--grads", &options->grads, {"rounded", "f32"}, "Gradients of Q, K and V in the type of Q, or in f32");
  each_field(options->flags, [&](const Field& field, auto& x) {
    if constexpr (std::is_same_v<decltype(x), bool&>) {
      if (field.kind == FieldKind::flag && !field.forward) command.flag(field.option, &x, field.text);
    }
  });
  add_gemm_options(command, options.get());
  add_norm_options(command, &options->norm);
  options->where.add_to(command);
  command.run([options](const Given& given) {
    check_use(*options, given);
    std::optional<Interruptible> guard;
    if (options->repeat > 1) guard.emplace();
    const int code = run_operation(*options);
    return interrupted() ? interrupted_exit_code() : code;
  });
}

}  // namespace falchion::tools
