/// gemm_fuzz.cpp: puts any numbers into the structs of the C API of GEMMs. The problem is planned, explained and run,
/// by a plan and by the one call. Nothing may crash, or read or write beyond a view.
#include "c_api_fuzz.hpp"

namespace falchion::fuzz {
namespace {

struct Problem {
  Roomy<fal_gemm> gemm;
  Roomy<fal_gemm_operands> operands;
  Memory memory;
  std::int64_t k2 = 1, n2 = 1;
  bool placed = true;  // Whether every view has the memory that it claims.
};

bool has_8_bits(const fal_gemm& g) { return g.dtype == FAL_E4M3 || g.dtype == FAL_I8; }
std::int64_t in_blocks(std::int64_t extent) { return extent / 128 + (extent % 128 != 0); }

void make_problem(Input* in, Problem* p) {
  constexpr std::int32_t kTypes[] = {FAL_F32, FAL_F16, FAL_BF16, FAL_E4M3, FAL_I8};
  constexpr std::int32_t kTypesOfD[] = {FAL_F32, FAL_F16, FAL_BF16, FAL_I32};
  fal_gemm* g = p->gemm.get();
  *g = fal_gemm_init();
  g->dtype = kTypes[in->below(5)];
  const std::uint8_t flags = in->byte();
  p->k2 = 1 + in->below(3);
  p->n2 = 1 + in->below(3);
  g->batch = in->below(4);
  g->m = in->below(40);
  g->n = p->n2 * in->below(20);
  g->k = p->k2 * in->below(100);
  if ((flags & 1) != 0) g->alpha = in->real();
  if ((flags & 2) != 0) g->beta = in->real();
  g->activation = static_cast<std::int32_t>(in->below(6));
  g->bias_n = (flags & 4) != 0;
  g->bias_m = (flags & 8) != 0;
  g->residual = (flags & 16) != 0;
  if (has_8_bits(*g)) {
    g->dtype_d = kTypesOfD[in->below(4)];
    g->scaling = static_cast<std::uint8_t>(in->below(4));
  }
  if ((flags & 32) != 0) g->dtype_d = FAL_F32;
  if ((flags & 64) != 0) g->dtype_c = FAL_F32;
}

void make_operands(Input* in, Problem* p) {
  const fal_gemm g = *p->gemm.get();
  fal_gemm_operands* x = p->operands.get();
  x->size = sizeof *x;
  const std::int32_t of_d = g.dtype_d != FAL_AS_Q ? g.dtype_d : g.dtype;
  const auto as = [](std::int64_t size, std::int64_t parts) { return static_cast<std::int64_t>(size / parts); };
  const auto like_d = [&](std::int32_t dtype) { return tensor(in, dtype, g.batch, g.m, p->n2, as(g.n, p->n2)); };
  const std::int64_t shared = in->flag() ? 1 : g.batch;
  const bool twice = g.activation == FAL_SWIGLU && g.n > 0 && g.n < INT32_MAX;  // Twice any other n may not fit.
  const std::int64_t rows = twice ? 2 * g.n : g.n;
  x->a = tensor(in, g.dtype, g.batch, g.m, p->k2, as(g.k, p->k2));
  x->b = tensor(in, g.dtype, shared, rows, p->k2, as(g.k, p->k2));
  x->d = like_d(of_d);
  if (g.beta != 0) x->c = like_d(g.dtype_c != FAL_AS_Q ? g.dtype_c : of_d);
  if (g.residual != 0) x->residual = like_d(of_d);
  const std::int32_t of_bias = in->flag() ? FAL_F32 : has_8_bits(g) ? of_d : g.dtype;
  if (g.bias_n != 0) x->bias_n = tensor(in, of_bias, 1, 1, 1, rows);
  if (g.bias_m != 0) x->bias_m = tensor(in, of_bias, shared, g.m, 1, 1);
  if (g.scaling != FAL_SCALING_NONE) {
    const bool row_col = g.scaling == FAL_SCALING_ROW_COL, blocks = g.scaling == FAL_SCALING_BLOCK128;
    const std::int64_t along_k = blocks ? in_blocks(g.k) : 1;
    x->scale_a = tensor(in, FAL_F32, in->flag() ? 1 : g.batch, row_col || blocks ? g.m : 1, along_k, 1);
    x->scale_b = tensor(in, FAL_F32, shared, row_col ? rows : blocks ? in_blocks(rows) : 1, along_k, 1);
  }
  for (fal_tensor* t : {&x->a, &x->b, &x->c, &x->d, &x->residual, &x->bias_n, &x->bias_m, &x->scale_a, &x->scale_b})
    p->placed = p->memory.place(in, t) && p->placed;
}

}  // namespace
}  // namespace falchion::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace falchion::fuzz;
  Input in(data, size);
  AnyTarget target(&in);
  Problem p;
  make_problem(&in, &p);
  if (in.below(3) == 2) p.gemm.scramble(&in, 0, sizeof(fal_gemm));
  make_operands(&in, &p);
  const fal_gemm g = *p.gemm.get();
  require(fal_gemm_explain(p.gemm.get(), target.get(), FAL_TEXT)[0] != 0);
  require(fal_gemm_explain(p.gemm.get(), target.get(), FAL_JSON)[0] == '{');
  fal_plan* plan = nullptr;
  const bool made = is_ok(fal_gemm_plan_make(p.gemm.get(), target.get(), &plan));
  require(made == (plan != nullptr));
  const fal_gemm_operands& x = *p.operands.get();
  const bool can_run = target.is_modest() && p.placed &&
                       is_small({x.d.shape[0], x.d.shape[1], x.d.shape[2], x.d.shape[3], x.a.shape[2], x.a.shape[3]});
  const bool small = can_run && is_small({g.batch, g.m, g.n, g.k});
  if (made && small && fal_plan_workspace(plan) <= std::size_t{1} << 26) {
    const std::size_t bytes = fal_plan_workspace(plan);
    is_ok(fal_gemm_plan_run(plan, p.operands.get(), p.memory.workspace(bytes), bytes, nullptr));
  }
  fal_plan_free(plan);
  if (small || (can_run && !made)) is_ok(fal_gemm_run(p.operands.get(), p.gemm.get(), target.get(), nullptr));
  return 0;
}
