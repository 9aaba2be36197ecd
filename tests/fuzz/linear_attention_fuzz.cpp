/// linear_attention_fuzz.cpp: puts any numbers into the structs of the C API of linear attention, forward and backward.
/// The problem is planned, explained and run, by a plan and by the one call. Nothing may crash, or read or write beyond
/// a view.
#include "c_api_fuzz.hpp"

namespace falchion::fuzz {
namespace {

struct Problem {
  Roomy<fal_linear_attention> attention;
  Roomy<fal_linear_operands> operands;
  Memory memory;
  bool placed = true;  // Whether every view has the memory that it claims.
};

void make_problem(Input* in, fal_linear_attention* a) {
  *a = fal_linear_attention_init();
  a->dtype = static_cast<std::int32_t>(in->below(3));
  a->b = in->below(4);
  a->s = in->below(80);
  a->h_qk = in->below(3);
  a->h_v = a->h_qk * (1 + in->below(3));
  a->d_qk = 1 + in->below(20);
  a->d_v = 1 + in->below(20);
  const std::uint8_t flags = in->byte();
  if ((flags & 1) != 0) a->scale = in->real();
  a->feature_map = (flags & 2) != 0 ? 1 : 0;
  a->decay = static_cast<std::int32_t>(in->below(3));
  a->normalise = (flags & 4) != 0;
  a->reverse = (flags & 8) != 0;
  a->packed = (flags & 16) != 0 && in->flag();
  a->initial_state = (flags & 32) != 0;
  a->final_state = (flags & 64) != 0;
  if ((flags & 128) != 0) a->eps = in->real();
}

void make_operands(Input* in, bool backward, Problem* p) {
  const fal_linear_attention a = *p->attention.get();
  fal_linear_operands* x = p->operands.get();
  x->size = sizeof *x;
  const bool z = a.normalise != 0;
  const std::int64_t batch = a.packed != 0 ? 1 : a.b, s = a.packed != 0 ? in->below(100) : a.s;
  const auto qk = [&] { return tensor(in, a.dtype, batch, s, a.h_qk, a.d_qk); };
  const auto vo = [&] { return tensor(in, a.dtype, batch, s, a.h_v, a.d_v); };
  const auto state = [&] { return tensor(in, FAL_F32, a.b, a.h_v, a.d_qk, a.d_v); };
  const auto of_z = [&] { return tensor(in, FAL_F32, a.b, a.h_v, a.d_qk, 1); };
  const auto decay = [&] {
    return a.decay == FAL_DECAY_HEAD ? tensor(in, FAL_F32, 1, 1, a.h_v, 1) : tensor(in, FAL_F32, batch, s, a.h_v, 1);
  };
  x->q = qk();
  x->k = qk();
  x->v = vo();
  if (a.decay != FAL_DECAY_NONE) x->decay = decay();
  if (a.initial_state != 0) x->initial_state = state();
  if (a.initial_state != 0 && z) x->initial_z = of_z();
  if (!backward) {
    x->o = vo();
    if (a.final_state != 0) x->final_state = state();
    if (a.final_state != 0 && z) x->final_z = of_z();
  } else {
    x->grad_o = vo();
    x->grad_q = qk();
    x->grad_k = qk();
    x->grad_v = vo();
    if (a.final_state != 0) x->grad_final_state = state();
    if (a.final_state != 0 && z) x->grad_final_z = of_z();
    if (a.decay != FAL_DECAY_NONE) x->grad_decay = decay();
    if (a.initial_state != 0) x->grad_initial_state = state();
    if (a.initial_state != 0 && z) x->grad_initial_z = of_z();
  }
  fal_tensor* all[] = {&x->q,
                       &x->k,
                       &x->v,
                       &x->o,
                       &x->decay,
                       &x->initial_state,
                       &x->final_state,
                       &x->initial_z,
                       &x->final_z,
                       &x->grad_o,
                       &x->grad_final_state,
                       &x->grad_final_z,
                       &x->grad_q,
                       &x->grad_k,
                       &x->grad_v,
                       &x->grad_decay,
                       &x->grad_initial_state,
                       &x->grad_initial_z};
  for (fal_tensor* t : all) p->placed = p->memory.place(in, t) && p->placed;
  const std::int64_t b = a.b > INT32_MAX || a.b < 0 ? 1 : a.b;  // A problem that is refused for its size is never read.
  if (a.packed != 0) x->cu_seqlens = p->memory.lengths(in, b + 1, true);
}

}  // namespace
}  // namespace falchion::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace falchion::fuzz;
  Input in(data, size);
  AnyTarget target(&in);
  Problem p;
  const std::int32_t pass = in.flag() ? FAL_BACKWARD : FAL_FORWARD;
  make_problem(&in, p.attention.get());
  if (in.below(3) == 2) p.attention.scramble(&in, 0, sizeof(fal_linear_attention));
  make_operands(&in, pass == FAL_BACKWARD, &p);
  const fal_linear_attention a = *p.attention.get();
  require(fal_linear_explain(p.attention.get(), pass, target.get(), FAL_TEXT)[0] != 0);
  require(fal_linear_explain(p.attention.get(), pass, target.get(), FAL_JSON)[0] == '{');
  fal_plan* plan = nullptr;
  const bool made = is_ok(fal_linear_plan_make(p.attention.get(), pass, target.get(), &plan));
  require(made == (plan != nullptr));
  const fal_linear_operands& x = *p.operands.get();
  const bool can_run = target.is_modest() && p.placed &&
                       is_small({x.q.shape[0], x.q.shape[1], x.v.shape[2], x.q.shape[3], x.v.shape[3]});
  const bool small = can_run && is_small({a.b, a.h_v, a.s, a.d_qk, a.d_v});
  if (made && small && fal_plan_workspace(plan) <= std::size_t{1} << 26) {
    const std::size_t bytes = fal_plan_workspace(plan);
    is_ok(fal_linear_plan_run(plan, p.operands.get(), p.memory.workspace(bytes), bytes, nullptr));
  }
  fal_plan_free(plan);
  // A problem that no plan is made for must be refused here too.
  if (small || (can_run && !made)) {
    is_ok(fal_linear_attention_run(p.operands.get(), p.attention.get(), target.get(), nullptr));
    is_ok(fal_linear_validate_lengths(p.attention.get(), p.operands.get()));
  }
  return 0;
}
