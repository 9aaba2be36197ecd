/* functions/gemm.c: gemm(...): the order of the steps of a matrix product and of what follows it. */
#include <string.h>

#include "fal.h"

enum {
  A,
  B,
  C,
  G_BIAS,
  BIAS_M,
  RESIDUAL,
  ACTIVATION,
  ALPHA,
  BETA,
  SCALE_A,
  SCALE_B,
  SCALING,
  G_BACKEND,
  G_THREADS,
  G_STREAM,
  OUT_DTYPE,
  OUT
};
static const char* const names[] = {"a",          "b",       "c",      "bias",      "bias_m",  "residual",
                                    "activation", "alpha",   "beta",   "scale_a",   "scale_b", "scaling",
                                    "backend",    "threads", "stream", "out_dtype", "out",     NULL};
static signature gemm_signature = {"gemm", names, 2, 2, 0, {NULL}};

int ready_gemm(void) { return ready_signature(&gemm_signature); }

/* An array as a batch of matrices: (rows, columns), (batch, rows, columns), or (batch, rows, outer, inner), where the
 * last two axes are the columns. `from` is null where there is no array. */
typedef struct matrices {
  const array* from;
  int64_t batch, rows, columns;
} matrices;

/* Is it a type that a and b may have, or else one of c, residual and out? Which of these it must be the engine says. */
static int has_gemm_type(const array* a, int is_factor) {
  if (a->dtype >= FAL_F32 && a->dtype <= FAL_BF16) return 1;
  if (is_factor ? is_8bit(a->dtype) : a->dtype == FAL_I32) return 1;
  raise_text(FAL_INVALID, NULL, "%s has the type %s: it must be float32, float16, bfloat16%s", a->name, dtype_name(a),
             is_factor ? ", int8 or float8_e4m3fn" : " or, of a product of int8, int32");
  return 0;
}

static int read_matrices(const array* a, int is_factor, matrices* out) {
  memset(out, 0, sizeof *out);
  if (!has_gemm_type(a, is_factor)) return 0;
  if (a->rank < 2) {
    raise_text(FAL_INVALID, NULL,
               "%s has %d axes: it must have 2, (rows, columns), 3, (batch, rows, columns), or 4, whose last two are "
               "the columns",
               a->name, a->rank);
    return 0;
  }
  out->from = a;
  out->batch = a->rank > 2 ? a->shape[0] : 1;
  out->rows = a->shape[a->rank > 2];
  out->columns = a->rank > 3 ? extent_of_both(a->shape[2], a->shape[3]) : a->shape[a->rank - 1];
  return 1;
}

enum { FACTOR, INPUT, OUTPUT }; /* a and b; c and residual; out */
static int take_matrices(call* call, const char* name, PyObject* object, int role, matrices* out) {
  const array* a = take(call, name, object, role == OUTPUT);
  return a != NULL && read_matrices(a, role == FACTOR, out);
}

/* The two axes that the columns of all of these are cut into: those of the first array that has two. */
static void find_cut(const matrices* all, int count, int64_t columns, int64_t* cut) {
  cut[0] = 1;
  cut[1] = columns;
  for (int i = count - 1; i >= 0; --i) {
    if (all[i].from == NULL || all[i].from->rank < 4) continue;
    cut[0] = all[i].from->shape[2];
    cut[1] = all[i].from->shape[3];
  }
}

/* As the engine's (batch, rows, outer, inner). One matrix serves each entry of a batch by a stride of 0. */
static void view_matrices(const matrices* x, int64_t batch, const int64_t* cut, fal_tensor* out) {
  const array* a = x->from;
  const int rows = a->rank > 2, last = a->rank - 1, has_cut = a->rank > 3;
  memset(out, 0, sizeof *out);
  out->data = a->data;
  out->dtype = a->dtype;
  out->shape[0] = batch;
  out->shape[1] = a->shape[rows];
  out->shape[2] = has_cut ? a->shape[2] : cut[0];
  out->shape[3] = has_cut ? a->shape[3] : cut[1];
  out->stride[0] = x->batch != batch ? 0 : rows ? a->stride[0] : times(a->shape[0], a->stride[0]);
  out->stride[1] = a->stride[rows];
  out->stride[2] = has_cut ? a->stride[2] : times(cut[1], a->stride[last]);
  out->stride[3] = a->stride[last];
}

static int raise_unlike(const call* call, const matrices* x, const char* axes, int64_t batch, int64_t rows,
                        int64_t columns, const char* more) {
  raise_text(FAL_INVALID, call, "%s has %s = (%lld, %lld, %lld): it must have (%lld, %lld, %lld)%s", x->from->name,
             axes, (long long)x->batch, (long long)x->rows, (long long)x->columns, (long long)batch, (long long)rows,
             (long long)columns, more);
  return 0;
}

/* a and b, and the sizes that they say. */
static int read_product(call* call, const matrices* factors) {
  fal_gemm* problem = &call->problem.gemm;
  const matrices *a = &factors[0], *b = &factors[1];
  const int64_t batch = a->batch == 1 ? b->batch : a->batch;
  const int parts = problem->activation == FAL_SWIGLU ? 2 : 1;
  int64_t cut[2];
  if (b->columns != a->columns || (b->batch != batch && b->batch != 1))
    return raise_unlike(call, b, "(batch, n, k)", batch, b->rows, a->columns,
                        a->from->rank == 4 || b->from->rank == 4
                            ? ", as a has it (the last two of four axes are the columns, k)"
                            : ", as a has it (of a matrix (k, n) give the transpose, b.T)");
  if (b->rows % parts != 0) {
    raise_text(FAL_INVALID, call, "b has %lld rows: with activation=\"swiglu\" it must have 2 n, the gates first",
               (long long)b->rows);
    return 0;
  }
  find_cut(factors, 2, a->columns, cut);
  view_matrices(a, batch, cut, &call->operands.gemm.a);
  view_matrices(b, b->batch, cut, &call->operands.gemm.b);
  problem->dtype = a->from->dtype;
  problem->batch = batch;
  problem->m = a->rows;
  problem->n = b->rows / parts;
  problem->k = a->columns;
  return 1;
}

/* out, c and residual, where they are there: as many matrices as the product has, and as large. */
static int view_results(call* call, const matrices* results) {
  const fal_gemm* problem = &call->problem.gemm;
  fal_gemm_operands* operands = &call->operands.gemm;
  fal_tensor* const views[] = {&operands->d, &operands->c, &operands->residual};
  int64_t cut[2];
  find_cut(results, 3, problem->n, cut);
  for (int i = 0; i < 3; ++i) {
    const matrices* x = &results[i];
    const int may_be_one = views[i] != &operands->d;
    if (x->from == NULL) continue;
    if (x->rows != problem->m || x->columns != problem->n ||
        (x->batch != problem->batch && !(may_be_one && x->batch == 1)))
      return raise_unlike(call, x, "(batch, m, n)", problem->batch, problem->m, problem->n,
                          may_be_one ? ", or a batch of 1" : "");
    view_matrices(x, problem->batch, cut, views[i]);
  }
  return 1;
}

/* The first `axes` axes as (batch or 1, rows or 1, 1, 1): (rows) or (batch, rows), or without axes one row for all. */
static int view_rows(const array* from, int axes, fal_tensor* out) {
  const int last = axes - 1;
  memset(out, 0, sizeof *out);
  out->data = from->data;
  out->dtype = from->dtype;
  for (int i = 0; i < 4; ++i) out->shape[i] = out->stride[i] = 1;
  if (last < 0) return 1;
  out->shape[1] = from->shape[last];
  out->stride[1] = from->stride[last];
  if (last == 0) return 1;
  out->shape[0] = from->shape[0];
  out->stride[0] = from->stride[0];
  return 1;
}

/* One number for each row. */
static int view_by_row(const array* from, fal_tensor* out) {
  if (from->rank <= 2) return view_rows(from, from->rank, out);
  raise_text(FAL_INVALID, NULL, "%s has %d axes: it must have 1 or 2, (rows) or (batch, rows)", from->name, from->rank);
  return 0;
}

/* One number for each row, or block of rows, and block of k: (rows, blocks) or (batch, rows, blocks). */
static int view_by_block(const array* from, fal_tensor* out) {
  if (from->rank != 2 && from->rank != 3) {
    raise_text(FAL_INVALID, NULL,
               "%s has %d axes: with scaling=\"block128\" it must have 2 or 3, (rows, blocks of k) or (batch, rows, "
               "blocks of k)",
               from->name, from->rank);
    return 0;
  }
  view_rows(from, from->rank - 1, out);
  out->shape[2] = from->shape[from->rank - 1];
  out->stride[2] = from->stride[from->rank - 1];
  return 1;
}

static int take_biases(call* call, PyObject* bias, PyObject* bias_m) {
  fal_gemm* problem = &call->problem.gemm;
  fal_gemm_operands* operands = &call->operands.gemm;
  const array* a;
  problem->bias_n = bias != NULL;
  problem->bias_m = bias_m != NULL;
  if (bias != NULL) {
    a = take(call, "bias", bias, 0);
    if (a == NULL || !has_float_type(a) || !view_last(a, &operands->bias_n)) return 0;
  }
  if (bias_m == NULL) return 1;
  a = take(call, "bias_m", bias_m, 0);
  return a != NULL && has_float_type(a) && view_by_row(a, &operands->bias_m);
}

static int take_scale(call* call, const char* name, PyObject* object, fal_tensor* out) {
  const array* a = take(call, name, object, 0);
  if (a == NULL || !has_float_type(a)) return 0;
  return call->problem.gemm.scaling == FAL_SCALING_BLOCK128 ? view_by_block(a, out) : view_by_row(a, out);
}

/* What a and b in 8 bits are multiplied by: one number for each, for each row, or for each block. Blocks are named. */
static int take_scales(call* call, PyObject* scale_a, PyObject* scale_b, PyObject* scaling) {
  static const char* const scalings[] = {"tensor", "row_col", "block128", NULL};
  fal_gemm* problem = &call->problem.gemm;
  fal_gemm_operands* operands = &call->operands.gemm;
  int named = 0;
  if (scaling != NULL) {
    if (!to_word("scaling", scaling, scalings, &named)) return 0;
    problem->scaling = (uint8_t)(FAL_SCALING_TENSOR + named);
  }
  if (scale_a == NULL && scale_b == NULL) {
    if (scaling == NULL) return 1;
    raise_text(FAL_INVALID, call, "scaling is given without scale_a and scale_b, the scales that it is about");
    return 0;
  }
  if (scale_a == NULL || scale_b == NULL) {
    raise_text(FAL_INVALID, call, "%s is given without %s: both are needed", scale_a != NULL ? "scale_a" : "scale_b",
               scale_a != NULL ? "scale_b" : "scale_a");
    return 0;
  }
  if (!take_scale(call, "scale_a", scale_a, &operands->scale_a)) return 0;
  if (!take_scale(call, "scale_b", scale_b, &operands->scale_b)) return 0;
  if (scaling == NULL)
    problem->scaling =
        operands->scale_a.shape[1] == 1 && operands->scale_b.shape[1] == 1 ? FAL_SCALING_TENSOR : FAL_SCALING_ROW_COL;
  return 1;
}

static int read_options(call* call, PyObject* const* values) {
  static const char* const activations[] = {"relu", "gelu_tanh", "gelu_erf", "silu", "swiglu", NULL};
  fal_gemm* problem = &call->problem.gemm;
  int activation = 0;
  problem->alpha = 1;
  problem->beta = values[C] != NULL;
  if (values[ACTIVATION] != NULL) {
    if (!to_word("activation", values[ACTIVATION], activations, &activation)) return 0;
    problem->activation = FAL_RELU + activation;
  }
  if (values[BETA] != NULL && values[C] == NULL) {
    raise_text(FAL_INVALID, call, "beta is given without c, the array that it multiplies");
    return 0;
  }
  return (values[ALPHA] == NULL || to_float("alpha", values[ALPHA], &problem->alpha)) &&
         (values[BETA] == NULL || to_float("beta", values[BETA], &problem->beta)) &&
         (values[OUT_DTYPE] == NULL || read_dtype("out_dtype", values[OUT_DTYPE], GEMM_RESULTS, &problem->dtype_d));
}

/* The output, given or made: (m, n), or (batch, m, n) where a or b has a batch. A new reference. */
static PyObject* take_out(call* call, PyObject* given, int has_batch, matrices* out) {
  fal_gemm* problem = &call->problem.gemm;
  const int64_t shape[] = {problem->batch, problem->m, problem->n};
  array* made = NULL;
  PyObject* result;
  if (given != NULL) {
    result = take_matrices(call, "out", given, OUTPUT, out) ? Py_NewRef(given) : NULL;
  } else {
    if (problem->dtype_d == FAL_AS_Q && is_8bit(problem->dtype)) problem->dtype_d = FAL_F32;
    result = make_array(call, "out", "out", 2 + has_batch, shape + !has_batch, problem->dtype_d, AS_IT_COMES, &made);
    if (result != NULL && !read_matrices(made, 0, out)) Py_CLEAR(result);
  }
  if (result != NULL && problem->dtype_d == FAL_AS_Q) problem->dtype_d = out->from->dtype;
  return result;
}

static PyObject* gemm(call* call, PyObject* const* values) {
  fal_gemm* problem = &call->problem.gemm;
  matrices factors[2]; /* a, b */
  matrices results[3]; /* out, c, residual */
  PyObject* d;
  memset(results, 0, sizeof results);
  if (!name_stream(call, values[G_STREAM]) || !take_matrices(call, "a", values[A], FACTOR, &factors[0]) ||
      !take_matrices(call, "b", values[B], FACTOR, &factors[1]) || !read_options(call, values) ||
      !read_product(call, factors))
    return NULL;
  if (values[C] != NULL && !take_matrices(call, "c", values[C], INPUT, &results[1])) return NULL;
  if (values[RESIDUAL] != NULL && !take_matrices(call, "residual", values[RESIDUAL], INPUT, &results[2])) return NULL;
  if (results[1].from != NULL) problem->dtype_c = results[1].from->dtype;
  problem->residual = results[2].from != NULL;
  if (!take_biases(call, values[G_BIAS], values[BIAS_M]) ||
      !take_scales(call, values[SCALE_A], values[SCALE_B], values[SCALING]) ||
      !read_target(call, values[G_BACKEND], values[G_THREADS]) || !read_stream(call, values[G_STREAM]))
    return NULL;
  d = take_out(call, values[OUT], factors[0].from->rank > 2 || factors[1].from->rank > 2, &results[0]);
  if (d != NULL && (!view_results(call, results) || !run(call))) Py_CLEAR(d);
  return d;
}

PyObject* call_gemm(explanation* story, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  PyObject *values[MOST_ARGUMENTS], *result = NULL;
  call call;
  if (!bind(&gemm_signature, args, count, names, values)) return NULL;
  begin(&call, "gemm", GEMM, FAL_FORWARD);
  call.story = story;
  result = gemm(&call, values);
  end(&call);
  return result;
}

FUNCTION(py_gemm) {
  (void)module;
  return call_gemm(NULL, args, count, names);
}
