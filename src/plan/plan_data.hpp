// src/plan/plan_data.hpp: everything that a plan has decided. Plain C++, with a text form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "args/cpu_attention_args.hpp"
#include "args/cpu_attention_backward_args.hpp"
#include "args/cpu_gemm_args.hpp"
#include "args/cpu_linear_attention_args.hpp"
#include "args/cpu_norm_args.hpp"
#include "args/cpu_norm_backward_args.hpp"
#include "args/gpu_attention_args.hpp"
#include "args/gpu_attention_backward_args.hpp"
#include "args/gpu_gemm_args.hpp"
#include "args/gpu_linear_attention_args.hpp"
#include "args/gpu_norm_args.hpp"
#include "args/gpu_norm_backward_args.hpp"
#include "args/gpu_quantise_args.hpp"
#include "falchion/falchion.hpp"
#include "plan/choice.hpp"
#include "plan/features.hpp"
#include "tiles/variant_kind.hpp"

namespace falchion {

struct Operation;

/// Names of operations and of levels are compared by their letters.
constexpr bool same(std::string_view a, std::string_view b) { return a == b; }

// The types of all operations' variants. An operation with other kernel arguments adds its types here.
using Facts = std::variant<std::monostate, gpu::AttentionFacts, gpu::BackwardVariantFacts, gpu::LinearVariantFacts,
                           gpu::GemmFacts, gpu::NormFacts, gpu::NormBackwardFacts, gpu::QuantiseFacts>;
using Kernel =
    std::variant<std::monostate, const cpu::AttentionKernel*, const gpu::AttentionKernel*,
                 const cpu::AttentionBackwardKernel*, const gpu::AttentionBackwardKernel*,
                 const cpu::LinearAttentionKernel*, const gpu::LinearAttentionKernel*, const cpu::GemmKernel*,
                 const gpu::GemmKernel*, const cpu::NormKernel*, const gpu::NormKernel*, const cpu::NormBackwardKernel*,
                 const gpu::NormBackwardKernel*, const gpu::QuantiseKernel*>;

/// One kernel instance of variants.def. Every variant has its facts, a built one also has its kernel.
struct Variant {
  const char* op = "";  // "attention_forward", "linear_attention_forward", ...
  Backend backend = Backend::ref;
  const char* level = "";  // the name of its kind: cpu: "amx", "avx512", ...; gpu: "plain", "general", ...
  VariantKind kind{};
  DType dtype = DType::f32;
  int d = 0;  // gpu: head dims up to this; cpu: 0, any
  VariantTile tile{};
  const char* tile_name = "";  // "brief"; of the usual one ""
  Features features{};         // of a GPU variant; one of the CPU has all
  Facts facts{};               // of a GPU variant
  Kernel kernel{};             // of a variant that is built

  bool is(const char* operation) const { return same(op, operation); }
  /// "avx512"; the kind, and the tile if it is not the usual one: "plain brief".
  std::string name() const { return *tile_name == '\0' ? level : std::string(level) + " " + tile_name; }
  /// The facts of a GPU variant of an operation that has such facts.
  template <class F>
  const F& facts_as() const {
    return *std::get_if<F>(&facts);
  }
  /// The kernel, or null where the variant is not built or has another kind of kernel.
  template <class K>
  const K* kernel_as() const {
    const K* const* held = std::get_if<const K*>(&kernel);
    return held != nullptr ? *held : nullptr;
  }
};
std::span<const Variant> variants();          // what this build has, in the order of variants.def
std::span<const Variant> listed_variants();   // all of variants.def; without kernels, but with facts
const Variant* built(const Variant& listed);  // that of variants() which a listed one became, or null

constexpr bool is_gpu(Backend backend) { return backend == Backend::sm80 || backend == Backend::sm90; }
/// Whether the target names a GPU, or an architecture. Then `best` is the best on that one.
constexpr bool names_gpu(const Target& target) { return target.sm != 0 || target.device >= 0; }

struct Rejected {
  std::string path, reason;  // "cpu amx bf16", "this CPU has no AMX"
};

/// The GPU that a plan is for.
struct GpuPlan {
  std::string device;                 // its name
  int sm = 0, sms = 0, ordinal = -1;  // ordinal: CUDA's number of it; -1: planned without a device
  int all_sms = 0;                    // sms: of them, those that the plan may use (Target::sms)
  int ctas = 1;                       // of the plan's variant, that share an SM
  std::vector<Choice> choices;        // a run takes the first that its operands fit; the first is of the plan's variant
};

/// What a plan decided for the backward pass of softmax attention, beside the block or tile.
struct AttentionBackwardPlan {
  int parts = 1;                 // CPU: parts that the keys of a head are cut into
  cpu::BackwardMemory memory{};  // CPU
};

/// What a plan decided for softmax attention.
struct AttentionPlan {
  Attention problem;            // with scale resolved (never 0 meaning 1/sqrt(d))
  int rows = 0, keys = 0;       // of a block (CPU) or a tile (GPU)
  int splits = 1;               // parts that the keys are cut into
  int heads = 1;                // CPU, decode: K/V heads of one item
  bool decode = false;          // CPU: few rows, whose kernel has head dims as its lanes
  cpu::Memory memory{};         // CPU
  int group = 1;                // GPU: query heads that are rows of one tile
  std::int64_t tiles = 0;       // GPU: row tiles of one head (group); packed: of all sequences, by the hint s_q
  int walkers = 0;              // GPU: CTAs that walk over the tiles; 0: each tile has a CTA of its own
  int width = 0;                // GPU, kind decode: K/V heads of CTAs side by side; else 0
  bool counted = false;         // GPU: they draw their tiles from a counter in the workspace, the longest first
  bool early = false;           // GPU: the kernel may be started before the one before it is done
  std::size_t partial_m_l = 0;  // GPU: bytes into the workspace where m and l of the parts lie, where splits > 1
  std::size_t copies = 0;       // GPU: bytes into it where kinds halves and fp8 have operands in another form
  std::size_t rotated = 0;      // GPU: bytes into it where the rotated q lies
  AttentionBackwardPlan backward{};
};

/// What a plan decided for linear attention.
struct LinearPlan {
  LinearAttention problem;     // with scale resolved
  int segments = 1;            // parts that each sequence is cut into
  std::int64_t segment = 0;    // tokens of one, whole chunks
  int parts = 1;               // gpu: of a segment, each summed by other CTAs
  cpu::LinearMemory memory{};  // cpu
  int wide = 0;                // gpu: sweeps whose CTAs have all columns of a head
  std::int64_t ctas = 0;       // gpu: of one segment of all heads
};

/// How d is cut into work items on the CPU.
struct GemmCut {
  std::int64_t rows = 0, columns = 0;  // of d, of one item; 0: the problem is empty
  bool few = false;                    // rows are so few that b is read as it lies, where its rows are contiguous
  std::int64_t few_columns = 0;        // of one item then
  std::int64_t items = 0;              // not those of few rows
};

/// A plan's decisions for a GEMM. On a CPU a run has this cut or, if the batch can be rows of one matrix, that of
/// `merged`: the layouts of the operands are known only at the run. On a GPU each choice has its cut, and `rows` and
/// `columns` are those of a tile.
struct GemmPlan : GemmCut {
  Gemm problem;
  GemmCut merged;           // CPU: of a batch above 1 as batch * m rows; 0 rows: never
  std::size_t scratch = 0;  // CPU: bytes for one worker
};

/// What a plan decided for a norm.
struct NormPlan {
  Norm problem;
  std::int64_t item = 1;    // CPU: rows of one work item
  std::int64_t parts = 1;   // backward pass: the most parts of the rows that have sums of their own
  std::size_t scratch = 0;  // CPU: bytes for one worker
  double rate = 0;          // GPU: the bytes that are expected to move in a second
};

/// What a plan decided for Quantise.
struct QuantisePlan {
  Quantise problem;
  double rate = 0;  // GPU: the bytes that are expected to move in a second
};

struct PlanData {
  const Operation* operation = nullptr;  // plan/operation.hpp; null: nothing was asked yet
  std::variant<AttentionPlan, LinearPlan, GemmPlan, NormPlan, QuantisePlan> decided;
  Pass pass = Pass::forward;
  Target target;
  Backend backend = Backend::ref;
  const Variant* variant = nullptr;  // null for ref
  bool any_build = false;            // planned as if every GPU variant were built: for explain() alone, it cannot run
  std::vector<Rejected> rejected;    // paths considered before the one taken, with the reason
  int threads = 1;                   // CPU
  std::int64_t items = 0;            // attention: blocks or tiles of rows, over all heads; linear attention: heads;
                           // gemm: tiles of d; norm: on the CPU items of rows, on a GPU rows; quantise: blocks
  GpuPlan gpu{};
  std::size_t workspace = 0;  // bytes, total

  /// What was decided for the plan's own operation; a plan of another one has none of it.
  template <class Decided>
  bool is() const {
    return std::holds_alternative<Decided>(decided);
  }
  AttentionPlan& attention() { return *std::get_if<AttentionPlan>(&decided); }
  const AttentionPlan& attention() const { return *std::get_if<AttentionPlan>(&decided); }
  LinearPlan& linear() { return *std::get_if<LinearPlan>(&decided); }
  const LinearPlan& linear() const { return *std::get_if<LinearPlan>(&decided); }
  GemmPlan& gemm() { return *std::get_if<GemmPlan>(&decided); }
  const GemmPlan& gemm() const { return *std::get_if<GemmPlan>(&decided); }
  NormPlan& norm() { return *std::get_if<NormPlan>(&decided); }
  const NormPlan& norm() const { return *std::get_if<NormPlan>(&decided); }
  QuantisePlan& quantise() { return *std::get_if<QuantisePlan>(&decided); }
  const QuantisePlan& quantise() const { return *std::get_if<QuantisePlan>(&decided); }
};

std::string describe(const PlanData& plan);
/// Explains a plan. made: the status of Plan::make; for a plan for any build, why it refuses.
std::string explain(const PlanData& plan, Format format = Format::text, const Status& made = {});
/// For a problem without a plan: the reason, and every path.
std::string explain_refusal(const PlanData& plan, const Status& refusal, Format format);
/// For an invalid problem.
std::string explain_refusal(const Status& refusal, Format format);

}  // namespace falchion
