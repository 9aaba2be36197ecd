// tools/ladder/ladder.cpp: `falchion ladder` runs the steps from a naive kernel to the library's own. Each one is timed
// beside the one before, checked and explained.
#include "ladder/ladder.hpp"

#include <fmt/format.h>
#include <unistd.h>
#if FALCHION_OPENMP
  #include <omp.h>
#endif

#include <algorithm>
#include <memory>

#include "command/interrupt.hpp"
#include "command/words.hpp"
#include "measure/machine.hpp"
#include "plan/plan_data.hpp"
#include "runtime/runtime.hpp"
#include "tool.hpp"

namespace falchion::tools {

int thread_count() {
#if FALCHION_OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

std::string device_name(Side side) { return side == Side::gpu ? cuda::current_device().name : cpu_model(); }

bool library_has(const char* operation, Backend backend, DType dtype) {
  return std::any_of(variants().begin(), variants().end(),
                     [&](const Variant& v) { return v.backend == backend && v.dtype == dtype && v.is(operation); });
}

std::vector<LadderRow> climb(const LadderOptions& options, const std::vector<Rung>& rungs,
                             const std::string& left_out) {
  std::vector<LadderRow> rows;
  std::vector<std::string> names;
  for (const Rung& rung : rungs) names.push_back(rung.name);
  const bool live = isatty(STDERR_FILENO) != 0;
  for (const Rung& rung : rungs) {
    if (!options.step.empty() && options.step != rung.name) continue;
    if (interrupted()) break;
    if (live) fmt::print(stderr, "\r\033[K{}", rung.name);
    rows.push_back(rung.run());
  }
  if (live) fmt::print(stderr, "\r\033[K");
  if (rows.empty())
    throw UsageError{fmt::format("ladder: there is no step \"{}\" here{}{}{}", options.step,
                                 left_out.empty() ? "" : ". ", left_out, did_you_mean(options.step, names))};
  return rows;
}

int sm_of(Side side) { return side == Side::gpu ? cuda::current_device().sm : 0; }

std::string left_out_text(const std::vector<const char*>& names, int only_sm) {
  if (names.empty()) return "";
  return fmt::format("Left out, for they run on sm_{} alone and this is sm_{}: {}", only_sm, sm_of(Side::gpu),
                     fmt::join(names, ", "));
}

void require_grid(int b, int h) {
  const std::int64_t heads = std::int64_t{b} * h;
  if (heads > 65535) throw UsageError{fmt::format("ladder: b x h = {}, at most 65535", heads)};
}

namespace {

Side choose_side(const LadderOptions& options) {
  const cuda::Device device = cuda::current_device();
  if (options.gpu && device.sm == 0) throw UsageError{"ladder: --gpu: " + device.why_not};
  return !options.cpu && device.sm > 0 ? Side::gpu : Side::cpu;
}

int climb_one(const LadderOptions& options) {
  const Side side = choose_side(options);
  if (options.kind == "gemm") return climb_gemm(options, side);
  if (options.m > 0 || options.n > 0 || options.k > 0 || options.branches || !options.cublas.empty())
    throw UsageError{"ladder: --m, --n, --k, --branches and --cublas are of ladder gemm"};
  if (options.kind == "linear") return climb_linear(options, side);
  return options.kind == "backward" ? climb_backward(options, side) : climb_attention(options, side);
}

/// After an interruption it prints the steps so far.
int run_ladder(const LadderOptions& options) {
  const Interruptible guard;
  const int code = climb_one(options);
  return interrupted() ? interrupted_exit_code() : code;
}

}  // namespace

void add_ladder(Command& command) {
  const auto options = std::make_shared<LadderOptions>();
  command.positional("ladder", &options->kind, {"attention", "backward", "linear", "gemm"}, true, "Which ladder");
  command.flag("--cpu", &options->cpu, "The CPU's steps, also where there is a GPU");
  command.flag("--gpu", &options->gpu, "The GPU's steps, or an error");
  command.text("--step", &options->step, "This step alone", "NAME");
  command.integer("--b", &options->b, 0, 1 << 16, "Batch; 0: the ladder's own choice, here and below");
  command.integer("--h", &options->h, 0, 1 << 16, "Heads");
  command.integer("--s", &options->s, 0, 1 << 20, "Tokens: queries and keys");
  command.integer("--s-k", &options->s_k, 0, 1 << 20,
                  "attention, backward: keys, where they are not as many as queries");
  command.integer("--d", &options->d, 8, 128, "Head dim; attention, backward: 64 or 128; linear: 8, 16, ... 128");
  command.integer("--d-v", &options->d_v, 0, 128, "linear: head dim of v, where it is not that of q and k");
  command.flag("--causal", &options->causal, "attention, backward: a query sees no later key (bottom-right)");
  command.flag("--reverse", &options->reverse, "linear: from the last token to the first");
  command.integer("--m", &options->m, 0, 1 << 20, "gemm: rows of A and C");
  command.integer("--n", &options->n, 0, 1 << 20, "gemm: columns of B and C");
  command.integer("--k", &options->k, 0, 1 << 20, "gemm: columns of A, rows of B");
  command.flag("--branches", &options->branches,
               "gemm: the steps that pay on other shapes, each on such a shape and beside the step that it comes from; "
               "with --step one of them");
  command.text("--cublas", &options->cublas,
               "gemm: the libcublas to compare with, where the usual names do not find it", "FILE");
  command.integer("--runs", &options->runs, 0, 1000, "Timed runs of each step; 0: 15 on the GPU, 5 on the CPU");
  command.integer("--seed", &options->seed, 0, std::int64_t{1} << 60, "Other random numbers");
  command.flag("--brief", &options->brief, "The table without the paragraphs");
  command.flag("--json", &options->as_json, "Machine-readable output");
  command.excludes("--cpu", "--gpu");
  command.run([options](const Given&) { return run_ladder(*options); });
}

}  // namespace falchion::tools
