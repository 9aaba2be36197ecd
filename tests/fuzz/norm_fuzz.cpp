/// norm_fuzz.cpp: puts any numbers into the structs of the C API of norms. The problem is planned, explained and run,
/// by a plan and by the one call. Nothing may crash, or read or write beyond a view.
#include "c_api_fuzz.hpp"

namespace falchion::fuzz {
namespace {

struct Problem {
  Roomy<fal_norm> norm;
  Roomy<fal_norm_operands> operands;
  Memory memory;
  std::int64_t b = 0, s = 0, h = 0;
  bool placed = true;  // Whether every view has the memory that it claims.
};

void make_problem(Input* in, Problem* p) {
  fal_norm* n = p->norm.get();
  *n = fal_norm_init();
  n->dtype = static_cast<std::int32_t>(1 + in->below(3));
  n->dtype_y = static_cast<std::int32_t>(in->below(4));
  n->dtype_residual = static_cast<std::int32_t>(in->below(4));
  n->kind = static_cast<std::int32_t>(in->below(2));
  const bool is_long = in->below(8) == 7;  // One row of which a CPU converts a part at a time.
  p->b = is_long ? 1 : in->below(4);
  p->s = is_long ? 1 : in->below(12);
  p->h = is_long ? 1 : in->below(4);
  n->rows = p->b * p->s * p->h;
  n->d = is_long ? 8150 + 40 * in->below(256) : in->below(70);
  const std::uint8_t flags = in->byte();
  n->weight = (flags & 1) != 0;
  n->zero_centered = n->weight != 0 && (flags & 2) != 0;
  n->bias = (flags & 4) != 0;
  n->residual = (flags & 8) != 0;
  n->residual_out = n->residual != 0 && (flags & 16) != 0;
  n->mean = n->kind == FAL_LAYER_NORM && (flags & 32) != 0;
  n->rstd = (flags & 64) != 0;
  if ((flags & 128) != 0) n->eps = in->real();
}

void make_operands(Input* in, Problem* p) {
  const fal_norm n = *p->norm.get();
  fal_norm_operands* x = p->operands.get();
  x->size = sizeof *x;
  const auto or_else = [&](std::int32_t dtype) { return dtype != FAL_AS_Q ? dtype : n.dtype; };
  const auto row = [&](std::int32_t dtype) { return tensor(in, dtype, p->b, p->s, p->h, n.d); };
  const auto factor = [&] {
    const std::int64_t shared = in->below(8);  // A bit for each axis that has numbers of its own.
    return tensor(in, static_cast<std::int32_t>(1 + in->below(3)), (shared & 1) != 0 ? p->b : 1,
                  (shared & 2) != 0 ? p->s : 1, (shared & 4) != 0 ? p->h : 1, n.d);
  };
  const auto statistic = [&] { return tensor(in, FAL_F32, p->b, p->s, p->h, 1); };
  x->x = row(n.dtype);
  x->y = row(or_else(n.dtype_y));
  if (n.residual != 0) x->residual = row(or_else(n.dtype_residual));
  if (n.residual_out != 0) x->residual_out = row(or_else(n.dtype_residual));
  if (n.weight != 0) x->weight = factor();
  if (n.bias != 0) x->bias = factor();
  if (n.mean != 0) x->mean = statistic();
  if (n.rstd != 0) x->rstd = statistic();
  for (fal_tensor* t : {&x->x, &x->y, &x->residual, &x->residual_out, &x->weight, &x->bias, &x->mean, &x->rstd})
    p->placed = p->memory.place(in, t) && p->placed;
  if (in->below(8) == 7) x->y = x->x;
  if (in->below(8) == 7) x->residual_out = x->residual;
}

}  // namespace
}  // namespace falchion::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace falchion::fuzz;
  Input in(data, size);
  AnyTarget target(&in);
  Problem p;
  make_problem(&in, &p);
  if (in.below(3) == 2) p.norm.scramble(&in, 0, sizeof(fal_norm));
  make_operands(&in, &p);
  const fal_norm n = *p.norm.get();
  require(fal_norm_explain(p.norm.get(), target.get(), FAL_TEXT)[0] != 0);
  require(fal_norm_explain(p.norm.get(), target.get(), FAL_JSON)[0] == '{');
  fal_plan* plan = nullptr;
  const bool made = is_ok(fal_norm_plan_make(p.norm.get(), target.get(), &plan));
  require(made == (plan != nullptr));
  const fal_norm_operands& x = *p.operands.get();
  const bool can_run =
      target.is_modest() && p.placed && is_small({x.x.shape[0], x.x.shape[1], x.x.shape[2], x.x.shape[3]});
  const bool small = can_run && is_small({n.rows, n.d});
  if (made && small && fal_plan_workspace(plan) <= std::size_t{1} << 26) {
    const std::size_t bytes = fal_plan_workspace(plan);
    is_ok(fal_norm_plan_run(plan, p.operands.get(), p.memory.workspace(bytes), bytes, nullptr));
  }
  fal_plan_free(plan);
  // A problem that no plan is made for must be refused here too.
  if (small || (can_run && !made)) is_ok(fal_norm_run(p.operands.get(), p.norm.get(), target.get(), nullptr));
  return 0;
}
