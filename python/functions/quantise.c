/* functions/quantise.c: quantise(...): 8-bit numbers with scales: the order of the steps. */
#include <string.h>

#include "fal.h"

enum { X, DTYPE, ROWS, SCALE, MEAN, POWERS_OF_TWO, SMOOTH, ROTATE, Q_BACKEND, Q_THREADS, Q_STREAM, OUT };
static const char* const names[] = {"x",      "dtype",  "rows",    "scale",   "mean",   "powers_of_two",
                                    "smooth", "rotate", "backend", "threads", "stream", "out",
                                    NULL};
static signature quantise_signature = {"quantise", names, 1, 2, 0, {NULL}};

int ready_quantise(void) { return ready_signature(&quantise_signature); }

/* An array with the axes (b, s, h, d), with `hole` without that one of them: it has extent 1. */
static int view_without(const array* a, int hole, const char* axes, fal_tensor* out) {
  const int rank = hole == 4 ? 4 : 3;
  if (a->rank != rank) {
    raise_text(FAL_INVALID, NULL, "%s has %d axes: it must have %d, %s", a->name, a->rank, rank, axes);
    return 0;
  }
  memset(out, 0, sizeof *out);
  out->data = a->data;
  out->dtype = a->dtype;
  for (int axis = 0, of_a = 0; axis < 4; ++axis) {
    out->shape[axis] = axis == hole ? 1 : a->shape[of_a];
    out->stride[axis] = axis == hole ? 0 : a->stride[of_a];
    of_a += axis != hole;
  }
  return 1;
}
static int view_x(const array* a, fal_tensor* out) { return view_without(a, 4, "(b, s, h, d)", out); }
static int view_scale(const array* a, fal_tensor* out) { return view_without(a, 3, "(b, blocks, h)", out); }
static int view_mean(const array* a, fal_tensor* out) { return view_without(a, 1, "(b, h, d)", out); }

/* Gives the caller's array, or makes one. */
static PyObject* output(call* call, const char* name, PyObject* given, int rank, const int64_t* shape, int dtype,
                        int (*view)(const array*, fal_tensor*), fal_tensor* out) {
  array* a;
  PyObject* object;
  if (given != NULL) {
    a = take(call, name, given, strcmp(name, "out") == 0);
    return a != NULL && view(a, out) ? Py_NewRef(given) : NULL;
  }
  object = make_array(call, name, strcmp(name, "out") == 0 ? name : NULL, rank, shape, dtype, AS_IT_COMES, &a);
  if (object != NULL && !view(a, out)) Py_CLEAR(object);
  return object;
}

static int take_x_and_options(call* call, PyObject* const* values) {
  fal_quantise* problem = &call->problem.quantise;
  const fal_tensor* x = &call->operands.quantise.x;
  array* a;
  problem->dtype_y = FAL_E4M3;
  problem->rows = 1;
  if (!name_stream(call, values[Q_STREAM])) return 0;
  a = take(call, "x", values[X], 0);
  if (a == NULL || !has_float_type(a) || !view_x(a, &call->operands.quantise.x)) return 0;
  problem->dtype = x->dtype;
  problem->b = x->shape[0];
  problem->s = x->shape[1];
  problem->h = x->shape[2];
  problem->d = x->shape[3];
  problem->scale_given = values[SCALE] != NULL;
  if (!to_flag("powers_of_two", values[POWERS_OF_TWO], &problem->powers_of_two) ||
      !to_flag("smooth", values[SMOOTH], &problem->smooth) || !to_flag("rotate", values[ROTATE], &problem->rotate))
    return 0;
  problem->mean_given = values[MEAN] != NULL;
  problem->smooth = problem->smooth || problem->mean_given;
  return (values[DTYPE] == NULL || read_dtype("dtype", values[DTYPE], GEMM_TYPES, &problem->dtype_y)) &&
         (values[ROWS] == NULL || to_int64("rows", values[ROWS], &problem->rows)) &&
         read_target(call, values[Q_BACKEND], values[Q_THREADS]) && read_stream(call, values[Q_STREAM]);
}

/* (y, scale), and the mean where one was computed. */
static PyObject* run_quantise(call* call, PyObject* const* values) {
  const fal_quantise* problem = &call->problem.quantise;
  fal_quantise_operands* operands = &call->operands.quantise;
  const int64_t rows = problem->rows > 0 ? problem->rows : problem->s;
  const int64_t x[4] = {problem->b, problem->s, problem->h, problem->d};
  const int64_t scales[3] = {x[0], rows > 0 ? x[1] / rows + (x[1] % rows != 0) : 0, x[2]};
  const int64_t mean[3] = {x[0], x[2], x[3]};
  PyObject *made[3] = {NULL, NULL, NULL}, *result = NULL;
  int ok;
  made[0] = output(call, "out", values[OUT], 4, x, problem->dtype_y, view_x, &operands->y);
  ok = made[0] != NULL;
  if (ok) made[1] = output(call, "scale", values[SCALE], 3, scales, FAL_F32, view_scale, &operands->scale);
  ok = ok && made[1] != NULL;
  if (ok && problem->smooth) {
    made[2] = output(call, "mean", values[MEAN], 3, mean, FAL_F32, view_mean, &operands->mean);
    ok = made[2] != NULL;
  }
  if (ok && run(call))
    result = problem->smooth && !problem->mean_given ? PyTuple_Pack(3, made[0], made[1], made[2])
                                                     : PyTuple_Pack(2, made[0], made[1]);
  for (int i = 0; i < 3; ++i) Py_XDECREF(made[i]);
  return result;
}

FUNCTION(py_quantise) {
  PyObject *values[MOST_ARGUMENTS], *result = NULL;
  call call;
  (void)module;
  if (!bind(&quantise_signature, args, count, names, values)) return NULL;
  begin(&call, "quantise", QUANTISE, FAL_FORWARD);
  if (take_x_and_options(&call, values)) result = run_quantise(&call, values);
  end(&call);
  return result;
}
