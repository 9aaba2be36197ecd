// src/api/one_call.cpp: the one-call forms: sizes and flags from the tensors, the rest from the options.
#include "api/one_call.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "api/check.hpp"
#include "api/lengths.hpp"
#include "api/operand_checks.hpp"
#include "api/run.hpp"
#include "api/sizes.hpp"
#include "api/validate.hpp"
#include "base/divide.hpp"

namespace falchion {
namespace {

/// The lengths of one packed operand. If the host can read them they are checked against the caller's b, which nothing
/// else would verify. longest: the longest length, if the caller has not set it; for lengths on the device a guess,
/// which suffices for a GPU plan.
void look_at_lengths(const char* name, const std::int32_t* cu, std::int64_t b, std::int64_t total,
                     std::int64_t* longest, Check* check) {
  const bool unset = *longest == 0;
  if (!cuda::host_can_use(cuda::place_of(cu))) {
    if (unset) *longest = ceil_div(total, b);
    return;
  }
  check_cu_seqlens(name, cu, b, total, check);
  if (unset && check->ok()) *longest = longest_sequence(cu, b);
}

/// The tensors of a packed problem do not have the number of sequences.
bool has_b(const char* lengths, std::int64_t b, Check* check) {
  return check->require(b != 0, "b = 0, which is unset: packed lengths need the number of sequences; set b, ", lengths,
                        " has b + 1 entries");
}

/// Completes a packed problem once b and the arrays are known to be set.
Status complete_packed(const Operands& x, Pass pass, Attention* a) {
  Check check;
  if (a->cache && a->b == 0 && x.page_starts == nullptr) a->b = (a->page_size > 0 ? x.page_table : x.k).shape[0];
  if (!has_b("cu_seqlens_q", a->b, &check)) return check.take();
  if (Status status = validate_problem(*a, pass); !status) return status;
  if (Status status = validate_operands(*a, pass, x); !status) return status;
  look_at_lengths("cu_seqlens_q", x.cu_seqlens_q, a->b, x.q.shape[1], &a->s_q, &check);
  if (!a->cache) look_at_lengths("cu_seqlens_k", x.cu_seqlens_k, a->b, x.k.shape[1], &a->s_k, &check);
  return check.take();
}
Status complete_packed(const LinearOperands& x, Pass pass, LinearAttention* a) {
  Check check;
  if (!has_b("cu_seqlens", a->b, &check)) return check.take();
  if (Status status = validate_problem(*a, pass); !status) return status;
  if (Status status = validate_operands(*a, pass, x); !status) return status;
  look_at_lengths("cu_seqlens", x.cu_seqlens, a->b, x.q.shape[1], &a->s, &check);
  return check.take();
}

/// Sets the flag of each operand that is given. Each pass has its own fields, and those of the other one are unset.
void add_given(const auto& x, Pass pass, Attention* a) {
#define FALCHION_FIELD(kind, key, member, option, text) \
  if constexpr (requires { x.key.data; }) a->member |= is_given(x.key);
#define FALCHION_FORWARD_FIELD(kind, key, member, option, text) \
  a->member = pass == Pass::forward && (a->member || is_given(x.key));
#define FALCHION_BACKWARD_FIELD(kind, key, member, option, text) \
  if (pass == Pass::forward) a->member = {};                     \
  if constexpr (requires { x.key.data; }) a->member |= pass == Pass::backward && is_given(x.key);
#define FALCHION_CACHE_FIELD(kind, key, member, option, text) \
  if constexpr (requires { x.key.data; }) a->member |= is_given(x.key);
#define FALCHION_LENGTHS(key, ...) a->key |= x.key != nullptr;
#include "base/fields.def"
}

/// The extent of two merged axes. An invalid extent is kept, for validation to report.
std::int64_t product_of(std::int64_t outer, std::int64_t inner) {
  for (const std::int64_t extent : {outer, inner})
    if (extent < 0 || extent > kMaxSequence) return extent;
  return outer * inner;
}

/// Operands that only a cache has say that k and v are one.
bool is_of_cache(const Operands& x) { return is_any_given({&x.page_table, &x.k_new, &x.v_new, &x.rotary}); }

/// A table says that k and v are a cache with pages, whose keys each sequence has as many of as the options say, or as
/// the table has room for.
void set_cache(const Operands& x, std::int64_t s_k, Attention* a) {
  a->cache = true;
  a->s_k = x.k.shape[1];
  a->append |= is_any_given({&x.k_new, &x.v_new});
  if (is_given(x.rotary)) a->rotary_dim = 2 * std::clamp<std::int64_t>(x.rotary.shape[3], 0, kMaxSequence);
  if (!is_given(x.page_table)) return;
  a->page_size = x.k.shape[1];
  a->s_k = s_k > 0 ? s_k : std::min(product_of(x.page_table.shape[1], a->page_size), kMaxSequence);
}

/// Sizes and types are those of the tensors. An operand is wanted where it is given, and where the options ask for it:
/// the tensor of an empty problem may be one of zeroes.
Attention problem_of(const Operands& x, Pass pass, const Attention& options) {
  Attention a = options;
  a.dtype = x.q.dtype;
  a.dtype_k = x.k.dtype;
  a.dtype_v = x.v.dtype;
  a.dtype_o = x.o.dtype;
  a.packed |= x.cu_seqlens_q != nullptr || x.cu_seqlens_k != nullptr;
  if (!a.packed) {
    a.b = x.q.shape[0];
    a.s_q = x.q.shape[1];
    a.s_k = x.k.shape[1];
  }
  if (a.cache || is_of_cache(x)) set_cache(x, options.s_k, &a);
  a.h_q = x.q.shape[2];
  a.h_k = x.k.shape[2];
  a.d_qk = x.q.shape[3];
  a.d_v = x.v.shape[3];
  add_given(x, pass, &a);
  if (pass == Pass::backward && !is_given(x.grad_q)) a.frozen |= 1;
  if (pass == Pass::backward && !is_any_given({&x.grad_k, &x.grad_v})) a.frozen |= 2;
  return with_plain_dtypes(a);
}

LinearAttention problem_of(const LinearOperands& x, Pass pass, const LinearAttention& options) {
  LinearAttention a = options;
  a.dtype = x.q.dtype;
  a.dtype_k = x.k.dtype;
  a.dtype_v = x.v.dtype;
  a.dtype_o = (pass == Pass::forward ? x.o : x.grad_o).dtype;
  a.packed |= x.cu_seqlens != nullptr;
  if (!a.packed) {
    a.b = x.q.shape[0];
    a.s = x.q.shape[1];
  }
  a.h_qk = x.q.shape[2];
  a.h_v = x.v.shape[2];
  a.d_qk = x.q.shape[3];
  a.d_v = x.v.shape[3];
  if (is_given(x.decay) && a.decay == Decay::none) {  // (1, 1, h_v, 1): a head's; one token alone is the same
    const bool head = x.decay.shape[0] == 1 && x.decay.shape[1] == 1;
    a.decay = head ? Decay::head : Decay::token;
  }
  a.initial_state |= is_given(x.initial_state);
  a.final_state |= is_given(pass == Pass::forward ? x.final_state : x.grad_final_state);
  return with_plain_dtypes(a);
}

Gemm problem_of(const GemmOperands& x, Pass, const Gemm& options) {
  Gemm g = options;
  g.dtype = x.a.dtype;
  g.dtype_b = x.b.dtype;
  g.dtype_c = g.beta != 0 ? x.c.dtype : DType::as_q;
  g.dtype_d = x.d.dtype;
  g.batch = x.d.shape[0];
  g.m = x.d.shape[1];
  g.n = product_of(x.d.shape[2], x.d.shape[3]);
  g.k = product_of(x.a.shape[2], x.a.shape[3]);
  g.bias_n |= is_given(x.bias_n);
  g.bias_m |= is_given(x.bias_m);
  g.residual |= is_given(x.residual);
  const auto any_has = [&](int axis) {
    return (is_given(x.scale_a) && x.scale_a.shape[axis] != 1) || (is_given(x.scale_b) && x.scale_b.shape[axis] != 1);
  };
  if (is_any_given({&x.scale_a, &x.scale_b}) && g.scaling != Scaling::block128)
    g.scaling = any_has(2) ? Scaling::block128 : any_has(1) ? Scaling::row_col : Scaling::tensor;
  return with_plain_dtypes(g);
}

void add_given(const NormOperands& x, Norm* n) {
  n->dtype_y = x.y.dtype;
  n->residual |= is_given(x.residual);
  n->residual_out |= is_given(x.residual_out);
  n->dtype_residual = n->residual ? x.residual.dtype : DType::as_q;
  n->bias |= is_given(x.bias);
  n->mean |= is_given(x.mean);
  n->rstd |= is_given(x.rstd);
  n->frozen = 0;
}

/// Of the options, those of the forward pass alone are unset.
void add_given_gradients(const NormOperands& x, Norm* n) {
  n->dtype_y = x.grad_y.dtype;
  n->residual = n->mean = n->rstd = false;
  n->residual_out |= is_given(x.grad_residual_out);
  n->dtype_residual = n->residual_out ? x.grad_residual_out.dtype : DType::as_q;
  n->bias |= is_given(x.grad_bias);
  if (!is_given(x.grad_x)) n->frozen |= 1;
  if (!is_given(x.grad_weight)) n->frozen |= 2;
}

Norm problem_of(const NormOperands& x, Pass pass, const Norm& options) {
  Norm n = options;
  n.dtype = x.x.dtype;
  n.rows = product_of(x.x.shape[0], product_of(x.x.shape[1], x.x.shape[2]));
  n.d = x.x.shape[3];
  n.weight |= is_given(x.weight);
  if (pass == Pass::forward) add_given(x, &n);
  if (pass == Pass::backward) add_given_gradients(x, &n);
  return with_plain_dtypes(n);
}

Quantise problem_of(const QuantiseOperands& x, Pass, const Quantise& options) {
  Quantise q = options;
  q.dtype = x.x.dtype;
  q.dtype_y = x.y.dtype;
  q.b = x.x.shape[0];
  q.s = x.x.shape[1];
  q.h = x.x.shape[2];
  q.d = x.x.shape[3];
  q.smooth |= is_given(x.mean);
  return q;
}

template <class Problem>
Status call(const OperandsOf<Problem>& operands, const Problem& options, const Target& target, Stream stream) noexcept
    try {
  const Pass pass = pass_of(operands);
  Problem problem = problem_of(operands, pass, options);
  if constexpr (requires { problem.packed; }) {
    if (problem.packed) {
      if (Status status = complete_packed(operands, pass, &problem); !status) return status;
    }
  }
  return run_once(problem, pass, operands, target, stream);
} catch (...) { return caught(); }

}  // namespace

Anchor anchor_of(const OperandList& list) {
  Anchor shared{.name = "q", .place = cuda::Place::host};  // of the operands that both sides can use
  bool decided = false;
  const auto ask = [&](const char* name, const void* data) {
    if (data == nullptr || decided) return;
    const cuda::Place place = cuda::place_of(data);
    decided = !both_can_use(place);
    if (decided || shared.place != cuda::Place::managed) shared = {name, data, place};
  };
  for (const Operand& operand : list.tensors()) ask(operand.name, operand.wanted ? data_of(*operand.x) : nullptr);
  for (const Array& array : list.arrays()) ask(array.name, array.wanted ? array.data : nullptr);
  return shared;
}

Status no_gpu_path(const Anchor& anchor, const PlanData& plan) {
  const bool unknown = anchor.place == cuda::Place::unknown;
  std::string why = text(anchor.name, unknown ? ": CUDA's driver does not say where it lies" : " lies on a GPU",
                         ", and no GPU path takes the problem");
  bool asked = false;
  for (const Rejected& path : plan.rejected) {
    if (path.path.starts_with("cpu")) continue;
    why += text("; ", path.path, ": ", path.reason);
    asked = true;
  }
  if (!asked) why += "; Target::cpu_level is set, which asks for the CPU";
  return {unknown ? Code::device : Code::unsupported, std::move(why)};
}

Status attention(const Operands& operands, const Attention& options, Target target, Stream stream) noexcept {
  return call(operands, options, target, stream);
}
Status linear_attention(const LinearOperands& operands, const LinearAttention& options, Target target,
                        Stream stream) noexcept {
  return call(operands, options, target, stream);
}
Status gemm(const GemmOperands& operands, const Gemm& options, Target target, Stream stream) noexcept {
  return call(operands, options, target, stream);
}
Status norm(const NormOperands& operands, const Norm& options, Target target, Stream stream) noexcept {
  return call(operands, options, target, stream);
}
Status quantise(const QuantiseOperands& operands, const Quantise& options, Target target, Stream stream) noexcept {
  return call(operands, options, target, stream);
}

void release_workspaces() noexcept {
  kept_plans<Attention>().release_workspace();
  kept_plans<LinearAttention>().release_workspace();
  kept_plans<Gemm>().release_workspace();
  kept_plans<Norm>().release_workspace();
  kept_plans<Quantise>().release_workspace();
}

}  // namespace falchion
