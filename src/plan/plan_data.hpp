// src/plan/plan_data.hpp: everything a plan decided, in the open. Plain C++, prints itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "args/cpu_attention_args.hpp"
#include "args/cpu_linear_attention_args.hpp"
#include "args/gpu_attention_args.hpp"
#include "args/gpu_linear_attention_args.hpp"
#include "falchion/falchion.hpp"

namespace falchion {

struct PlanData;

/// One kernel instance of variants.def. What it needs is known of every row, what it does only of those that are built
/// into this library.
struct Variant {
  const char* op = "";  // "attention_forward", "linear_attention_forward", ...
  Backend backend = Backend::ref;
  const char* level = "";  // cpu: "amx", "avx512", ...; gpu: "few", "brief", "plain", "mla", "score", "general", ...
  DType dtype = DType::f32;
  int d = 0;  // gpu: head dims up to this; cpu: 0, any
  // GPU: of attention, of linear attention (plan/facts.hpp).
  gpu::AttentionFacts facts{};
  gpu::LinearAttentionFacts linear{};
  std::size_t (*linear_workspace)(const gpu::LinearAttentionArgs&) = nullptr;
  // The kernel: one of these, as operation and backend say; none of a row that is not built.
  const cpu::AttentionKernel* cpu = nullptr;
  const gpu::AttentionKernel* gpu = nullptr;
  const cpu::LinearAttentionKernel* linear_cpu = nullptr;
  const gpu::LinearAttentionKernel* linear_gpu = nullptr;

  bool is(const char* operation) const { return std::strcmp(op, operation) == 0; }
};
std::span<const Variant> variants();          // what this build has, in the order of variants.def
std::span<const Variant> listed_variants();   // every row of variants.def; without kernels, but with facts
const Variant* built(const Variant& listed);  // the row of variants() that a listed one became, or null

constexpr bool is_gpu(Backend backend) { return backend == Backend::sm80 || backend == Backend::sm90; }
/// Does the target name a GPU, or an architecture? Then `best` is the best on that one.
constexpr bool names_gpu(const Target& target) { return target.sm != 0 || target.device >= 0; }

struct Rejected {
  std::string path, reason;  // "cpu amx bf16", "this CPU has no AMX"
};

/// What a plan decided for the GPU.
struct GpuPlan {
  std::string device;                  // its name
  int sm = 0, sms = 0, ordinal = -1;   // ordinal: CUDA's number of it; -1: planned without a device
  int group = 1;                       // query heads that are rows of one tile
  std::int64_t tiles = 0;              // row tiles of one head (group); packed: of all sequences, by the hint s_q
  int walkers = 0;                     // CTAs that walk over the tiles; 0: one a tile
  bool pairs = false;                  // they take a long tile with a short one
  bool early = false;                  // it may be started before the kernel before it is done
  std::size_t partial_m_l = 0;         // bytes into the workspace, where splits > 1
  const Variant* unaligned = nullptr;  // the row for operands that are not 16-byte aligned; null: none is built
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

struct PlanData {
  Attention problem;                 // with scale resolved (never 0 meaning 1/sqrt(d))
  std::optional<LinearPlan> linear;  // a plan of linear attention; problem then says nothing
  Pass pass = Pass::forward;
  Target target;
  Backend backend = Backend::ref;
  const Variant* variant = nullptr;  // null for ref
  bool any_build = false;            // planned as if every GPU row were built: for explain() alone, it cannot run
  std::vector<Rejected> rejected;    // paths considered before the one taken, with the reason

  // cpu
  int threads = 1, rows = 0, keys = 0, splits = 1;
  int heads = 1;           // decode: K/V heads of one item
  std::int64_t items = 0;  // blocks of rows, over all K/V heads; splits of each
  bool decode = false;
  cpu::Memory memory{};
  GpuPlan gpu{};
  std::size_t workspace = 0;  // bytes, total
};

/// Chooses for one problem that validate_problem() has passed (src/api/validate.hpp). On refusal out->rejected tells
/// every path's reason; the rest of out is then for explain() alone. any_build: what a build with every GPU row would
/// do, on the back end's own architecture where no GPU is here and target.sm names none.
Status plan_attention(const Attention& problem, Pass pass, const Target& target, PlanData* out, bool any_build = false);

/// The same for linear attention.
Status plan_linear_attention(const LinearAttention& problem, Pass pass, const Target& target, PlanData* out,
                             bool any_build = false);

/// Tiles of `rows` rows that one head (group) is cut into; packed: an upper bound for total_q rows.
std::int64_t gpu_row_tiles(const Attention& problem, std::int64_t total_q, int group, int rows);

std::string describe(const PlanData& plan);
/// The whole story. made: what Plan::make says; of a plan for any build, why it refuses.
std::string explain(const PlanData& plan, Format format = Format::text, const Status& made = {});
/// Of a problem that has no plan: why, and every path.
std::string explain_refusal(const PlanData& plan, const Status& refusal, Format format);
/// Of what is not even a problem.
std::string explain_refusal(const Status& refusal, Format format);

}  // namespace falchion
