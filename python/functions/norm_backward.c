/* functions/norm_backward.c: layer_norm_backward(...) and rms_norm_backward(...): the order of the steps of the
 * gradients of a norm. */
#include "fal.h"

enum { GRAD_Y, B_X, B_WEIGHT, B_BIAS, B_EPS, GRAD_RESIDUAL_OUT, B_ZERO_CENTERED, B_BACKEND, B_THREADS, B_STREAM };
static const char* const names[] = {"grad_y",        "x",       "weight",  "bias",   "eps", "grad_residual_out",
                                    "zero_centered", "backend", "threads", "stream", NULL};
static signature layer_signature = {"layer_norm_backward", names, 2, 5, 0, {NULL}};
static signature rms_signature = {"rms_norm_backward", names, 2, 3, 0, {NULL}};

int ready_norm_backward(void) { return ready_signature(&layer_signature) && ready_signature(&rms_signature); }

/* bias is not read: grad_bias has its shape and type. */
static int take_inputs_of_gradients(call* call, PyObject* const* values, const array** weight, const array** bias) {
  fal_norm* problem = &call->problem.norm;
  fal_norm_operands* operands = &call->operands.norm;
  fal_tensor of_bias;
  if (!name_stream(call, values[B_STREAM]) || take_rows(call, "x", values[B_X], 0, &operands->x) == NULL ||
      take_rows(call, "grad_y", values[GRAD_Y], 0, &operands->grad_y) == NULL)
    return 0;
  problem->dtype = operands->x.dtype;
  problem->dtype_y = operands->grad_y.dtype;
  problem->rows = 1;
  for (int axis = 0; axis < 3; ++axis) problem->rows = extent_of_both(problem->rows, operands->x.shape[axis]);
  problem->d = operands->x.shape[3];
  problem->weight = values[B_WEIGHT] != NULL;
  problem->bias = values[B_BIAS] != NULL;
  problem->residual_out = values[GRAD_RESIDUAL_OUT] != NULL;
  if (problem->weight && (*weight = take_rows(call, "weight", values[B_WEIGHT], 0, &operands->weight)) == NULL)
    return 0;
  if (problem->bias && (*bias = take_rows(call, "bias", values[B_BIAS], 0, &of_bias)) == NULL) return 0;
  if (problem->residual_out &&
      take_rows(call, "grad_residual_out", values[GRAD_RESIDUAL_OUT], 0, &operands->grad_residual_out) == NULL)
    return 0;
  problem->dtype_residual = operands->grad_residual_out.dtype;
  return 1;
}

static int read_options_of_gradients(call* call, PyObject* const* values) {
  fal_norm* problem = &call->problem.norm;
  problem->eps = 1e-5F;
  return (values[B_EPS] == NULL || to_float("eps", values[B_EPS], &problem->eps)) &&
         to_flag("zero_centered", values[B_ZERO_CENTERED], &problem->zero_centered) &&
         read_target(call, values[B_BACKEND], values[B_THREADS]) && read_stream(call, values[B_STREAM]);
}

/* A gradient like `a`, or None where that is not there. */
static PyObject* gradient(call* call, const char* name, const array* a, int dtype, fal_tensor* out) {
  array* made;
  PyObject* result;
  if (a == NULL) Py_RETURN_NONE;
  result = make_array(call, name, NULL, a->rank, a->shape, dtype, AS_IT_COMES, &made);
  if (result != NULL && !view_numbers(made, out)) Py_CLEAR(result);
  return result;
}

/* (grad_x, grad_weight, grad_bias) */
static PyObject* run_gradients(call* call, const array* weight, int dtype_weight, const array* bias, int dtype_bias) {
  fal_norm_operands* operands = &call->operands.norm;
  PyObject* made[3] = {NULL, NULL, NULL};
  PyObject* result = NULL;
  made[0] = gradient(call, "grad_x", call->leader, call->problem.norm.dtype, &operands->grad_x);
  if (made[0] != NULL) made[1] = gradient(call, "grad_weight", weight, dtype_weight, &operands->grad_weight);
  if (made[1] != NULL) made[2] = gradient(call, "grad_bias", bias, dtype_bias, &operands->grad_bias);
  if (made[2] != NULL && run(call)) result = PyTuple_Pack(3, made[0], made[1], made[2]);
  for (int i = 0; i < 3; ++i) Py_XDECREF(made[i]);
  return result;
}

static PyObject* norm_backward(const signature* signature, int kind, PyObject* const* args, Py_ssize_t count,
                               PyObject* keywords) {
  PyObject *values[MOST_ARGUMENTS], *result = NULL;
  const array *weight = NULL, *bias = NULL;
  call call;
  if (!bind(signature, args, count, keywords, values)) return NULL;
  begin(&call, signature->function, NORM, FAL_BACKWARD);
  call.problem.norm.kind = kind;
  if (take_inputs_of_gradients(&call, values, &weight, &bias) && read_options_of_gradients(&call, values))
    result = run_gradients(&call, weight, call.operands.norm.weight.dtype, bias, bias != NULL ? bias->dtype : FAL_F32);
  end(&call);
  return result;
}

FUNCTION(py_layer_norm_backward) {
  (void)module;
  return norm_backward(&layer_signature, FAL_LAYER_NORM, args, count, names);
}

FUNCTION(py_rms_norm_backward) {
  (void)module;
  return norm_backward(&rms_signature, FAL_RMS_NORM, args, count, names);
}
