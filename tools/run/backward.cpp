// tools/run/backward.cpp: see backward.hpp.
#include "run/backward.hpp"

#include <fmt/core.h>

#include "api/validate.hpp"
#include "plan/text.hpp"
#include "problem/backward.hpp"
#include "problem/files.hpp"
#include "problem/work.hpp"
#include "run/report.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

/// The options of the gradients' files, in the order of judge::Gradient.
NamedFiles gradient_files(const RunOptions& o) {
  return {{"--grad-q", &o.grad_q},       {"--grad-k", &o.grad_k},         {"--grad-v", &o.grad_v},
          {"--grad-bias", &o.grad_bias}, {"--grad-alibi", &o.grad_alibi}, {"--grad-sinks", &o.grad_sinks}};
}

/// Requests the named gradients, and all of them for an archive. grad_k and grad_v come together.
void set_wanted(const RunOptions& options, Attention* a) {
#define FALCHION_BACKWARD_FIELD(kind, key, member, option, text) a->member = options.flags.member;
#include "base/fields.def"
  const bool all = !options.out.empty();
  const bool of_q = all || !options.grad_q.empty();
  const bool of_kv = all || !options.grad_k.empty() || !options.grad_v.empty();
  a->frozen = static_cast<std::uint8_t>((of_q ? 0 : 1) + (of_kv ? 0 : 2));
  a->grad_lse = !options.grad_lse.empty();
  a->grad_bias = !options.grad_bias.empty() || (all && a->bias);
  a->grad_alibi = !options.grad_alibi.empty() || (all && a->alibi);
  a->grad_sinks = !options.grad_sinks.empty() || (all && a->sinks);
  a->grads = options.grads == "f32" ? Grads::f32 : Grads::rounded;
  if (a->frozen == 3 && !a->grad_bias && !a->grad_alibi && !a->grad_sinks)
    throw UsageError{"no gradient is asked for: give --grad-q, --grad-k and --grad-v, or --out FILE.safetensors"};
}

BackwardInputs load_inputs(const RunOptions& options, const Instance& instance) {
  if (options.grad_o.empty()) throw UsageError{"--grad-o: the gradient of O is missing"};
  if (options.o.empty() != options.lse.empty())
    throw UsageError{"--o and --lse go together; without both a forward pass makes them"};
  BackwardInputs out;
  if (options.o.empty()) {
    make_state(instance, options.tensors.layout(), &out);
  } else {
    out.o = options.tensors.read(options.o);
    out.lse = options.tensors.read_row_numbers(options.lse);
  }
  out.grad_o = options.tensors.read(options.grad_o);
  if (!options.grad_lse.empty()) out.grad_lse = options.tensors.read_row_numbers(options.grad_lse);
  return out;
}

void write_gradients(const RunOptions& options, const GradientOutputs& outputs) {
  const NamedFiles files = gradient_files(options);
  const bool heads_first = options.tensors.layout() == Layout::bhsd;
  std::vector<NamedTensor> archive;
  for (std::size_t n = 0; n < judge::kGradients; ++n) {
    const HostTensor& tensor = outputs.all[n];
    if (tensor.view.data == nullptr) continue;
    const Shape& s = tensor.view.shape;
    std::vector<std::int64_t> shape(s.begin(), s.end());
    const auto which = static_cast<judge::Gradient>(n);
    if (which > judge::Gradient::bias) shape = {s[2]};
    if (heads_first && which < judge::Gradient::bias) std::swap(shape[1], shape[2]);
    const NamedTensor named{judge::kGradientNames[n], &tensor, shape};
    if (!files[n].second->empty()) write_tensors(*files[n].second, {named});
    archive.push_back(named);
  }
  if (!options.out.empty()) write_tensors(options.out, archive);
}

}  // namespace

int run_backward(const RunOptions& options) {
  NamedFiles outputs_to = gradient_files(options);
  outputs_to.emplace_back("--out", &options.out);
  check_files(
      options,
      {{"--grad-o", &options.grad_o}, {"--grad-lse", &options.grad_lse}, {"--o", &options.o}, {"--lse", &options.lse}},
      outputs_to);
  if (!options.out.empty() && !ends_with(options.out, ".safetensors"))
    throw UsageError{fmt::format("--out: {}: several gradients go into one .safetensors file", options.out)};
  Instance instance = options.tensors.load(options.features);
  Attention& a = instance.problem;
  instance.require_valid();
  set_wanted(options, &a);
  const BackwardInputs inputs = load_inputs(options, instance);
  const Prepared prepared(a, Pass::backward, options.where.target());
  const GradientOutputs outputs(instance, options.tensors.layout());
  outputs.clear();
  Operands x = instance.operands();
  inputs.attach(&x);
  outputs.attach(&x);
  require(validate_operands(a, Pass::backward, x));
  const Samples time = prepared.on_gpu() ? time_on_gpu(prepared, x, options) : time_on_cpu(prepared, x, options);
  write_gradients(options, outputs);
  const BackwardProblem problem{a};
  const Report report{fmt::format("{} {}", name(a.dtype), problem_name(problem)), to_json(problem),
                      flop_count(problem, &x), byte_count(problem, &x)};
  report.print(prepared.plan(), time, options, outputs_to);
  return exit_ok;
}

}  // namespace falchion::tools
