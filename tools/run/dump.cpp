// tools/run/dump.cpp: see dump.hpp. The dump's line has the problem, so a storm's subject of that problem lays out the
// operands as they were, and then the dumped numbers replace the random ones.
#include "run/dump.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "command/file_names.hpp"
#include "command/interrupt.hpp"
#include "judge/attention_backward.hpp"
#include "problem/files.hpp"
#include "problem/gemm_problem.hpp"
#include "problem/levels.hpp"
#include "problem/norm_problem.hpp"
#include "problem/quantise_problem.hpp"
#include "problem/work.hpp"
#include "run/report.hpp"
#include "tool.hpp"
#include "verify/device_arena.hpp"
#include "verify/paths.hpp"
#include "verify/subject.hpp"

namespace falchion::tools {
namespace {

using storm::Image;
using storm::Problem;

/// The output that shares memory with an input, if the run was in place.
const Image::Place* place_of_input(const Image& image, const std::string& name) {
  constexpr std::pair<const char*, const char*> kShared[] = {
      {"x", "y"}, {"residual", "residual_out"},     {"grad_y", "grad_x"},    {"residual", "d"},
      {"c", "d"}, {"initial_state", "final_state"}, {"initial_z", "final_z"}};
  if (const Image::Place* place = image.find(name)) return place;
  for (const auto& [input, output] : kShared)
    if (const Image::Place* place = name == input ? image.find(output) : nullptr) return place;
  return nullptr;
}

/// Copies the numbers of the file into an operand of the image. An extent of 1 there is broadcast.
void fill(const Image& image, const io::Array& array, const std::string& file) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError{fmt::format("{}: {}: {}", file, array.name, why)};
  };
  const Image::Place* place = place_of_input(image, array.name);
  if (place == nullptr) return refuse("the problem of the dump has no such operand");
  if (place->empty) return;
  const Tensor to = place->on(image.data());
  if (array.kind != io::kind_of(to.dtype) || array.shape.size() != 4)
    refuse("it is not of the problem's type with four axes");
  io::Array aligned = array;
  require(io::align_to(16, &aligned), file);
  Shape shape{};
  for (std::size_t axis = 0; axis < 4; ++axis) {
    shape[axis] = array.shape[axis];
    if (shape[axis] != to.shape[axis] && shape[axis] != 1)
      refuse(fmt::format("shape[{}] = {}, but the problem's is {}", axis, shape[axis], to.shape[axis]));
  }
  Tensor from = Tensor::dense(const_cast<std::byte*>(aligned.bytes.data()), to.dtype, shape);
  for (std::size_t axis = 0; axis < 4; ++axis)
    if (shape[axis] == 1) from.stride[axis] = 0;
  for_each_index(
      to.shape, [&](auto i, auto j, auto k, auto l) { store_element(to, i, j, k, l, load_element(from, i, j, k, l)); });
}

/// The operands that a run writes: those missing in the dump, and gradients, which may be accumulated.
bool is_output(const std::string& name, const io::Archive& archive) {
  return archive.find(name) == nullptr || std::find(std::begin(judge::kGradientNames), std::end(judge::kGradientNames),
                                                    name) != std::end(judge::kGradientNames);
}

void write_outputs(const std::string& path, const io::Archive& archive, const Image& image, const std::byte* base) {
  if (path.empty()) return;
  std::vector<std::pair<std::string, HostTensor>> outputs;
  for (const auto& [name, place] : image.operands()) {
    if (!is_output(name, archive)) continue;
    const Tensor from = place.on(base);
    HostTensor& out = outputs.emplace_back(name, make_tensor(from.dtype, from.shape)).second;
    if (place.empty) continue;
    for_each_index(from.shape, [&](auto i, auto j, auto k, auto l) {
      store_element(out.view, i, j, k, l, load_element(from, i, j, k, l));
    });
  }
  std::vector<NamedTensor> named;
  for (const auto& [name, tensor] : outputs)
    named.push_back({name, &tensor, {tensor.view.shape.begin(), tensor.view.shape.end()}});
  write_tensors(path, named);
}

/// Runs on a copy of the image, without restoring outputs in between.
Samples time_runs(const Plan& plan, const storm::Subject& subject, const RunOptions& options, std::byte* copy) {
  const std::size_t bytes = plan.workspace_bytes();
  const int runs = static_cast<int>(options.repeat);
  Samples time;
  if (on_gpu(plan)) {
    storm::DeviceArena device;
    bool whole = true;
    require(device.run(subject.image().data(), subject.image().size(), bytes, 0, copy, &whole,
                       [&](std::byte* base, void* workspace) -> Status {
                         cuda::Timer timer;
                         for (int i = 0; i < runs && (i == 0 || !interrupted()); ++i) {
                           double seconds = 0;
                           require(timer.start());
                           if (Status status = subject.run(plan, base, workspace, bytes); !status) return status;
                           require(timer.stop());
                           require(timer.seconds(&seconds));
                           time.seconds.push_back(seconds);
                         }
                         return {};
                       }));
    return time;
  }
  const Buffer workspace(bytes);
  const auto run = [&] {
    std::memcpy(copy, subject.image().data(), subject.image().size());  // an output may be an input too
    const auto start = Clock::now();
    require(subject.run(plan, copy, workspace.data(), bytes));
    time.seconds.push_back(seconds_since(start));
  };
  for (int i = 0; i < runs && (i == 0 || !interrupted()); ++i) run();
  return time;
}

/// The problem of the dump, with the path of the options.
Problem problem_of(const RunOptions& options, const io::Archive& archive) {
  const auto line = archive.metadata.find("problem");
  if (line == archive.metadata.end())
    throw UsageError{
        fmt::format("--dump: {}: it has no problem, so FALCHION_TRACE_DUMP did not write it", options.dump)};
  Problem out = storm::parse_problem(line->second);
  const TargetOptions& where = options.where;
  if (where.backend != TargetOptions{}.backend || !where.level.empty()) {
    out.backend = parse_backend(where.backend);
    out.level = where.level;
  }
  if (where.threads > 0) out.threads = static_cast<int>(where.threads);
  out.lent = false;  // nobody lends threads here
  return out;
}

Report report_of(const Problem& p) {
  const auto of = [](const auto& a) {
    return Report{fmt::format("{} {}", name(a.dtype), problem_name(a)), to_json(a), flop_count(a), byte_count(a)};
  };
  if (p.kind() == Kind::gemm) return of(p.gemm);
  if (p.kind() == Kind::norm) return of(p.norm);
  if (p.kind() == Kind::quantise) return of(p.quantise);
  if (p.kind() == Kind::linear)
    return Report{fmt::format("{} linear attention", name(p.linear.dtype)), Json::object({}), 0, 0};
  return p.pass() == Pass::backward ? of(BackwardProblem{p.attention}) : of(p.attention);
}

}  // namespace

int run_dump(const RunOptions& options) {
  FileNames files;
  files.reads("--dump", options.dump);
  files.writes("--out", options.out);
  if (!options.out.empty() && !ends_with(options.out, ".safetensors"))
    throw UsageError{fmt::format("--out: {}: the outputs of a dump go into one .safetensors file", options.out)};
  const io::Archive archive = read_archive(options.dump);
  const Problem problem = problem_of(options, archive);
  Plan plan;
  Target target = Path{problem.backend, problem.level}.target(problem.threads);
  target.segments = problem.segments;
  require(storm::make_plan(problem, target, &plan));
  const auto subject = storm::make_subject(problem);
  for (const io::Array& array : archive.arrays) fill(subject->image(), array, options.dump);
  Buffer copy(subject->image().size());
  const Samples time = time_runs(plan, *subject, options, copy.data());
  write_outputs(options.out, archive, subject->image(), copy.data());
  report_of(problem).print(plan, time, options, {{"--out", &options.out}});
  return exit_ok;
}

}  // namespace falchion::tools
