// src/api/trace_problem.cpp: a plan and the operands of a run, as the problem that `falchion verify --problem` repeats.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "api/trace.hpp"
#include "base/size.hpp"
#include "plan/operation.hpp"
#include "plan/paths.hpp"
#include "plan/text.hpp"
#include "ref/norm_backward.hpp"
#include "runtime/place.hpp"
#include "runtime/runtime.hpp"

namespace falchion::trace {
namespace {

using line::Problem;

line::Op op_of(const PlanData& plan) {
  for (const line::CommandOperation& entry : line::command_operations())
    if (std::string_view(entry.operation) == plan.operation->name) return entry.op;
  return line::Op::attention;
}

/// The axes among the first `axes` where a tensor has the extent 1.
unsigned ones_of(const Tensor& x, std::size_t axes) {
  unsigned out = 0;
  for (std::size_t axis = 0; axis < axes; ++axis)
    if (x.shape[axis] == 1) out |= 1U << axis;
  return out;
}

/// Sets every sequence to the longest length. With b = 0, to be set from the operands, none.
void set_longest(Problem* p) {
  const auto fill = [&](bool wanted, std::int64_t n, line::Lengths* list) {
    line::resize(list, wanted, p->b());
    std::fill(list->begin(), list->end(), n);
  };
  const Attention& a = p->attention;
  if (p->kind() == line::Kind::linear) fill(p->linear.packed, p->linear.s, &p->lengths_q);
  if (p->kind() != line::Kind::attention) return;
  fill(a.packed, a.s_q, &p->lengths_q);
  fill(a.packed && !a.cache, a.s_k, &p->lengths_k);
#define FALCHION_LENGTHS(key, side, usual, has, option, text) fill(a.key, usual, &p->key);
#include "base/fields.def"
}

/// Reads the lengths of a run. Those on a device are read only for a dump, which waits for the device anyway; otherwise
/// those of set_longest() stay, clamped to the existing rows.
class LengthReader {
 public:
  LengthReader(std::int64_t b, bool from_device, std::string* note) : b_(b), from_device_(from_device), note_(note) {}

  template <class T>
  bool read(const char* name, const T* from, std::int64_t count, T* to) const {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    const bool on_host = cuda::host_can_use(cuda::place_of(from));
    if (on_host) std::memcpy(to, from, bytes);
    if (on_host || (from_device_ && cuda::copy(to, from, bytes))) return true;
    *note_ += text(note_->empty() ? "" : ", ", name, " lies on the device and was not read");
    return false;
  }
  void used(const char* name, const std::int32_t* from, line::Lengths* to) const {
    std::vector<std::int32_t> list(to->size());
    if (from == nullptr || list.empty() || !read(name, from, b_, list.data())) return;
    to->assign(list.begin(), list.end());
  }
  void starts(const std::int32_t* from, line::Lengths* to) const {
    std::vector<std::int32_t> list(static_cast<std::size_t>(b_) + 1);
    if (from == nullptr || !read("page_starts", from, b_ + 1, list.data())) return;
    to->assign(list.begin(), list.end());
  }
  void packed(const char* name, const std::int32_t* from, std::int64_t rows, line::Lengths* to) const {
    std::vector<std::int32_t> list(to->size() + 1);
    if (from == nullptr || to->empty()) return;
    const bool known = read(name, from, b_ + 1, list.data());
    for (std::size_t i = 0; i < to->size(); ++i) {
      std::int64_t& n = (*to)[i];
      n = known ? list[i + 1] - list[i] : std::min(n, rows);
      rows -= n;
    }
  }

 private:
  std::int64_t b_;
  bool from_device_;
  std::string* note_;
};

void set_operands(const Operands& x, Problem* p, bool from_device, std::string* note) {
  const Attention& a = p->attention;
  const LengthReader lengths(a.b, from_device, note);
  lengths.packed("cu_seqlens_q", x.cu_seqlens_q, x.q.shape[1], &p->lengths_q);
  lengths.packed("cu_seqlens_k", x.cu_seqlens_k, x.k.shape[1], &p->lengths_k);
#define FALCHION_LENGTHS(key, ...) lengths.used(#key, x.key, &p->key);
#include "base/fields.def"
  if (a.packed && a.b > 0) p->spare = std::max<std::int64_t>(0, x.q.shape[1] - line::sum(p->lengths_q));
  if (a.page_size > 0) {
    p->page_count = x.k.shape[0];
    p->page_columns = x.page_table.shape[1];
    lengths.starts(x.page_starts, &p->page_starts);
  }
  if (a.rotary_dim > 0) p->positions = x.rotary.shape[1];
  p->seed = x.rng.seed;
  p->offset = x.rng.offset;
  if (a.dropout > 0) p->origin = x.rng.origin;
  if (a.dropout > 0 && x.rng.at != nullptr) {
    std::uint64_t at[2];
    p->rng_in_memory = !lengths.read("rng.at", x.rng.at, 2, at);
    if (!p->rng_in_memory) p->seed += at[0];
    if (!p->rng_in_memory) p->offset += at[1];
  }
  if (a.q_scale) p->q_scale.one = ones_of(x.q_scale, 3);
  if (a.k_scale) p->k_scale.one = ones_of(x.k_scale, 3);
  if (a.v_scale) p->v_scale.one = ones_of(x.v_scale, 3);
  if (a.bias) p->bias_dtype = x.bias.dtype;
  if (a.bias) p->bias.one = ones_of(x.bias, 4);
  if (a.mask) p->mask.one = ones_of(x.mask, 4);
  if (a.grad_bias) p->grad_bias.one = ones_of(x.grad_bias, 4);
  const auto by_batch = [&](bool wanted, const Tensor& of_heads) {
    return wanted && a.b > 1 && of_heads.shape[0] == a.b;
  };
  p->slopes_by_batch = by_batch(a.alibi, x.alibi);
  p->sinks_by_batch = by_batch(a.sinks, x.sinks);
  p->grad_alibi_by_batch = by_batch(a.grad_alibi, x.grad_alibi);
  p->grad_sinks_by_batch = by_batch(a.grad_sinks, x.grad_sinks);
}

bool same_place(bool wanted, const Tensor& one, const Tensor& other) {
  return wanted && one.data != nullptr && one.data == other.data;
}

void set_operands(const LinearOperands& x, Problem* p, bool from_device, std::string* note) {
  const LinearAttention& a = p->linear;
  LengthReader(a.b, from_device, note).packed("cu_seqlens", x.cu_seqlens, x.q.shape[1], &p->lengths_q);
  if (a.packed && a.b > 0) p->spare = std::max<std::int64_t>(0, x.q.shape[1] - line::sum(p->lengths_q));
  p->in_place = same_place(a.initial_state && a.final_state, x.initial_state, x.final_state);
}

void set_operands(const GemmOperands& x, Problem* p, bool, std::string*) {
  const Gemm& g = p->gemm;
  p->k2 = std::max<std::int64_t>(1, x.a.shape[2]);
  p->n2 = std::max<std::int64_t>(1, x.d.shape[2]);
  p->shared_b = g.batch > 1 && x.b.shape[0] == 1;
  if (g.bias_n || g.bias_m) p->bias_dtype = g.bias_n ? x.bias_n.dtype : x.bias_m.dtype;
  p->in_place = same_place(g.beta != 0, x.c, x.d) || same_place(g.residual, x.residual, x.d);
}

void set_operands(const NormOperands& x, Problem* p, bool, std::string*) {
  const Norm& n = p->norm;
  p->s = std::max<std::int64_t>(1, x.x.shape[1]);
  p->h = std::max<std::int64_t>(1, x.x.shape[2]);
  if (n.weight) p->weight_dtype = x.weight.dtype;
  if (n.weight) p->weight.one = ones_of(x.weight, 3);
  if (p->pass() == Pass::backward) {
    if (ref::wants_grad_weight(n)) p->grad_weight_dtype = x.grad_weight.dtype;
    if (n.bias) p->grad_bias_dtype = x.grad_bias.dtype;
    if (n.bias) p->bias.one = ones_of(x.grad_bias, 3);
    p->in_place = same_place(ref::wants_grad_x(n), x.grad_y, x.grad_x);
    return;
  }
  if (n.bias) p->bias_dtype = x.bias.dtype;
  if (n.bias) p->bias.one = ones_of(x.bias, 3);
  p->in_place = same_place(true, x.x, x.y) || same_place(n.residual_out, x.residual, x.residual_out);
}

void set_operands(const QuantiseOperands& x, Problem* p, bool, std::string*) {
  if (p->quantise.scale_given) p->k_scale.one = ones_of(x.scale, 3);
}

void set_layouts(const OperandList& list, Problem* p, std::string* note) {
  for (const Operand& operand : list.tensors()) {
    if (!operand.wanted || operand.x->data == nullptr) continue;
    line::Storage storage;
    if (!line::storage_of(*operand.x, &storage))
      *note += text(note->empty() ? "" : ", ", operand.name, " lies in a way that the line cannot tell");
    if (!(storage == line::Storage{})) p->storage[operand.name] = storage;
  }
}

}  // namespace

line::Problem problem_of(const PlanData& plan) {
  Problem out;
  out.op = op_of(plan);
  const Target& target = plan.target;
  const bool decided = plan.variant != nullptr || plan.backend == target.backend;
  out.backend = decided ? plan.backend : target.backend;
  if (plan.variant != nullptr && !is_gpu(plan.backend)) out.level = plan.variant->level;
  if (out.level.empty() && !decided && target.cpu_level != nullptr) out.level = target.cpu_level;
  out.lent = target.executor.parallel_for != nullptr;
  out.threads = is_gpu(plan.backend) ? 1 : threads_wanted(target);
  out.segments = target.segments;
  out.sms = target.sms;
  if (plan.is<AttentionPlan>()) out.attention = plan.attention().problem;
  if (plan.is<LinearPlan>()) out.linear = plan.linear().problem;
  if (plan.is<GemmPlan>()) out.gemm = plan.gemm().problem;
  if (plan.is<NormPlan>()) out.norm = plan.norm().problem;
  if (plan.is<QuantisePlan>()) out.quantise = plan.quantise().problem;
  set_longest(&out);
  return out;
}

template <class Operands_>
line::Problem problem_of(const PlanData& plan, const Operands_& x, const OperandList& list, bool from_device,
                         std::string* note) {
  Problem out = problem_of(plan);
  set_operands(x, &out, from_device, note);
  set_layouts(list, &out, note);
  return out;
}

template line::Problem problem_of(const PlanData&, const Operands&, const OperandList&, bool, std::string*);
template line::Problem problem_of(const PlanData&, const LinearOperands&, const OperandList&, bool, std::string*);
template line::Problem problem_of(const PlanData&, const GemmOperands&, const OperandList&, bool, std::string*);
template line::Problem problem_of(const PlanData&, const NormOperands&, const OperandList&, bool, std::string*);
template line::Problem problem_of(const PlanData&, const QuantiseOperands&, const OperandList&, bool, std::string*);

}  // namespace falchion::trace
