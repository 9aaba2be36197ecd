/// falchion.hpp: the whole public C++ API. It includes no CUDA header. What returns a Status never throws; the texts
/// (describe, explain, build_info) are std::string and may throw std::bad_alloc.
///
/// Letters everywhere: b batch, s sequence, h heads, d head dim; q k v o; lse = log of the sum of exponentials.
/// Strides are in elements, sizes in bytes, logarithms natural. A problem says what, Plan::make decides how,
/// Plan::run only does it. What every edge case does is written in docs/contract.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "falchion/version.h"  // FAL_VERSION_MAJOR, FAL_VERSION_MINOR, FAL_VERSION_PATCH

#if defined(_WIN32)
  #define FALCHION_API
#else
  #define FALCHION_API __attribute__((visibility("default")))
#endif

namespace falchion {

/// as_q: in a problem, the type of q; a tensor has a type of its own. e4m3, e5m2, i8 have numbers, and no kernel yet.
enum class DType : std::uint8_t { as_q, f32, f16, bf16, boolean, e4m3, e5m2, i8 };
enum class Backend : std::uint8_t { best, ref, cpu, sm80, sm90 };
enum class Pass : std::uint8_t { forward, backward };
enum class Code : std::uint8_t { ok, invalid, unsupported, workspace, device };
enum class Format : std::uint8_t { text, json };  // of explain(): for people, for programs (keys: docs/explain.md)

/// What every call returns. False on failure; `why` then names the argument, its value and the limit.
struct [[nodiscard]] Status {
  Code code = Code::ok;
  std::string why{};
  explicit operator bool() const { return code == Code::ok; }
};

/// A view that owns nothing. q, k, v, o: axes (b, s, h, d). bias, mask, probabilities: axes (b, h_q, s_q, s_k).
/// lse, row_max: axes (b, h_q, s_q, 1). Strides may be in any order; 0 (broadcast) and negative on inputs only.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::array<std::int64_t, 4> shape{}, stride{};

  /// A dense tensor whose last axis is contiguous, in the order of its axes.
  static Tensor dense(void* data, DType dtype, std::array<std::int64_t, 4> shape) {
    return {data, dtype, shape, {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}};
  }
  /// The same (b, s, h, d) view over memory that lies as (b, h, s, d), PyTorch's order.
  static Tensor heads_first(void* data, DType dtype, std::array<std::int64_t, 4> shape) {
    return {data, dtype, shape, {shape[1] * shape[2] * shape[3], shape[3], shape[1] * shape[3], 1}};
  }
};

/// Where the diagonal of a band lies when s_q != s_k. There is no default: FlashAttention means bottom_right
/// (the last query sees the last key), PyTorch's is_causal means top_left (query 0 sees key 0).
enum class Align : std::uint8_t { unset, bottom_right, top_left };

/// Which keys a query may see. Query i sees key j  <=>  -left <= j - (i + shift) <= right,
/// where shift = s_k - s_q (bottom_right) or 0 (top_left), with the lengths of that sequence.
struct Band {
  static constexpr std::int64_t unbounded = -1;
  std::int64_t left = unbounded, right = unbounded;  // each unbounded or >= 0
  Align align = Align::unset;                        // must be set when a side is bounded

  static Band full() { return {}; }
  static Band causal(Align align) { return {unbounded, 0, align}; }
  static Band window(std::int64_t left, std::int64_t right, Align align) { return {left, right, align}; }
  bool operator==(const Band&) const = default;
};

/// How a score is made: s = softcap(scale * q.k) + alibi + bias, then the mask and the band select.
struct Score {
  float scale = 0;    // 0 asks for 1/sqrt(d_qk). Any finite number, negative too
  float softcap = 0;  // 0 is off; else s -> softcap * tanh(s / softcap); finite, > 0
  bool operator==(const Score&) const = default;
};

/// Which random numbers the dropout of one run draws: Philox4x32-10 on (seed, offset, b, h, i, j) decides alone whether
/// element (b, h, i, j) is kept, so the bits are the same on every backend and tile. `at`: null, or two numbers in the
/// backend's memory which the run reads and adds to seed and offset (modulo 2^64); so one plan, or one captured graph,
/// serves every step, and layers that share the two numbers differ by their offsets.
struct Rng {
  std::uint64_t seed = 0, offset = 0;
  const std::uint64_t* at = nullptr;
};

/// Exact softmax attention, O = softmax(S) V. Head h_q/h_k = g query heads share each K/V head (GQA; MQA is h_k = 1).
struct Attention {
  DType dtype = DType::bf16;                                                  // of q: f32, f16, bf16
  DType dtype_k = DType::as_q, dtype_v = DType::as_q, dtype_o = DType::as_q;  // built today: as q
  std::int64_t b = 0, s_q = 0, s_k = 0;  // packed: b sequences; packed or used: s is the longest allowed
  std::int64_t h_q = 1, h_k = 1;
  std::int64_t d_qk = 0, d_v = 0;  // 1 to 256, any number, independent
  Band band{};
  Score score{};
  float dropout = 0;  // p in [0, 1] of the probabilities that are dropped; lse is before it; p = 1 gives O = 0

  // Which optional operands the run will have.
  bool packed = false;                  // q, o are (1, total_q, h, d), k, v (1, total_k, h, d), cut by cu_seqlens_q/_k
  bool used_q = false, used_k = false;  // used lengths, one a sequence
  bool first_k = false;                 // left padding: the keys of sequence i begin at its row first_k[i]
  bool alibi = false;  // s -= slope[b, h] * |i + shift - j|, shift as in Band (bottom_right when unset)
  bool bias = false;   // s += bias[b, h, i, j]; f32 or dtype; -inf masks
  bool mask = false;   // boolean, true = may be seen
  bool lse = false, row_max = false, probabilities = false;  // outputs wanted
  bool operator==(const Attention&) const = default;
};

/// The tensors of one run. All memory lies where the backend can use it: a GPU's for its backends, the host's for ref
/// and cpu, either for pinned and managed memory; each run checks it, and names the operand that does not.
struct Operands {
  Tensor q, k, v;        // inputs   (b, s, h, d), last axis contiguous
  Tensor o;              // output   (b, s_q, h_q, d_v)
  Tensor lse, row_max;   // outputs  (b, h_q, s_q, 1) f32; packed: (1, h_q, total_q, 1). -inf where no key is seen
  Tensor probabilities;  // output   (b, h_q, s_q, s_k) f32, before dropout; not with packed
  Tensor bias, mask;     // inputs   (b, h_q, s_q, s_k), broadcast with stride 0 or extent 1 on b, h_q, s_q
  Tensor alibi;          // input    slopes (b or 1, 1, h_q, 1) f32; packed: b sequences
  const std::int32_t *cu_seqlens_q = nullptr, *cu_seqlens_k = nullptr;  // (b + 1), starts at 0, sorted, ends at total
  const std::int32_t *used_q = nullptr, *used_k = nullptr;              // (b); rows of o past used_q stay untouched
  /// (b): the sequence's keys are its rows [first_k, length of k), as if those before did not exist: nothing of them is
  /// read, and bands count from first_k on. Columns of bias, mask and probabilities stay rows of k.
  const std::int32_t* first_k = nullptr;
  Rng rng;  // with dropout
};

/// What q and k go through first, on load: a feature map phi. elu_plus_one: x > 0 ? x + 1 : exp(x).
enum class FeatureMap : std::uint8_t { identity, elu_plus_one };
/// How the state fades: not at all; by a constant a head (retention, lightning attention); by one number a token and
/// head (simple GLA, Mamba-2).
enum class Decay : std::uint8_t { none, head, token };

/// Causal linear attention (Katharopoulos et al. 2020, arXiv:2006.16236), a recurrence over tokens j of a sequence:
///   S_j = e^(g_j) S_(j-1) + phi(k_j) v_j^T,    o_j = scale phi(q_j)^T S_j,    S_(-1) = initial_state or 0
/// with a state S of (d_qk, d_v) for each value head. normalise: z_j = e^(g_j) z_(j-1) + phi(k_j) goes along, and
/// o_j is divided by scale phi(q_j) z_j + eps. reverse: the same from the last token to the first.
struct LinearAttention {
  DType dtype = DType::bf16;  // of q: f32, f16, bf16. States and decay are f32
  DType dtype_k = DType::as_q, dtype_v = DType::as_q, dtype_o = DType::as_q;  // built today: as q
  std::int64_t b = 0, s = 0;       // packed: b sequences; packed or used: s is the longest allowed
  std::int64_t h_qk = 1, h_v = 1;  // h_v / h_qk value heads share each head of q and k
  std::int64_t d_qk = 0, d_v = 0;  // 1 to 256, any number, independent
  float scale = 0;                 // 0 asks for 1/sqrt(d_qk); fast-transformers means 1
  FeatureMap feature_map = FeatureMap::identity;
  Decay decay = Decay::none;
  bool normalise = false;
  float eps = 1e-6F;  // with normalise; finite, >= 0
  bool reverse = false;

  // Which optional operands the run will have.
  bool packed = false;  // q, k, v, o are (1, total, h, d), cut by cu_seqlens; states still have b entries
  bool initial_state = false, final_state = false;  // and z of them, with normalise
  bool operator==(const LinearAttention&) const = default;
};

/// The tensors of one run of LinearAttention; the second half only for Pass::backward. Where they lie: as in Operands.
struct LinearOperands {
  Tensor q, k;                        // inputs   (b, s, h_qk, d_qk), last axis contiguous
  Tensor v, o;                        // input, output (b, s, h_v, d_v); backward does not read o
  Tensor decay;                       // input    g, natural logarithm: (b, s, h_v, 1) f32; Decay::head: (1, 1, h_v, 1)
  Tensor initial_state, final_state;  // input, output (b, h_v, d_qk, d_v) f32; may be the same memory: then in place
  Tensor initial_z, final_z;          // likewise (b, h_v, d_qk, 1) f32
  const std::int32_t* cu_seqlens = nullptr;  // (b + 1), starts at 0, sorted, ends at total

  Tensor grad_o;                              // input    (b, s, h_v, d_v)
  Tensor grad_final_state, grad_final_z;      // inputs, where the problem has final_state
  Tensor grad_q, grad_k, grad_v;              // outputs, shapes and dtype of q, k, v
  Tensor grad_decay;                          // output f32, shape of decay
  Tensor grad_initial_state, grad_initial_z;  // outputs, where the problem has initial_state
};

/// An engine's own thread pool. parallel_for must call task(context, i) once for each i in [0, n), on any threads, and
/// return when all are done and their writes are visible to its caller. A task may wait for nothing but itself; a pool
/// may run other work on a waiting thread. `threads` is how many may run at once.
struct Executor {
  void (*parallel_for)(void* self, int n, void (*task)(void* context, int i), void* context) = nullptr;
  void* self = nullptr;
  int threads = 1;
  bool operator==(const Executor&) const = default;
};

/// What to plan for.
struct Target {
  Backend backend = Backend::best;
  int threads = 0;      // cpu: how many; 0 = all the process may use (OMP_NUM_THREADS counts)
  Executor executor{};  // cpu: the pool to run on; none = OpenMP
  int sm = 0;           // gpu: plan for this architecture (80, 90) though it is not here; 0 = the one present
  /// cpu: this level or none ("amx", "avx512", ...); with best it asks for the CPU. null = FALCHION_CPU, which names a
  /// level and never a backend, else the fastest.
  const char* cpu_level = nullptr;
  int segments = 0;  // linear attention: parts that each sequence is cut into; 0 = decided by threads or SMs
  /// gpu: CUDA's number of it, -1: the device that is current when the plan is made. A run goes to the plan's device,
  /// whichever is current then, with a stream of that device, and puts the caller's back.
  int device = -1;
  /// The caller vouches that every pointer lies where the backend can use it. Else a run asks CUDA's driver, some
  /// 0.2 us a pointer, in processes that use CUDA.
  bool trust_pointers = false;
  Target() = default;
  Target(Backend backend) : backend(backend) {}  // NOLINT(google-explicit-constructor): a Backend is a Target
};

using Stream = void*;  // a cudaStream_t; null for the CPU

/// A decided way to run one problem. Immutable, cheap to copy, shareable between threads: choose once, run often.
/// Two runs at once need two workspaces.
class FALCHION_API Plan {
 public:
  /// Decides backend, kernel, tile, splits and workspace, or says why not and what the nearest supported thing is.
  /// Errors: invalid (a bad argument), unsupported (no kernel for it), device.
  static Status make(const Attention& problem, Pass pass, Target target, Plan* out) noexcept;
  static Status make(const LinearAttention& problem, Pass pass, Target target, Plan* out) noexcept;

  std::size_t workspace_bytes() const noexcept;
  Backend backend() const noexcept;  ///< the one that was taken: ref, cpu, sm80, sm90; best: there is no plan
  std::string describe() const;      ///< one line: "attention_forward cpu avx512 bf16 d128 band full tile 256x128 ..."
  /// Tiles, memory, threads, roofline, and each rejected path with its reason: many lines, or one object of JSON.
  std::string explain(Format format = Format::text) const;

  /// Enqueues (on the CPU: runs). No allocation, no synchronisation, safe in a CUDA graph (OpenMP itself allocates when
  /// a thread first uses it; lend an Executor to rule that out). workspace has at least
  /// workspace_bytes() bytes, 64-byte aligned. Errors: invalid (a tensor that is not the plan's), workspace, device.
  Status run(const Operands& operands, void* workspace, std::size_t workspace_bytes,
             Stream stream = nullptr) const noexcept;
  Status run(const LinearOperands& operands, void* workspace, std::size_t workspace_bytes,
             Stream stream = nullptr) const noexcept;

  explicit operator bool() const { return data_ != nullptr; }
  const struct PlanData* data() const { return data_.get(); }

 private:
  std::shared_ptr<const struct PlanData> data_;
};

/// What Plan::make would decide and why, also when it refuses: for `falchion explain` and for bug reports.
FALCHION_API std::string explain(const Attention& problem, Pass pass, Target target, Format format = Format::text);
FALCHION_API std::string explain(const LinearAttention& problem, Pass pass, Target target,
                                 Format format = Format::text);

/// The one-call form for people in a hurry: takes sizes and flags from the operands, plans, keeps the last eight plans
/// and, for the CPU, one workspace for each thread until it ends (on a GPU it is allocated in the stream's order).
/// `best` stays where q lies: in a GPU's or managed memory, a GPU; in the host's, pinned or not, the CPU. `options`
/// gives what tensors cannot say: band, score, dropout. For packed lengths it must give b (0 is unset, and refused),
/// and may give s_q and s_k (0: read from cu_seqlens); lengths on the host must be sorted and end at the totals.
FALCHION_API Status attention(const Operands& operands, const Attention& options = {}, Target target = {},
                              Stream stream = nullptr) noexcept;

/// The same for linear attention: backward where any grad_ tensor is given (memory, or a shape that is not all 0), else
/// forward. `options` gives scale, feature map, normalise, eps, reverse; for packed lengths b, and s where it is known.
FALCHION_API Status linear_attention(const LinearOperands& operands, const LinearAttention& options = {},
                                     Target target = {}, Stream stream = nullptr) noexcept;

/// Frees the workspaces that the one-call forms keep for this thread. Its next call allocates again.
FALCHION_API void release_workspaces() noexcept;

/// Merges two partial results over disjoint key sets: o, lse (b, h_q, s_q, 1). Commutative. Two empty states give an
/// empty state; an lse of +inf or NaN is invalid. o may be o_a or o_b. CPU tensors; dtypes f32, f16, bf16. The weights
/// are as exact as the f32 lse: to 5e-4 where it is near 1e4. (Parts that a plan cuts off itself are merged exactly.)
FALCHION_API Status merge(const Tensor& o_a, const Tensor& lse_a, const Tensor& o_b, const Tensor& lse_b,
                          const Tensor& o, const Tensor& lse) noexcept;

/// Reads the device lengths and reports what kernels would only clamp: cu_seqlens not sorted, not starting at 0, not
/// ending at the total, longer than s_q or s_k; used lengths below 0 or past the sequence.
FALCHION_API Status validate_lengths(const Attention& problem, const Operands& operands) noexcept;
FALCHION_API Status validate_lengths(const LinearAttention& problem, const LinearOperands& operands) noexcept;

/// Version "0.1.0", and what this build can do here: one line each for compiler, CPU levels, GPUs, variants.
FALCHION_API const char* version() noexcept;
FALCHION_API std::string build_info();

}  // namespace falchion
