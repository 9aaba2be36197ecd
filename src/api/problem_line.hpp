// src/api/problem_line.hpp: a problem as a plain description that prints as one line of key=value. `falchion verify
// --problem LINE` makes it again, to the bit, on any machine; storms draw such problems, and the trace writes them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "falchion/falchion.hpp"

namespace falchion::line {

/// A storm's random numbers depend on this value. So new operations are added at the end, and old seeds keep their
/// problems.
enum class Op : std::uint8_t {
  attention,
  linear,
  linear_backward,
  attention_backward,
  gemm,
  norm,
  quantise,
  norm_backward
};

/// The library's struct for the problem of an operation: Attention, LinearAttention, Gemm, Norm or Quantise.
enum class Kind : std::uint8_t { attention, linear, gemm, norm, quantise };

struct CommandOperation {
  Op op;
  const char* name;       // of --op, and of op= in the text of a storm's problem: "linear-backward"
  const char* operation;  // as the library and variants.def name it: "linear_attention_backward"
  Kind kind;
  Pass pass;
};

/// The entries stand in the order of Op, because entry_of() indexes them.
std::span<const CommandOperation> command_operations();
const CommandOperation& entry_of(Op op);

inline const char* name(Op op) { return entry_of(op).name; }
inline Kind kind_of(Op op) { return entry_of(op).kind; }
inline Pass pass_of(Op op) { return entry_of(op).pass; }
/// The memory layout of an operand. Its text is "dense" or lists the deviations, such as "0213+pad3+start1".
struct Storage {
  std::string order = "0123";  // the axes from the outermost to the innermost
  std::int64_t pad = 0;        // spare elements behind each run of the innermost axis
  std::int64_t gap = 0;        // the same behind each run of the next one
  std::int64_t start = 0;      // elements from a 256-byte boundary to the first one
  unsigned flip = 0;           // a bit for each axis that runs backwards, with a negative stride
  unsigned zero = 0;           // a bit for each axis with stride 0
  bool wild = false;           // axes of extent 1 have a stride that nobody may use
  bool operator==(const Storage&) const = default;
};

/// An operand that may be broadcast, with a bit for each axis of extent 1.
struct Broadcast {
  unsigned one = 0;
  bool operator==(const Broadcast&) const = default;
};

/// How the operands' numbers are drawn.
struct Data {
  std::uint64_t seed = 1;
  float q = 1, k = 1, v = 1;     // factors of normal numbers
  std::string shape = "normal";  // of the scores: normal, zero (all alike), rising, equal (one key repeated)
  std::string bias =
      "normal";  // normal, masks (-inf here and there), rows (whole rows of -inf), mild (-1e4), large (-1e9)
  std::string mask = "quarter";      // quarter (is hidden), rows (whole ones too), all, none
  std::string decay = "weak";        // weak, mixed, strong, forget
  std::vector<std::string> plant{};  // nan_q, nan_k, nan_v, inf_q, inf_k, inf_v, neg_q, ...: one element each
  // Only of attention's backward pass: the factor of grad_o and grad_lse, and where o and lse come from: own (the
  // forward pass of this problem), merged (these keys and others that are not here), any (the lse is moved, o is
  // random), gone (own, but some rows have an lse of -inf and NaN in o, grad_o and grad_lse).
  float grad = 1;
  std::string state = "own";
  bool operator==(const Data&) const = default;
};

/// The batch of any description of a problem.
template <class Description>
auto& batch_of(Description& a) {
  if constexpr (requires { a.batch; }) {
    return a.batch;
  } else if constexpr (requires { a.b; }) {
    return a.b;
  } else {
    return a.rows;
  }
}

/// One number for each sequence.
using Lengths = std::vector<std::int64_t>;
std::int64_t sum(const Lengths& list);
/// Resizes the list to b entries if it is wanted, else to none.
void resize(Lengths* list, bool wanted, std::int64_t b);

struct Problem {
  Op op = Op::attention;
  // Where it runs.
  Backend backend = Backend::best;
  std::string level;               // of the CPU; empty: the plan's choice
  int threads = 1;                 // of the CPU
  bool lent = false;               // on a lent executor, which runs the tasks in another order each time
  int segments = 0;                // Target::segments
  int sms = 0;                     // Target::sms, on a GPU
  Attention attention{.b = 1};     // used by operations of Kind::attention
  LinearAttention linear{.b = 1};  // used by operations of Kind::linear
  Gemm gemm;                       // used by operations of Kind::gemm
  std::int64_t k2 = 1, n2 = 1;     // of a GEMM: how many parts k and n are cut into
  bool shared_b = false;           // of a GEMM: whether the batch shares b and bias_m
  Norm norm;                       // used by operations of Kind::norm
  std::int64_t s = 1, h = 1;       // of a norm: the second and third extent that rows are cut into
  Broadcast weight{7};             // of a norm: the extents of weight that are 1
  DType weight_dtype = DType::f32, grad_weight_dtype = DType::f32, grad_bias_dtype = DType::f32;  // of a norm
  Quantise quantise;  // used by operations of Kind::quantise
  // Packed and used lengths of the sequences; used ones may be out of range. `spare` packed rows belong to no sequence.
  Lengths lengths_q, lengths_k;
#define FALCHION_LENGTHS(key, ...) Lengths key;
#include "base/fields.def"
  std::int64_t spare = 0;
  // Of a cache with pages: how they lie (words of tools/problem/page_table.hpp), pages of k, columns of the table (-1:
  // as many as are needed), starts of the sequences in it (none: drawn where a word asks for them).
  std::vector<std::string> pages;
  std::int64_t page_count = -1, page_columns = -1;
  Lengths page_starts;
  std::int64_t positions = 1;           // of the rotary table
  Broadcast q_scale, k_scale, v_scale;  // of 8 bits: along which axes scales are shared
  bool slopes_by_batch = false;         // whether each sequence has its own ALiBi slopes
  bool sinks_by_batch = false;          // the same of the sinks
  std::uint64_t seed = 0, offset = 0;   // those of Operands::rng, for dropout
  bool rng_in_memory = false;           // whether half of each is added from memory
  Rng::Origin origin;                   // of Operands::rng too
  DType bias_dtype = DType::f32;
  Broadcast bias, mask;
  Broadcast grad_bias;               // over which axes the gradient of the bias is summed
  bool grad_alibi_by_batch = false;  // whether each sequence has its own gradient of the slopes
  bool grad_sinks_by_batch = false;  // the same of the sinks
  /// Whether the final state is the initial one's memory; of a GEMM whether d is c's, or else the residual's; of a norm
  /// whether y is x's where the types are the same, and residual_out the residual's, or whether grad_x is grad_y's.
  bool in_place = false;
  Data data;
  std::map<std::string, Storage> storage;  // by operand; an absent one is dense

  bool operator==(const Problem&) const = default;
  Kind kind() const { return kind_of(op); }
  Pass pass() const { return pass_of(op); }
  /// Calls f with the description that the operation takes: `attention`, `linear`, `gemm`, `norm` or `quantise`.
  template <class F>
  auto ask(const F& f) const {
    return kind() == Kind::attention ? f(attention)
           : kind() == Kind::linear  ? f(linear)
           : kind() == Kind::gemm    ? f(gemm)
           : kind() == Kind::norm    ? f(norm)
                                     : f(quantise);
  }
  template <class F>
  void change(const F& f) {
    if (kind() == Kind::attention) return f(attention);
    if (kind() == Kind::linear) return f(linear);
    if (kind() == Kind::gemm) return f(gemm);
    kind() == Kind::norm ? f(norm) : f(quantise);
  }
  DType dtype() const {
    return ask([](const auto& a) { return a.dtype; });
  }
  std::int64_t b() const {
    return ask([](const auto& a) { return batch_of(a); });
  }
  bool packed() const {
    if (kind() == Kind::linear) return linear.packed;
    return kind() == Kind::attention && attention.packed;
  }
  const Storage& storage_of(const std::string& operand) const;
};

struct Strides {
  std::array<std::int64_t, 4> stride{};
  std::int64_t first = 0;  // elements from the start of its memory to element (0, 0, 0, 0)
  std::int64_t count = 0;  // elements of its memory
};
Strides strides_of(const Storage& storage, const std::array<std::int64_t, 4>& shape);
/// The simplest Storage with these strides (on axes longer than 1) and the same start relative to a multiple of 16
/// bytes. False if there is none.
bool storage_of(const Tensor& x, Storage* out);

std::string to_text(const Storage& storage);
/// Fields with their default are left out.
std::string to_text(const Problem& problem);

}  // namespace falchion::line
