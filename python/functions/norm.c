/* functions/norm.c: layer_norm(...) and rms_norm(...): the order of the steps of a norm. */
#include "fal.h"

/* Both functions take the same arguments, of which layer_norm takes more by position. */
enum {
  X,
  WEIGHT,
  N_BIAS,
  EPS,
  RESIDUAL,
  ZERO_CENTERED,
  RETURN_STATS,
  N_BACKEND,
  N_THREADS,
  N_STREAM,
  OUT_DTYPE,
  OUT,
  RESIDUAL_OUT
};
static const char* const names[] = {
    "x",       "weight",  "bias",   "eps",       "residual", "zero_centered", "return_stats",
    "backend", "threads", "stream", "out_dtype", "out",      "residual_out",  NULL};
static signature layer_signature = {"layer_norm", names, 1, 4, 0, {NULL}};
static signature rms_signature = {"rms_norm", names, 1, 2, 0, {NULL}};

int ready_norm(void) { return ready_signature(&layer_signature) && ready_signature(&rms_signature); }

/* One of x, residual, weight, bias and the outputs: the last of the axes (b, s, h, d). */
int view_numbers(const array* a, fal_tensor* out) {
  if (!has_float_type(a)) return 0;
  if (a->rank > 0) return view_last(a, out);
  raise_text(FAL_INVALID, NULL, "%s has 0 axes: it must have 1 to 4, of which the last one is normalised", a->name);
  return 0;
}

const array* take_rows(call* call, const char* name, PyObject* object, int writes, fal_tensor* out) {
  const array* a = take(call, name, object, writes);
  return a != NULL && view_numbers(a, out) ? a : NULL;
}

static int take_inputs_of_norm(call* call, PyObject* const* values) {
  fal_norm* problem = &call->problem.norm;
  fal_norm_operands* operands = &call->operands.norm;
  if (!name_stream(call, values[N_STREAM]) || take_rows(call, "x", values[X], 0, &operands->x) == NULL) return 0;
  problem->dtype = operands->x.dtype;
  problem->rows = 1;
  for (int axis = 0; axis < 3; ++axis) problem->rows = extent_of_both(problem->rows, operands->x.shape[axis]);
  problem->d = operands->x.shape[3];
  problem->weight = values[WEIGHT] != NULL;
  problem->bias = values[N_BIAS] != NULL;
  problem->residual = problem->residual_out = values[RESIDUAL] != NULL;
  if (problem->weight && take_rows(call, "weight", values[WEIGHT], 0, &operands->weight) == NULL) return 0;
  if (problem->bias && take_rows(call, "bias", values[N_BIAS], 0, &operands->bias) == NULL) return 0;
  if (problem->residual && take_rows(call, "residual", values[RESIDUAL], 0, &operands->residual) == NULL) return 0;
  problem->dtype_residual = operands->residual.dtype;
  if (problem->residual || values[RESIDUAL_OUT] == NULL) return 1;
  raise_text(FAL_INVALID, call, "residual_out is given without residual, which x is added to");
  return 0;
}

static int read_options_of_norm(call* call, PyObject* const* values) {
  fal_norm* problem = &call->problem.norm;
  problem->eps = 1e-5F;
  if (!to_flag("return_stats", values[RETURN_STATS], &problem->rstd)) return 0;
  problem->mean = problem->rstd && problem->kind == FAL_LAYER_NORM; /* RMSNorm has no mean. */
  return (values[EPS] == NULL || to_float("eps", values[EPS], &problem->eps)) &&
         to_flag("zero_centered", values[ZERO_CENTERED], &problem->zero_centered) &&
         (values[OUT_DTYPE] == NULL || read_dtype("out_dtype", values[OUT_DTYPE], FLOATS, &problem->dtype_y)) &&
         read_target(call, values[N_BACKEND], values[N_THREADS]) && read_stream(call, values[N_STREAM]);
}

/* Gives the caller's `given`, or makes an output with the axes of x; of a statistic the last one has extent 1. */
static PyObject* output(call* call, const char* name, PyObject* given, int is_statistic, int dtype, fal_tensor* out) {
  const array* x = call->leader;
  int64_t shape[WHOLE_AXES];
  array* made;
  PyObject* result;
  if (given != NULL) return take_rows(call, name, given, 1, out) != NULL ? Py_NewRef(given) : NULL;
  for (int i = 0; i < x->rank; ++i) shape[i] = x->shape[i];
  if (is_statistic) shape[x->rank - 1] = 1;
  result = make_array(call, name, is_statistic ? NULL : name, x->rank, shape, dtype, AS_IT_COMES, &made);
  if (result != NULL && !view_numbers(made, out)) Py_CLEAR(result);
  return result;
}

/* y alone, or a tuple of y and what else is asked for: residual_out, mean, rstd. */
static PyObject* run_norm(call* call, PyObject* const* values) {
  fal_norm* problem = &call->problem.norm;
  fal_norm_operands* operands = &call->operands.norm;
  const struct {
    const char* name;
    PyObject* given;
    int is_wanted, is_statistic, dtype;
    fal_tensor* view;
  } outputs[] = {
      {"out", values[OUT], 1, 0, problem->dtype_y, &operands->y},
      {"residual_out", values[RESIDUAL_OUT], problem->residual, 0, problem->dtype_residual, &operands->residual_out},
      {"mean", NULL, problem->mean, 1, FAL_F32, &operands->mean},
      {"rstd", NULL, problem->rstd, 1, FAL_F32, &operands->rstd}};
  PyObject *made[4], *result = NULL;
  int count = 0, ok = 1;
  for (int i = 0; i < 4 && ok; ++i) {
    if (!outputs[i].is_wanted) continue;
    made[count] =
        output(call, outputs[i].name, outputs[i].given, outputs[i].is_statistic, outputs[i].dtype, outputs[i].view);
    ok = made[count] != NULL;
    count += ok;
  }
  if (problem->dtype_y == FAL_AS_Q) problem->dtype_y = operands->y.dtype;
  if (ok && run(call)) result = count == 1 ? Py_NewRef(made[0]) : PyTuple_New(count);
  for (int i = 0; i < count; ++i) {
    if (result != NULL && count > 1) PyTuple_SetItem(result, i, Py_NewRef(made[i]));
    Py_DECREF(made[i]);
  }
  return result;
}

static PyObject* norm(const signature* signature, int kind, explanation* story, PyObject* const* args, Py_ssize_t count,
                      PyObject* names) {
  PyObject *values[MOST_ARGUMENTS], *result = NULL;
  call call;
  if (!bind(signature, args, count, names, values)) return NULL;
  begin(&call, signature->function, NORM, FAL_FORWARD);
  call.problem.norm.kind = kind;
  call.story = story;
  if (take_inputs_of_norm(&call, values) && read_options_of_norm(&call, values)) result = run_norm(&call, values);
  end(&call);
  return result;
}

PyObject* call_layer_norm(explanation* story, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return norm(&layer_signature, FAL_LAYER_NORM, story, args, count, names);
}

PyObject* call_rms_norm(explanation* story, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return norm(&rms_signature, FAL_RMS_NORM, story, args, count, names);
}

FUNCTION(py_layer_norm) {
  (void)module;
  return call_layer_norm(NULL, args, count, names);
}

FUNCTION(py_rms_norm) {
  (void)module;
  return call_rms_norm(NULL, args, count, names);
}
