// tools/picture/map.cpp: `falchion map` shows as a picture which query attends to which key.
#include "picture/map.hpp"

#include <fmt/core.h>

#include <memory>

#include "base/fields.hpp"
#include "command/table.hpp"
#include "picture/heatmap.hpp"
#include "problem/files.hpp"
#include "problem/slices.hpp"
#include "problem/tensor_options.hpp"
#include "problem/work.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

struct Options {
  TensorOptions tensors;
  FeatureOptions features;
  TargetOptions where;
  std::int64_t batch = 0, head = 0;
  std::string out = "attention.svg", title;
};

int draw(const Options& options) {
  FileNames files;
  options.tensors.name_files(&files);
  options.features.name_files(&files);
  files.writes("--out", options.out);
  const Instance instance = options.tensors.load(options.features);
  instance.require_valid();
  const std::string what = options.tensors.layer.empty() ? "Attention" : options.tensors.layer;
  const std::string title = options.title.empty() ? fmt::format("{}, head {}", what, options.head) : options.title;
  const std::string svg = attention_map(instance, options.batch, options.head, title, options.where.target());
  write_text(options.out, svg);
  fmt::print("{} ({})\n", options.out, format_bytes(static_cast<double>(svg.size())));
  return exit_ok;
}

}  // namespace

std::string attention_map(const Instance& instance, std::int64_t batch, std::int64_t head, const std::string& title,
                          const Target& target) {
  Attention a = instance.problem;
  if (a.packed || has_lengths(a))
    throw UsageError{"map: packed and used lengths and first keys have no picture; slice the tensors"};
  if (batch < 0 || batch >= a.b || head < 0 || head >= a.h_q)
    throw UsageError{
        fmt::format("map: sequence {} head {} is not there; there are {} and {}", batch, head, a.b, a.h_q)};
  if (static_cast<double>(a.s_q) * static_cast<double>(a.s_k) > 268435456.0)
    throw UsageError{fmt::format("map: {} x {} probabilities take more than 1 GiB; slice the tensors", a.s_q, a.s_k)};
  const std::string subtitle = fmt::format("{}, {}", size_name(a), feature_name(a));
  auto [one, x] = slice_of(a, instance.operands(), batch, head, 1);
  a = one;
  a.dropout = 0;  // probabilities are before dropout
  a.lse = a.row_max = false;
  a.probabilities = true;
  const HostTensor o = make_tensor(a.dtype, {1, a.s_q, 1, a.d_v}), p = make_tensor(DType::f32, {1, 1, a.s_q, a.s_k});
  x.o = o.view;
  x.probabilities = p.view;
  require(Prepared(a, target).run(x));
  return heatmap_svg({p.memory.as<float>(), a.s_q, a.s_k, title, subtitle});
}

void add_map(Command& command) {
  const auto options = std::make_shared<Options>();
  options->tensors.add_to(command);
  options->features.add_to(command);
  options->where.add_to(command);
  command.group("Picture");
  command.integer("--head", &options->head, 0, 1 << 20, "Query head");
  command.integer("--batch", &options->batch, 0, 1 << 30, "Sequence");
  command.text("--out", &options->out, "The .svg file to write", "FILE");
  command.text("--title", &options->title, "Title of the picture");
  command.run([options](const Given& given) {
    options->tensors.check(given);
    given.refuse({"--dropout"}, "a picture shows the probabilities before it");
    return draw(*options);
  });
}

}  // namespace falchion::tools
