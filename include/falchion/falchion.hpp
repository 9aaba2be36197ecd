/// falchion.hpp: the whole public C++ API. It includes no CUDA header. A function that returns a Status never throws.
/// The functions that return a text (describe, explain, build_info) return a std::string and may throw std::bad_alloc.
///
/// The letters are the same everywhere: b batch, s sequence, h heads, d head dim; q, k, v, o the tensors; lse the
/// logarithm of the sum of exponentials. Strides are in elements, sizes are in bytes, and logarithms are natural.
/// A problem says what is to be computed, Plan::make decides how, and Plan::run only does it.
/// docs/contract.md says what every edge case does.
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

/// The type of an element. as_q is for problems and means "the type of q"; a tensor always has a type of its own.
/// e4m3, i8 and i32 are for Gemm alone; e5m2 already has its number, but no kernel takes it yet.
enum class DType : std::uint8_t { as_q, f32, f16, bf16, boolean, e4m3, e5m2, i8, i32 };
enum class Backend : std::uint8_t { best, ref, cpu, sm80, sm90 };
enum class Pass : std::uint8_t { forward, backward };
enum class Code : std::uint8_t { ok, invalid, unsupported, workspace, device };
/// The form of an explain() text: `text` is for people, `json` is for programs (docs/explain.md lists its keys).
enum class Format : std::uint8_t { text, json };

/// What every call returns. It is false on failure; `why` then names the argument, its value and the limit.
struct [[nodiscard]] Status {
  Code code = Code::ok;
  std::string why{};
  explicit operator bool() const { return code == Code::ok; }
};

/// A view of the caller's memory; it owns nothing. The axes of q, k, v and o are (b, s, h, d), those of bias, mask and
/// probabilities are (b, h_q, s_q, s_k), and those of lse and row_max are (b, h_q, s_q, 1). Strides may be in any
/// order. Only inputs may have strides of 0 (broadcast) or below 0.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::array<std::int64_t, 4> shape{}, stride{};

  /// A dense tensor whose last axis is contiguous, in the order of its axes.
  static Tensor dense(void* data, DType dtype, std::array<std::int64_t, 4> shape) {
    return {data, dtype, shape, {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}};
  }
  /// A view with the same axes (b, s, h, d), over memory that lies as (b, h, s, d), which is PyTorch's order.
  static Tensor heads_first(void* data, DType dtype, std::array<std::int64_t, 4> shape) {
    return {data, dtype, shape, {shape[1] * shape[2] * shape[3], shape[3], shape[1] * shape[3], 1}};
  }
};

/// Where the diagonal of a band lies when s_q != s_k. There is no default, because libraries differ: FlashAttention
/// means bottom_right (the last query sees the last key), PyTorch's is_causal means top_left (query 0 sees key 0).
enum class Align : std::uint8_t { unset, bottom_right, top_left };

/// Which keys a query may see. Query i sees key j  <=>  -left <= j - (i + shift) <= right,
/// where shift is s_k - s_q (bottom_right) or 0 (top_left), and s_q and s_k are the lengths of that sequence.
struct Band {
  static constexpr std::int64_t unbounded = -1;
  std::int64_t left = unbounded, right = unbounded;  // each is unbounded or >= 0
  Align align = Align::unset;                        // it must be set when a side is bounded

  static Band full() { return {}; }
  static Band causal(Align align) { return {unbounded, 0, align}; }
  static Band window(std::int64_t left, std::int64_t right, Align align) { return {left, right, align}; }
  bool operator==(const Band&) const = default;
};

/// How a score is made: s = softcap(scale * q.k) + alibi + bias. Then the mask and the band select which scores count.
struct Score {
  float scale = 0;    // any finite number, also a negative one; 0 asks for 1/sqrt(d_qk)
  float softcap = 0;  // 0 is off; a finite number > 0 replaces s by softcap * tanh(s / softcap)
  bool operator==(const Score&) const = default;
};

/// Which random numbers the dropout of one run draws. Philox4x32-10 on (seed, offset, b, h, i, j) alone decides whether
/// element (b, h, i, j) is kept, so the same elements are dropped on every backend and with every tile. `at` is null or
/// points to two numbers in the backend's memory. The run reads them and adds them to seed and offset (modulo 2^64). So
/// one plan, or one captured graph, serves every step, and layers that share the two numbers differ by their offsets.
struct Rng {
  std::uint64_t seed = 0, offset = 0;
  const std::uint64_t* at = nullptr;
};

/// What the backward pass writes gradients as: rounded to the type of q; in f32; or in f32, added to what is there.
enum class Grads : std::uint8_t { rounded, f32, accumulate };

/// Exact softmax attention, O = softmax(S) V. Each K/V head is shared by g = h_q / h_k query heads (GQA, MQA).
struct Attention {
  DType dtype = DType::bf16;                                                  // the type of q: f32, f16 or bf16
  DType dtype_k = DType::as_q, dtype_v = DType::as_q, dtype_o = DType::as_q;  // only as_q is built today
  /// packed: b is the number of sequences. packed or used_*: s_q and s_k are the longest lengths that are allowed.
  std::int64_t b = 0, s_q = 0, s_k = 0;
  std::int64_t h_q = 1, h_k = 1;
  std::int64_t d_qk = 0, d_v = 0;  // any numbers from 1 to 256, independent of each other
  Band band{};
  Score score{};
  float dropout = 0;  // the share p in [0, 1] of probabilities that are dropped; lse is before it; p = 1 gives O = 0

  // Which optional operands the run will have.
  bool packed = false;  // q, o are (1, total_q, h, d) and k, v (1, total_k, h, d); cu_seqlens_q and _k cut them
  bool used_q = false, used_k = false;  // used lengths, one for each sequence
  bool first_k = false;                 // left padding: the keys of sequence i begin at its row first_k[i]
  bool alibi = false;  // s -= slope[b, h] * |i + shift - j|, with the shift of Band (bottom_right when unset)
  bool bias = false;   // s += bias[b, h, i, j], of type f32 or dtype; -inf masks the key
  bool mask = false;   // boolean; true means that the key may be seen
  bool lse = false, row_max = false, probabilities = false;  // the outputs that are wanted besides o

  // Only for Pass::backward, which always has o and lse as inputs and does not look at lse, row_max, probabilities
  // above.
  bool any_order = false;        // sums of grad_q may be made in any order: faster, but the bits differ from run to run
  Grads grads = Grads::rounded;  // of grad_q, grad_k and grad_v; accumulate also adds to grad_bias and grad_alibi
  bool zero_unused = false;      // rows of grad_q, grad_k, grad_v that belong to no used length get 0, not left alone
  bool grad_lse = false;         // there is a gradient of the lse, as an input
  bool grad_bias = false, grad_alibi = false;  // the gradients that are wanted besides those of q, k and v
  std::uint8_t frozen = 0;                     // what is not wanted: 1 grad_q, 2 grad_k and grad_v, 3 all three
  bool operator==(const Attention&) const = default;
};

/// The tensors of one run. All memory must lie where the backend can use it: a GPU's memory for
/// its backends, the host's for ref and cpu; pinned and managed memory serve both. Each run checks
/// this and names the operand that breaks it.
///
/// Those after the blank line are only for Pass::backward, in which o and lse are inputs too: what the forward pass
/// wrote or, where the keys were computed in parts, the merged ones. They are never computed anew.
struct Operands {
  Tensor q, k, v;        // inputs   (b, s, h, d), last axis contiguous
  Tensor o;              // output   (b, s_q, h_q, d_v)
  Tensor lse, row_max;   // outputs  (b, h_q, s_q, 1) f32; packed: (1, h_q, total_q, 1). -inf where no key is seen
  Tensor probabilities;  // output   (b, h_q, s_q, s_k) f32, before dropout; not with packed
  Tensor bias, mask;     // inputs   (b, h_q, s_q, s_k), broadcast with stride 0 or extent 1 on any axis
  Tensor alibi;          // input    slopes (b or 1, 1, h_q, 1) f32; packed: b sequences
  const std::int32_t *cu_seqlens_q = nullptr, *cu_seqlens_k = nullptr;  // (b + 1), starts at 0, sorted, ends at total
  const std::int32_t *used_q = nullptr, *used_k = nullptr;              // (b); rows of o past used_q stay untouched
  /// (b): the keys of a sequence are its rows [first_k, length of k). The rows before first_k count as if they did not
  /// exist: they are not read, and bands count keys from first_k on. Columns of bias, mask and probabilities remain
  /// rows of k.
  const std::int32_t* first_k = nullptr;
  Rng rng;  // with dropout

  Tensor grad_o;                  // input    (b, s_q, h_q, d_v) of the type of q; any strides, 0 too
  Tensor grad_lse;                // input    (b, h_q, s_q, 1) f32; packed: (1, h_q, total_q, 1)
  Tensor grad_q, grad_k, grad_v;  // outputs  as q, k, v, last axis contiguous, of the type that Attention::grads says
  Tensor grad_bias;               // output   (b, h_q, s_q, s_k) f32; an axis of extent 1 is summed over
  Tensor grad_alibi;              // output   (b or 1, 1, h_q, 1) f32, summed over b where its extent is 1
};

/// The feature map phi, which q and k go through when they are loaded. elu_plus_one is x > 0 ? x + 1 : exp(x).
enum class FeatureMap : std::uint8_t { identity, elu_plus_one };
/// How the state fades: not at all (none); by one constant for each head, as in retention and lightning attention
/// (head); or by one number for each token and head, as in simple GLA and Mamba-2 (token).
enum class Decay : std::uint8_t { none, head, token };

/// Causal linear attention (Katharopoulos et al. 2020, arXiv:2006.16236), a recurrence over tokens j of a sequence:
///   S_j = e^(g_j) S_(j-1) + phi(k_j) v_j^T,    o_j = scale phi(q_j)^T S_j,    S_(-1) = initial_state or 0
/// Each value head has its own state S (d_qk, d_v). With `normalise` a vector z_j = e^(g_j) z_(j-1) + phi(k_j) is kept
/// beside S, and o_j is divided by scale phi(q_j) z_j + eps. With `reverse` the recurrence runs from the last token to
/// the first.
struct LinearAttention {
  DType dtype = DType::bf16;  // the type of q: f32, f16 or bf16; states and decay are always f32
  DType dtype_k = DType::as_q, dtype_v = DType::as_q, dtype_o = DType::as_q;  // only as_q is built today
  std::int64_t b = 0, s = 0;       // packed: b is the number of sequences, s the longest length that is allowed
  std::int64_t h_qk = 1, h_v = 1;  // h_v / h_qk value heads share each head of q and k
  std::int64_t d_qk = 0, d_v = 0;  // any numbers from 1 to 256, independent of each other
  float scale = 0;                 // 0 asks for 1/sqrt(d_qk); the fast-transformers library uses 1
  FeatureMap feature_map = FeatureMap::identity;
  Decay decay = Decay::none;
  bool normalise = false;
  float eps = 1e-6F;  // used with normalise; finite and >= 0
  bool reverse = false;

  // Which optional operands the run will have.
  bool packed = false;  // q, k, v, o are (1, total, h, d), and cu_seqlens cuts them; states still have b entries
  bool initial_state = false, final_state = false;  // with normalise also initial_z, final_z
  bool operator==(const LinearAttention&) const = default;
};

/// The tensors of one run of LinearAttention. Those after the blank line are only for Pass::backward. All memory must
/// lie where the backend can use it, as for Operands.
struct LinearOperands {
  Tensor q, k;                        // inputs   (b, s, h_qk, d_qk), last axis contiguous
  Tensor v, o;                        // input, output (b, s, h_v, d_v); the backward pass does not read o
  Tensor decay;                       // input    g, natural logarithm: (b, s, h_v, 1) f32; Decay::head: (1, 1, h_v, 1)
  Tensor initial_state, final_state;  // input, output (b, h_v, d_qk, d_v) f32; one view for both updates it in place
  Tensor initial_z, final_z;          // input, output (b, h_v, d_qk, 1) f32; one view for both, likewise
  const std::int32_t* cu_seqlens = nullptr;  // (b + 1), starts at 0, sorted, ends at total

  Tensor grad_o;                              // input    (b, s, h_v, d_v)
  Tensor grad_final_state, grad_final_z;      // inputs, where the problem has final_state
  Tensor grad_q, grad_k, grad_v;              // outputs, with the shapes and dtype of q, k, v
  Tensor grad_decay;                          // output f32, with the shape of decay
  Tensor grad_initial_state, grad_initial_z;  // outputs, where the problem has initial_state
};

/// What a GEMM does with its sums. gelu_tanh is the approximation 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), silu
/// is x / (1 + e^-x). With swiglu b has 2 n rows, those of the n gates first, and D = silu(gate) * up.
enum class Activation : std::uint8_t { none, relu, gelu_tanh, gelu_erf, silu, swiglu };
/// What the numbers of an 8-bit a and b are multiplied by: nothing, a scale for each tensor, or for each of their rows.
enum class Scaling : std::uint8_t { none, tensor, row_col };

/// A matrix product with what follows it: Z = alpha s_a s_b A B^T + beta C + bias, D = activation(Z) + R. So C enters
/// before the activation, as in BLAS, and the residual R after it. Sums and what follows them are f32, and sums of i8
/// are exact. There is no backward pass of its own: the gradients of A and B are Gemms of other views.
struct Gemm {
  DType dtype = DType::bf16;                           // the type of a: f32, f16, bf16, on the CPU e4m3 or i8
  DType dtype_b = DType::as_q;                         // as_q: as a; only that is built today
  DType dtype_c = DType::as_q, dtype_d = DType::as_q;  // of c: as d, of d: as a; or f32 or the type of a. With 8-bit a
                                                       // d is named: bf16, f16, f32, or for sums of i8 i32
  std::int64_t batch = 1, m = 0, n = 0, k = 0;         // n: the columns of d; k = 0 leaves beta C + bias
  float alpha = 1, beta = 0;                           // finite; 0: the product, or c, is not read
  Activation activation = Activation::none;
  bool bias_n = false, bias_m = false, residual = false;  // a bias for each row of b, for each row of a
  Scaling scaling = Scaling::none;                        // of an 8-bit a and b
  bool operator==(const Gemm&) const = default;
};

/// The tensors of one run of Gemm. An input may have any strides, also 0 and negative ones. The axes k2 and k1 are one
/// axis k of k2 * k1, cut in two so that heads need not be contiguous: the o of attention (b, s, h, d) is an a, and its
/// q, k and v are a d. a and b are cut alike, and so are c, d and residual.
struct GemmOperands {
  Tensor a;                 // input   (batch, m, k2, k1)
  Tensor b;                 // input   (batch or 1, n, k2, k1); swiglu: 2 n rows
  Tensor c;                 // input   (batch, m, n2, n1), read where beta is not 0; not with swiglu
  Tensor d;                 // output  (batch, m, n2, n1); it may be the very view c, or residual
  Tensor residual;          // input   (batch, m, n2, n1), of the type of d
  Tensor bias_n;            // input   (1, 1, 1, rows of b), f32 or of the type of a, of d where a has 8 bits
  Tensor bias_m;            // input   (batch or 1, m, 1, 1), the same
  Tensor scale_a, scale_b;  // inputs  (batch or 1, 1 or with row_col m or rows of b, 1, 1), f32
};

/// layer subtracts the mean of a row and divides by its standard deviation (Ba et al. 2016, arXiv:1607.06450), rms
/// divides by the root mean square alone (Zhang and Sennrich 2019, arXiv:1910.07467).
enum class NormKind : std::uint8_t { layer, rms };

/// Norms of rows of d numbers. v = x + residual is f32 and is not rounded before it is normalised. layer:
/// Y = (v - mean) rstd weight + bias with rstd = 1 / sqrt(variance + eps). rms subtracts no mean:
/// Y = v rstd weight + bias with rstd = 1 / sqrt(mean of v^2 + eps).
struct Norm {
  DType dtype = DType::bf16;           // the type of x: f32, f16 or bf16
  DType dtype_y = DType::as_q;         // of y; as_q: as x; or f32, f16 or bf16
  DType dtype_residual = DType::as_q;  // of residual and residual_out; as_q: as x; or f32, f16 or bf16
  NormKind kind = NormKind::layer;
  std::int64_t rows = 0, d = 0;  // rows: the product of the first three extents of x
  float eps = 1e-5F;             // finite and >= 0
  bool zero_centered = false;    // the factor is 1 + weight

  // Which optional operands the run will have.
  bool weight = false, bias = false;
  bool residual = false, residual_out = false;  // an input that is added to x; an output that gets the sum
  bool mean = false, rstd = false;              // outputs that a backward pass needs; rms has no mean
  bool operator==(const Norm&) const = default;
};

/// The tensors of one run of Norm. An input may have any strides, also 0 and negative ones. A GPU is fastest where d is
/// a multiple of 8, the numbers of a row are contiguous, and each row begins at a multiple of 16 bytes.
struct NormOperands {
  Tensor x;             // input   (b, s, h, d)
  Tensor residual;      // input   (b, s, h, d)
  Tensor weight, bias;  // inputs  (b, s, h, d), f32, f16 or bf16; rows share numbers along axes where the extent is 1
  Tensor y;             // output  (b, s, h, d); it may be the very view x, or residual
  Tensor residual_out;  // output  (b, s, h, d); it may be the very view residual, or x
  Tensor mean, rstd;    // outputs (b, s, h, 1) f32
};

/// The caller's own thread pool, for an engine that has one. parallel_for must call task(context, i) once for each i in
/// [0, n), on any threads, and return when all are done and their writes are visible to its caller. No task waits for
/// anything but its own work, so a pool may run other work on a thread that waits. `threads` of them may run at once.
struct Executor {
  void (*parallel_for)(void* self, int n, void (*task)(void* context, int i), void* context) = nullptr;
  void* self = nullptr;
  int threads = 1;
  bool operator==(const Executor&) const = default;
};

/// What to plan for.
struct Target {
  Backend backend = Backend::best;
  int threads = 0;      // cpu: how many threads; 0 means all that the process may use (OMP_NUM_THREADS counts)
  Executor executor{};  // cpu: the pool to run on; without one it is OpenMP, or the library's own threads
  int sm = 0;           // gpu: plan for this architecture (80, 90) even if it is not here; 0 means the one present
  /// cpu: plan for this instruction set ("amx", "avx512", ...) or fail; with Backend::best this also asks for the CPU.
  /// null means the level that FALCHION_CPU names (it never names a backend), and without it the fastest level.
  const char* cpu_level = nullptr;
  int segments = 0;  // linear attention: how many parts each sequence is cut into; 0 lets the plan decide
  /// gpu: the device's CUDA number; -1 means the device that is current when the plan is made. A run goes to the plan's
  /// device, and so must its stream, whichever one is current by then, and leaves the caller's device current.
  int device = -1;
  /// true: the caller vouches that every pointer lies where the backend can use it. Otherwise each run asks CUDA's
  /// driver where the process uses CUDA, which takes some 0.2 us for each pointer.
  bool trust_pointers = false;
  Target() = default;
  Target(Backend backend) : backend(backend) {}  // NOLINT(google-explicit-constructor): a Backend is a Target
};

using Stream = void*;  // a cudaStream_t; null for the CPU

/// A decided way to run one problem: choose once, run often. A plan never changes, is cheap to copy, and may be used by
/// several threads. Two runs at the same time need two workspaces.
class FALCHION_API Plan {
 public:
  /// Decides backend, kernel, tile, splits and workspace, or says why it cannot and what the nearest supported thing
  /// is. Errors: invalid (a bad argument), unsupported (no kernel for it), device.
  static Status make(const Attention& problem, Pass pass, Target target, Plan* out) noexcept;
  static Status make(const LinearAttention& problem, Pass pass, Target target, Plan* out) noexcept;
  static Status make(const Gemm& problem, Target target, Plan* out) noexcept;
  static Status make(const Norm& problem, Target target, Plan* out) noexcept;

  std::size_t workspace_bytes() const noexcept;
  Backend backend() const noexcept;  ///< the one that was taken: ref, cpu, sm80 or sm90; best means an empty plan
  std::string describe() const;      ///< one line: "attention_forward cpu avx512 bf16 d128 band full tile 256x128 ..."
  /// Describes tiles, memory, threads and roofline, and each rejected path with its reason, in lines or as JSON.
  std::string explain(Format format = Format::text) const;

  /// On a GPU it enqueues the work and returns; on the CPU it does the work. It neither allocates nor synchronises and
  /// is safe in a CUDA graph. (OpenMP itself allocates when a thread first uses it; an Executor avoids that.) The
  /// workspace must have at least workspace_bytes() bytes and be 64-byte aligned. Errors: invalid (a tensor that does
  /// not fit the plan), unsupported (operands that need a variant which is not built), workspace, device.
  Status run(const Operands& operands, void* workspace, std::size_t workspace_bytes,
             Stream stream = nullptr) const noexcept;
  Status run(const LinearOperands& operands, void* workspace, std::size_t workspace_bytes,
             Stream stream = nullptr) const noexcept;
  Status run(const GemmOperands& operands, void* workspace, std::size_t workspace_bytes,
             Stream stream = nullptr) const noexcept;
  Status run(const NormOperands& operands, void* workspace, std::size_t workspace_bytes,
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
FALCHION_API std::string explain(const Gemm& problem, Target target, Format format = Format::text);
FALCHION_API std::string explain(const Norm& problem, Target target, Format format = Format::text);

/// The one-call form for people in a hurry. It takes sizes and flags from the operands, makes a plan and runs it. It
/// keeps the last eight plans and, for the CPU, one workspace for each thread until that thread ends; on a GPU the
/// workspace is allocated in the stream's order. Backend::best stays where q lies: on a GPU for a GPU's or managed
/// memory, on the CPU for the host's, pinned or not. `options` gives what tensors cannot say: band, score and dropout.
/// With packed lengths it must also give b (0 means unset and is refused), and it may give s_q and s_k (0: they are
/// read from cu_seqlens). Lengths on the host must be sorted and end at the totals.
///
/// The pass is backward where any grad_ tensor is given (it has memory, or a shape that is not all 0), and forward
/// otherwise. In the backward pass grad_q is frozen where it is not given. grad_k and grad_v are frozen where neither
/// is given; to give only one of them is invalid. `options` also gives any_order, grads, zero_unused and frozen. In
/// host memory the pass runs on ref as long as no CPU level has a kernel of it. Errors: those of Plan::make and
/// Plan::run.
FALCHION_API Status attention(const Operands& operands, const Attention& options = {}, Target target = {},
                              Stream stream = nullptr) noexcept;

/// The same for linear attention. The pass is backward where any grad_ tensor is given (it has memory, or a shape that
/// is not all 0), and forward otherwise. `options` gives scale, feature map, normalise, eps and reverse. With packed
/// lengths it must also give b, and it may give s.
FALCHION_API Status linear_attention(const LinearOperands& operands, const LinearAttention& options = {},
                                     Target target = {}, Stream stream = nullptr) noexcept;

/// The same for a GEMM. `options` gives alpha, beta and the activation. A c is read where beta is not 0. Scaling is
/// row_col where scale_a or scale_b has more than one row.
FALCHION_API Status gemm(const GemmOperands& operands, const Gemm& options = {}, Target target = {},
                         Stream stream = nullptr) noexcept;

/// The same for a norm. `options` gives kind, eps and zero_centered.
FALCHION_API Status norm(const NormOperands& operands, const Norm& options = {}, Target target = {},
                         Stream stream = nullptr) noexcept;

/// Frees the workspaces that the one-call forms keep for this thread. Its next call allocates again.
FALCHION_API void release_workspaces() noexcept;

/// Merges two partial results over disjoint sets of keys: each is an o (b, s_q, h_q, d_v) in f32, f16 or bf16 and an
/// lse (b, h_q, s_q, 1) in f32, in the host's memory. The merge is commutative. Two empty states give an empty state;
/// an lse of +inf or NaN is invalid. o may be o_a or o_b. The weights are as exact as the f32 lse, that is to 5e-4
/// where it is near 1e4. (Parts of the keys that a plan itself cuts off are merged exactly.)
FALCHION_API Status merge(const Tensor& o_a, const Tensor& lse_a, const Tensor& o_b, const Tensor& lse_b,
                          const Tensor& o, const Tensor& lse) noexcept;

/// Reads the lengths, also from a GPU's memory, and reports what kernels would only clamp: cu_seqlens that are not
/// sorted, do not start at 0, do not end at the total, or have a sequence longer than s_q or s_k; used lengths below 0
/// or past the sequence; a first_k outside its sequence.
/// The operands are checked as those of the pass that the one-call form would take them for. Errors: invalid, device.
FALCHION_API Status validate_lengths(const Attention& problem, const Operands& operands) noexcept;
FALCHION_API Status validate_lengths(const LinearAttention& problem, const LinearOperands& operands) noexcept;

/// version() is "0.1.0". build_info() says what this build can do on this machine, with one line each for the compiler,
/// the CPU levels, the GPUs and the variants.
FALCHION_API const char* version() noexcept;
FALCHION_API std::string build_info();

}  // namespace falchion
