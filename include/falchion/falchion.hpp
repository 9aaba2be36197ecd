/// falchion.hpp: the whole public C++ API: plans and calls here, problems and operands in the headers that it includes.
/// It includes no CUDA header. A function that returns a Status never throws. The functions that return a text
/// (describe, explain, build_info) return a std::string and may throw std::bad_alloc.
///
/// The letters are the same everywhere: b batch, s sequence, h heads, d head dim; q, k, v, o the tensors; lse the
/// logarithm of the sum of exponentials. Strides are in elements, sizes are in bytes, and logarithms are natural.
/// A problem says what is to be computed, Plan::make decides how, and Plan::run only does it.
/// docs/contract.md says what every edge case does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "falchion/attention.hpp"
#include "falchion/gemm.hpp"
#include "falchion/linear_attention.hpp"
#include "falchion/norm.hpp"
#include "falchion/quantise.hpp"
#include "falchion/target.hpp"
#include "falchion/tensor.hpp"
#include "falchion/version.h"  // FAL_VERSION_MAJOR, FAL_VERSION_MINOR, FAL_VERSION_PATCH

#if defined(_WIN32)
  #define FALCHION_API
#else
  #define FALCHION_API __attribute__((visibility("default")))
#endif

namespace falchion {

enum class Pass : std::uint8_t { forward, backward };
/// The form of an explain() text: `text` is for people, `json` is for programs (docs/explain.md lists its keys).
enum class Format : std::uint8_t { text, json };

/// A decided way to run one problem: choose once, run often. A plan never changes, is cheap to copy, and may be used by
/// several threads. Two runs at the same time need two workspaces.
class FALCHION_API Plan {
 public:
  /// Decides backend, kernel, tile, splits and workspace, or says why it cannot and what the nearest supported thing
  /// is. Errors: invalid (a bad argument), unsupported (no kernel for it), device.
  static Status make(const Attention& problem, Pass pass, Target target, Plan* out) noexcept;
  static Status make(const LinearAttention& problem, Pass pass, Target target, Plan* out) noexcept;
  static Status make(const Gemm& problem, Target target, Plan* out) noexcept;
  static Status make(const Norm& problem, Target target, Plan* out) noexcept;  // forward
  static Status make(const Norm& problem, Pass pass, Target target, Plan* out) noexcept;
  static Status make(const Quantise& problem, Target target, Plan* out) noexcept;

  std::size_t workspace_bytes() const noexcept;
  Backend backend() const noexcept;  ///< the one that was taken: ref, cpu, sm80 or sm90; best means an empty plan
  std::string describe() const;      ///< one line: "attention_forward cpu avx512 bf16 d128 band full tile 256x128 ..."
  /// Describes tiles, memory, threads and roofline, and each rejected path with its reason, in many lines or in one
  /// JSON object.
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
  Status run(const QuantiseOperands& operands, void* workspace, std::size_t workspace_bytes,
             Stream stream = nullptr) const noexcept;

  explicit operator bool() const { return data_ != nullptr; }

 private:
  friend struct PlanAccess;
  std::shared_ptr<const struct PlanData> data_;
};

/// What Plan::make would decide and why, also when it refuses: for `falchion explain` and for bug reports.
FALCHION_API std::string explain(const Attention& problem, Pass pass, Target target, Format format = Format::text);
FALCHION_API std::string explain(const LinearAttention& problem, Pass pass, Target target,
                                 Format format = Format::text);
FALCHION_API std::string explain(const Gemm& problem, Target target, Format format = Format::text);
FALCHION_API std::string explain(const Norm& problem, Target target, Format format = Format::text);
FALCHION_API std::string explain(const Norm& problem, Pass pass, Target target, Format format = Format::text);
FALCHION_API std::string explain(const Quantise& problem, Target target, Format format = Format::text);

/// The one-call form for people in a hurry. It takes sizes and flags from the operands, makes a plan and runs it. It
/// keeps the last eight plans and, for the CPU, one workspace for each thread until that thread ends; on a GPU the
/// workspace is allocated in the stream's order. Backend::best stays where the operands lie: on a GPU for a GPU's or
/// managed memory, on the CPU for the host's, pinned or not; on the host it runs on ref where this build has no CPU
/// kernel. `options` gives what tensors cannot say: the band, numbers such as the scale, what becomes of gradients.
/// With packed lengths it must also give b (0 means unset and is refused), and it may give s_q and s_k (0: they are
/// read from cu_seqlens). Lengths on the host must be sorted and end at the totals, and used lengths and first keys
/// must lie in their sequences.
///
/// An operand is there where it is given (it has memory, or a shape or strides that are not all 0, for an empty tensor
/// may have no memory) and where `options` asks for it. The pass is backward where any grad_ tensor is given, and
/// forward otherwise. In the backward pass grad_q is frozen where it is not given. grad_k and grad_v are frozen where
/// neither is given; to give only one of them is invalid. `options` may freeze more. Errors: those of Plan::make and
/// Plan::run.
FALCHION_API Status attention(const Operands& operands, const Attention& options = {}, Target target = {},
                              Stream stream = nullptr) noexcept;

/// The same for linear attention. The pass is backward where any grad_ tensor is given, and forward otherwise.
/// `options` gives scale, feature map, normalise, eps and reverse. With packed lengths it must also give b, and it may
/// give s.
FALCHION_API Status linear_attention(const LinearOperands& operands, const LinearAttention& options = {},
                                     Target target = {}, Stream stream = nullptr) noexcept;

/// The same for a GEMM. `options` gives alpha, beta and the activation. A c is read where beta is not 0. Scaling is
/// row_col where scale_a or scale_b has more than one row, and block128 where one has more than one number along k, or
/// where `options` says so.
FALCHION_API Status gemm(const GemmOperands& operands, const Gemm& options = {}, Target target = {},
                         Stream stream = nullptr) noexcept;

/// The same for a norm. The pass is backward where any grad_ tensor is given, and forward otherwise. `options` gives
/// kind, eps and zero_centered. In the backward pass grad_x and grad_weight are frozen where they are not given.
FALCHION_API Status norm(const NormOperands& operands, const Norm& options = {}, Target target = {},
                         Stream stream = nullptr) noexcept;

/// The same for Quantise. `options` gives rows and all flags but smooth, which mean gives.
FALCHION_API Status quantise(const QuantiseOperands& operands, const Quantise& options = {}, Target target = {},
                             Stream stream = nullptr) noexcept;

/// Frees the workspaces that the one-call forms keep for this thread. Its next call allocates again.
FALCHION_API void release_workspaces() noexcept;

/// Merges partial results over disjoint sets of keys, 1 to 32 of them: each is an o (b, s_q, h_q, d_v) in f32, f16 or
/// bf16 and an lse (b, h_q, s_q, 1) in f32. o_parts and lse_parts point to `parts` tensors each. Empty states (an lse
/// of -inf) add nothing, and give an empty state where all are. o and lse may be those of one of the parts. The weights
/// are as exact as the f32 lse, that is to 5e-4 where it is near 1e4. (Parts of the keys that a plan itself cuts off
/// are merged exactly.)
///
/// All tensors lie on one side, as in the one-call forms. In a GPU's or managed memory the merge is one kernel on the
/// current device, which is enqueued on the stream; it allocates nothing and is safe in a CUDA graph. There an lse of
/// +inf or NaN makes its row NaN. In the host's memory, pinned or not, all is done at the return, and such an lse is
/// invalid. Errors: invalid (a tensor that does not fit, lies elsewhere), unsupported (more parts), device.
FALCHION_API Status merge(const Tensor* o_parts, const Tensor* lse_parts, std::size_t parts, const Tensor& o,
                          const Tensor& lse, Stream stream = nullptr) noexcept;
/// The merge of two. It is commutative to the bit.
FALCHION_API Status merge(const Tensor& o_a, const Tensor& lse_a, const Tensor& o_b, const Tensor& lse_b,
                          const Tensor& o, const Tensor& lse, Stream stream = nullptr) noexcept;

/// Reads the lengths, also from a GPU's memory, and reports what kernels would only clamp: cu_seqlens that are not
/// sorted, do not start at 0, do not end at the total, or have a sequence longer than s_q or s_k; used lengths below 0
/// or past the sequence; a first key outside its sequence.
/// The operands are checked as those of the pass that the one-call form would take them for. Errors: invalid, device.
FALCHION_API Status validate_lengths(const Attention& problem, const Operands& operands) noexcept;
FALCHION_API Status validate_lengths(const LinearAttention& problem, const LinearOperands& operands) noexcept;

/// version() is "0.1.0". build_info() says what this build can do on this machine, with one line each for the compiler,
/// the CPU levels, the GPUs and the variants.
FALCHION_API const char* version() noexcept;
FALCHION_API std::string build_info();

}  // namespace falchion
