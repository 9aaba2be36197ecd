/// attention_fuzz.cpp: puts any numbers into the structs of the C API of attention. The problem is planned, explained
/// and run, by a plan and by the one call. A pointer is null, or there is as much memory behind it as its view claims.
/// Nothing may crash, or read or write beyond a view.
#include "c_api_fuzz.hpp"

namespace falchion::fuzz {
namespace {

constexpr std::uint32_t kFirstAttention = 144, kFirstOperands = 880;  // those of the first version

struct Problem {
  Roomy<fal_attention> attention;
  Roomy<fal_operands> operands;
  Memory memory;
  bool placed = true;     // Whether every view has the memory that it claims.
  bool backward = false;  // Whether it is meant for the backward pass.
};

void make_problem(Input* in, fal_attention* a) {
  *a = fal_attention_init();
  a->dtype = static_cast<std::int32_t>(in->below(3));
  a->b = in->below(4);
  a->s_q = in->below(24);
  a->s_k = in->below(40);
  a->h_k = in->below(3);
  a->h_q = a->h_k * (1 + in->below(3));
  a->d_qk = 1 + in->below(20);
  a->d_v = 1 + in->below(20);
  const std::uint8_t band = in->byte();
  if ((band & 1) != 0) a->band.left = in->number();
  if ((band & 2) != 0) a->band.right = in->number();
  a->band.align = static_cast<std::int32_t>(band >> 2 & 3);
  const std::uint8_t score = in->byte();
  if ((score & 1) != 0) a->scale = in->real();
  if ((score & 2) != 0) a->softcap = in->real();
  if ((score & 4) != 0) a->dropout = in->real();
  const std::uint8_t flags = in->byte();
  a->packed = (flags & 1) != 0 && in->flag();
  a->used_q = (flags & 2) != 0;
  a->used_k = (flags & 4) != 0;
  a->alibi = (flags & 8) != 0;
  a->bias = (flags & 16) != 0;
  a->mask = (flags & 32) != 0;
  a->lse = (flags & 64) != 0;
  a->row_max = (flags & 128) != 0;
  a->probabilities = in->below(4) == 3;
  a->first_k = in->below(4) == 3;
}

/// A KV cache and what goes with it. It comes behind all other bytes of the input, so that older seeds keep their
/// problems.
void make_cache(Input* in, fal_attention* a) {
  const std::uint8_t flags = in->byte();
  if ((flags & 1) == 0) return;
  a->cache = 1;
  a->used_k = (flags & 2) == 0 || a->used_k != 0;
  a->append = (flags & 12) == 12;
  a->sinks = (flags & 48) == 48;
  if ((flags & 64) != 0) a->page_size = in->flag() ? 1 + in->below(20) : in->number();
  if ((flags & 128) != 0) a->rotary_dim = in->flag() ? 2 * in->below(10) : in->number();
  a->rotary_pairs = in->below(4) == 3;
  if (in->flag()) a->split_keys = in->flag() ? 64 * in->below(4) : in->number();
}

/// The tensors of a cache: pages in place of rows, their table, new keys, the numbers that turn them.
void make_cache_operands(Input* in, Problem* p) {
  const fal_attention a = *p->attention.get();
  fal_operands* x = p->operands.get();
  if (a.cache == 0) return;
  const std::int64_t pages = in->below(12), size = a.page_size;
  const std::int64_t sequences = a.b < 0 || a.b > INT32_MAX ? 1 : a.b;  // more are refused before a length is read
  if (x->used_k == nullptr) x->used_k = p->memory.lengths(in, std::max(sequences, x->q.shape[0]), false);
  if (size > 0) {
    x->k = tensor(in, a.dtype, pages, size, a.h_k, a.d_qk);
    x->v = tensor(in, a.dtype, pages, size, a.h_k, a.d_v);
    const std::int64_t columns = size <= a.s_k ? a.s_k / size + in->below(2) : 1;
    x->page_table = in->flag() ? tensor(in, FAL_I32, a.b, columns, 1, 1) : tensor(in, FAL_I32, 1, in->below(30), 1, 1);
    if (x->page_table.shape[0] == 1) x->page_starts = p->memory.lengths(in, sequences + 1, true);
  } else {
    x->k = tensor(in, a.dtype, a.b, a.s_k, a.h_k, a.d_qk);
    x->v = tensor(in, a.dtype, a.b, a.s_k, a.h_k, a.d_v);
  }
  if (a.append != 0) x->k_new = tensor(in, a.dtype, x->q.shape[0], x->q.shape[1], a.h_k, a.d_qk);
  if (a.append != 0) x->v_new = tensor(in, a.dtype, x->q.shape[0], x->q.shape[1], a.h_k, a.d_v);
  if (a.rotary_dim > 0) x->rotary = tensor(in, FAL_F32, 1, in->below(40), 2, a.rotary_dim / 2);
  if (a.sinks != 0) x->sinks = tensor(in, FAL_F32, in->flag() ? 1 : a.b, 1, a.h_q, 1);
  for (fal_tensor* t : {&x->k, &x->v, &x->page_table, &x->k_new, &x->v_new, &x->rotary, &x->sinks})
    p->placed = p->memory.place(in, t) && p->placed;
  p->memory.number_pages(in, x->page_table, pages);
  if (in->below(8) != 7) x->cu_seqlens_k = nullptr;
}

/// 8 bits in the memory of a cache's K and V, and their scales.
void make_bytes(Input* in, Problem* p) {
  fal_attention* a = p->attention.get();
  fal_operands* x = p->operands.get();
  const std::uint8_t flags = in->byte();
  if (a->cache == 0 || (flags & 1) == 0) return;
  a->dtype_k = (flags & 2) != 0 ? FAL_E4M3 : FAL_I8;
  a->dtype_v = (flags & 12) != 12 ? a->dtype_k : static_cast<std::int32_t>(in->below(9));
  a->k_scale = (flags & 16) != 0;
  a->v_scale = (flags & 32) != 0;
  x->k.dtype = a->dtype_k;
  x->v.dtype = a->dtype_v;
  const auto scales = [&](const fal_tensor& of) {
    const auto some = [in](std::int64_t extent) { return in->flag() ? 1 : extent; };
    const std::int64_t batch = some(of.shape[0]), rows = some(of.shape[1]);
    return tensor(in, FAL_F32, batch, rows, some(of.shape[2]), 1);
  };
  if (a->k_scale != 0) x->k_scale = scales(x->k);
  if (a->v_scale != 0) x->v_scale = scales(x->v);
  for (fal_tensor* t : {&x->k_scale, &x->v_scale}) p->placed = p->memory.place(in, t) && p->placed;
}

/// q of 8 bits, with scales of all three. Half the time what is refused beside it stays.
void make_bytes_of_q(Input* in, Problem* p) {
  fal_attention* a = p->attention.get();
  fal_operands* x = p->operands.get();
  const std::uint8_t flags = in->byte();
  if (a->cache != 0 || (flags & 1) == 0) return;
  const bool e4m3 = (flags & 2) != 0;
  a->dtype = e4m3 ? FAL_E4M3 : FAL_I8;
  a->dtype_v = in->below(8) == 7 ? static_cast<std::int32_t>(in->below(9)) : e4m3 || in->flag() ? FAL_E4M3 : FAL_BF16;
  if (in->below(8) == 7) a->dtype_o = static_cast<std::int32_t>(in->below(9));
  if ((flags & 4) != 0) {
    a->dropout = 0;
    a->first_k = a->alibi = a->bias = a->mask = a->row_max = a->probabilities = 0;
    x->first_k = nullptr;
    x->alibi = x->bias = x->mask = x->row_max = x->probabilities = fal_tensor{};
  }
  a->q_scale = (flags & 8) != 0;
  a->k_scale = (flags & 16) != 0;
  a->v_scale = (flags & 32) != 0;
  if (a->k_scale != 0 && in->flag()) a->k_scale_rows = in->flag() ? 128 : in->number();
  const std::int64_t blocks = a->packed != 0 ? x->k.shape[1] / 128 + a->b : (x->k.shape[1] + 127) / 128;
  const auto some = [in](std::int64_t extent) { return in->flag() ? 1 : extent; };
  if (a->q_scale != 0) x->q_scale = tensor(in, FAL_F32, some(x->q.shape[0]), some(x->q.shape[1]), some(a->h_q), 1);
  if (a->k_scale != 0) x->k_scale = tensor(in, FAL_F32, some(x->k.shape[0]), some(blocks), some(a->h_k), 1);
  if (a->v_scale != 0) x->v_scale = tensor(in, FAL_F32, some(x->v.shape[0]), 1, some(a->h_k), 1);
  x->q.dtype = x->k.dtype = a->dtype;
  x->v.dtype = a->dtype_v;
  x->o.dtype = in->below(8) != 7 ? FAL_BF16 : FAL_F16;
  for (fal_tensor* t : {&x->q, &x->k, &x->v, &x->o, &x->q_scale, &x->k_scale, &x->v_scale})
    p->placed = p->memory.place(in, t) && p->placed;
}

/// The struct of a caller that knows fewer fields: what is behind `size` is not read, so any bytes may be there.
void make_older(Input* in, Problem* p) {
  const std::uint8_t which = in->byte();
  if ((which & 1) != 0) p->attention.cut(in, kFirstAttention);
  if ((which & 2) != 0) p->operands.cut(in, kFirstOperands);
}

/// The flags of the backward pass, and its tensors.
void make_gradients(Input* in, fal_attention* a, fal_operands* x) {
  const std::uint8_t flags = in->byte();
  a->grads = static_cast<std::uint8_t>(in->below(3));
  a->frozen = static_cast<std::uint8_t>(flags & 3);
  a->any_order = (flags & 4) != 0;
  a->zero_unused = (flags & 8) != 0;
  a->grad_lse = (flags & 16) != 0;
  a->grad_bias = (flags & 32) != 0 && a->bias != 0;
  a->grad_alibi = (flags & 64) != 0 && a->alibi != 0;
  const std::int32_t dtype = a->grads == FAL_GRADS_ROUNDED ? a->dtype : FAL_F32;
  const auto like = [in](std::int32_t type, const fal_tensor& t) {
    return tensor(in, type, t.shape[0], t.shape[1], t.shape[2], t.shape[3]);
  };
  x->lse = tensor(in, FAL_F32, x->o.shape[0], x->o.shape[2], x->o.shape[1], 1);
  x->grad_o = like(a->dtype, x->o);
  if (a->grad_lse != 0) x->grad_lse = like(FAL_F32, x->lse);
  if ((a->frozen & 1) == 0) x->grad_q = like(dtype, x->q);
  if ((a->frozen & 2) == 0) x->grad_k = like(dtype, x->k);
  if ((a->frozen & 2) == 0) x->grad_v = like(dtype, x->v);
  if (a->grad_bias != 0)
    x->grad_bias = tensor(in, FAL_F32, in->flag() ? 1 : a->b, a->h_q, in->flag() ? 1 : a->s_q, a->s_k);
  if (a->grad_alibi != 0) x->grad_alibi = tensor(in, FAL_F32, in->flag() ? 1 : a->b, 1, a->h_q, 1);
}

void make_operands(Input* in, Problem* p) {
  const fal_attention a = *p->attention.get();
  fal_operands* x = p->operands.get();
  x->size = sizeof *x;
  const bool packed = a.packed != 0;
  const std::int64_t batch = packed ? 1 : a.b, q = packed ? in->below(40) : a.s_q, k = packed ? in->below(60) : a.s_k;
  x->q = tensor(in, a.dtype, batch, q, a.h_q, a.d_qk);
  x->k = tensor(in, a.dtype, batch, k, a.h_k, a.d_qk);
  x->v = tensor(in, a.dtype, batch, k, a.h_k, a.d_v);
  x->o = tensor(in, a.dtype, batch, q, a.h_q, a.d_v);
  if (a.lse != 0) x->lse = tensor(in, FAL_F32, batch, a.h_q, q, 1);
  if (a.row_max != 0) x->row_max = tensor(in, FAL_F32, batch, a.h_q, q, 1);
  if (a.probabilities != 0) x->probabilities = tensor(in, FAL_F32, a.b, a.h_q, a.s_q, a.s_k);
  if (a.bias != 0) x->bias = tensor(in, in->flag() ? FAL_F32 : a.dtype, in->flag() ? 1 : a.b, a.h_q, a.s_q, a.s_k);
  if (a.mask != 0) x->mask = tensor(in, FAL_BOOL, a.b, in->flag() ? 1 : a.h_q, a.s_q, a.s_k);
  if (a.alibi != 0) x->alibi = tensor(in, FAL_F32, in->flag() ? 1 : a.b, 1, a.h_q, 1);
  p->backward = in->below(8) == 7;
  if (p->backward) make_gradients(in, p->attention.get(), x);
  for (fal_tensor* t :
       {&x->q, &x->k, &x->v, &x->o, &x->lse, &x->row_max, &x->probabilities, &x->bias, &x->mask, &x->alibi, &x->grad_o,
        &x->grad_lse, &x->grad_q, &x->grad_k, &x->grad_v, &x->grad_bias, &x->grad_alibi})
    p->placed = p->memory.place(in, t) && p->placed;
  // The arrays are as long as the problem says or as the tensors say, whichever is longer, because the one call goes by
  // the tensors. The arrays of a problem that is refused for its size are never read.
  const auto count = [](std::int64_t n) { return n > INT32_MAX || n < 0 ? 1 : n; };
  const std::int64_t b = packed ? count(a.b) : std::max(count(a.b), count(x->q.shape[0]));
  if (packed) {
    x->cu_seqlens_q = p->memory.lengths(in, b + 1, true);
    x->cu_seqlens_k = p->memory.lengths(in, b + 1, true);
  }
  if (a.used_q != 0) x->used_q = p->memory.lengths(in, b, false);
  if (a.used_k != 0) x->used_k = p->memory.lengths(in, b, false);
  if (a.first_k != 0) x->first_k = p->memory.lengths(in, b, false);
  x->rng.seed = in->word();
  x->rng.offset = in->word();
  if (in->flag()) x->rng.at = p->memory.rng(in);
}

void run_plan(Problem* p, fal_plan* plan) {
  const std::size_t bytes = fal_plan_workspace(plan);
  require(fal_plan_describe(plan)[0] != 0 && fal_plan_explain(plan, FAL_TEXT)[0] != 0);
  require(fal_plan_explain(plan, FAL_JSON)[0] == '{' && fal_plan_explain(plan, FAL_JSON + 1) == nullptr);
  if (bytes > std::size_t{1} << 26) return;
  is_ok(fal_plan_run(plan, p->operands.get(), p->memory.workspace(bytes), bytes, nullptr));
  if (bytes > 0)
    require(!is_ok(fal_plan_run(plan, p->operands.get(), nullptr, 0, nullptr)) || p->operands->q.shape[1] == 0 ||
            p->operands->q.shape[0] == 0 || p->operands->q.shape[2] == 0);
}

}  // namespace
}  // namespace falchion::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace falchion::fuzz;
  Input in(data, size);
  AnyTarget target(&in);
  Problem p;
  make_problem(&in, p.attention.get());
  if (in.below(3) == 2) p.attention.scramble(&in, 0, sizeof(fal_attention));
  make_operands(&in, &p);
  make_cache(&in, p.attention.get());
  make_cache_operands(&in, &p);
  make_bytes(&in, &p);
  make_bytes_of_q(&in, &p);
  make_older(&in, &p);
  const fal_attention a = *p.attention.get();
  const std::int32_t pass = p.backward != (in.below(16) == 15) ? FAL_BACKWARD : FAL_FORWARD;
  require(fal_explain(p.attention.get(), pass, target.get(), FAL_TEXT)[0] != 0);
  require(fal_explain(p.attention.get(), pass, target.get(), FAL_JSON)[0] == '{');
  fal_plan* plan = nullptr;
  const bool made = is_ok(fal_plan_make(p.attention.get(), pass, target.get(), &plan));
  require(made == (plan != nullptr));
  const fal_operands& x = *p.operands.get();
  const bool can_run = target.is_modest() && p.placed &&
                       is_small({x.q.shape[0], x.q.shape[1], x.q.shape[2], x.k.shape[1], x.q.shape[3],
                                 std::max<std::int64_t>(x.page_table.shape[1], 1)});
  const bool small = can_run && is_small({a.b, a.h_q, a.s_q, a.s_k, std::max(a.d_qk, a.d_v)});
  if (made && small) run_plan(&p, plan);
  fal_plan_free(plan);
  // A problem that no plan is made for must be refused here too.
  if (small || (can_run && !made)) {
    is_ok(fal_attention_run(p.operands.get(), p.attention.get(), target.get(), nullptr));
    is_ok(fal_validate_lengths(p.attention.get(), p.operands.get()));
    is_ok(fal_merge(&x.o, &x.lse, &x.v, &x.row_max, &x.q, &x.lse));
    is_ok(fal_merge_parts(&x.o, &x.lse, 1, &x.q, &x.lse, nullptr));
  }
  return 0;
}
