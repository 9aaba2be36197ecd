/* functions/linear.c: linear_attention(...) and linear_attention_backward(...): the order of the steps of causal linear
 * attention. */
#include <string.h>

#include "fal.h"

/* The options of both passes, in the order in which they stand in the signatures. */
#define LINEAR_OPTION_NAMES                                                                                         \
  "feature_map", "decay", "normalise", "eps", "scale", "reverse", "initial_state", "cu_seqlens", "max_s", "layout", \
      "backend", "threads", "segments", "stream"
enum {
  L_FEATURE_MAP,
  L_DECAY,
  L_NORMALISE,
  L_EPS,
  L_SCALE,
  L_REVERSE,
  L_INITIAL_STATE,
  L_CU_SEQLENS,
  L_MAX_S,
  L_LAYOUT,
  L_BACKEND,
  L_THREADS,
  L_SEGMENTS,
  L_STREAM,
  LINEAR_OPTIONS
};

enum { Q, K, V, FORWARD_OPTIONS, RETURN_STATE = FORWARD_OPTIONS + LINEAR_OPTIONS, OUT, STATE_OUT };
static const char* const names[] = {"q", "k", "v", LINEAR_OPTION_NAMES, "return_state", "out", "state_out", NULL};
static signature forward_signature = {"linear_attention", names, 3, 3, 0, {NULL}};

enum { GRAD_O, BACKWARD_Q, BACKWARD_K, BACKWARD_V, BACKWARD_OPTIONS, GRAD_STATE = BACKWARD_OPTIONS + LINEAR_OPTIONS };
static const char* const backward_names[] = {"grad_o", "q", "k", "v", LINEAR_OPTION_NAMES, "grad_state", NULL};
static signature backward_signature = {"linear_attention_backward", backward_names, 4, 4, 0, {NULL}};

int ready_linear(void) { return ready_signature(&forward_signature) && ready_signature(&backward_signature); }

static int take_qkv_linear(call* call, PyObject* const* qkv) {
  fal_linear_attention* problem = &call->problem.linear;
  fal_linear_operands* operands = &call->operands.linear;
  if (!take_bshd(call, "q", qkv[0], 0, &operands->q) || !take_bshd(call, "k", qkv[1], 0, &operands->k) ||
      !take_bshd(call, "v", qkv[2], 0, &operands->v))
    return 0;
  problem->dtype = operands->q.dtype;
  problem->h_qk = operands->q.shape[2];
  problem->h_v = operands->v.shape[2];
  problem->d_qk = operands->q.shape[3];
  problem->d_v = operands->v.shape[3];
  problem->b = operands->q.shape[0];
  problem->s = operands->q.shape[1];
  return 1;
}

static int read_numbers(call* call, PyObject* const* options) {
  static const char* const maps[] = {"identity", "elu_plus_one", NULL};
  fal_linear_attention* problem = &call->problem.linear;
  int map = 0;
  int64_t segments = 0;
  problem->eps = 1e-6F;
  if (options[L_FEATURE_MAP] != NULL && !to_word("feature_map", options[L_FEATURE_MAP], maps, &map)) return 0;
  problem->feature_map = map;
  if (!to_flag("normalise", options[L_NORMALISE], &problem->normalise) ||
      !to_flag("reverse", options[L_REVERSE], &problem->reverse))
    return 0;
  if (options[L_EPS] != NULL && !to_float("eps", options[L_EPS], &problem->eps)) return 0;
  if (options[L_SCALE] != NULL) {
    if (!to_float("scale", options[L_SCALE], &problem->scale)) return 0;
    if (problem->scale == 0) {
      raise_text(FAL_INVALID, call, "scale = 0 would make o zero: None asks for 1/sqrt(d_qk)");
      return 0;
    }
  }
  if (!read_target(call, options[L_BACKEND], options[L_THREADS])) return 0;
  if (options[L_SEGMENTS] != NULL && !to_int64("segments", options[L_SEGMENTS], &segments)) return 0;
  if (segments < 0 || segments > INT32_MAX) {
    raise_text(FAL_INVALID, call, "segments = %lld: it must be 0 (the plan decides) or more", (long long)segments);
    return 0;
  }
  call->target.segments = (int32_t)segments;
  return 1;
}

static int take_cu_seqlens(call* call, PyObject* const* options) {
  fal_linear_attention* problem = &call->problem.linear;
  fal_linear_operands* operands = &call->operands.linear;
  int64_t count = 0;
  if (!call->packed && options[L_MAX_S] != NULL) {
    raise_text(FAL_INVALID, call, "max_s is given without cu_seqlens, the lengths of packed sequences");
    return 0;
  }
  if (!call->packed) return 1;
  if (!take_lengths(call, "cu_seqlens", options[L_CU_SEQLENS], &operands->cu_seqlens, &count)) return 0;
  if (count < 1) {
    raise_text(FAL_INVALID, call, "cu_seqlens is empty: it has one number more than there are sequences");
    return 0;
  }
  problem->packed = 1;
  problem->b = count - 1;
  return read_longest(call, "max_s", options[L_MAX_S], problem->b, operands->cu_seqlens, operands->q.shape[1],
                      &problem->s);
}

/* The logarithms g of the decay: (h_v), one for each head, or one for each token and head, with the axes of v. */
static int view_decay(const call* call, const array* from, int* decay, fal_tensor* out) {
  memset(out, 0, sizeof *out);
  if (from->rank == 1) {
    *decay = FAL_DECAY_HEAD;
    out->data = from->data;
    out->dtype = from->dtype;
    for (int i = 0; i < 4; ++i) out->shape[i] = out->stride[i] = 1;
    out->shape[2] = from->shape[0];
    out->stride[2] = from->stride[0];
    return 1;
  }
  *decay = FAL_DECAY_TOKEN;
  if (from->rank != (call->packed ? 2 : 3)) {
    const char* axes = call->packed ? (call->heads_first ? "(h_v, total)" : "(total, h_v)")
                                    : (call->heads_first ? "(b, h_v, s)" : "(b, s, h_v)");
    raise_text(FAL_INVALID, NULL, "%s has %d axes: it must have 1, (h_v), or %d, %s", from->name, from->rank,
               call->packed ? 2 : 3, axes);
    return 0;
  }
  /* The axes of an lse are (b, h, s, 1); those of the decay are (b, s, h, 1). */
  if (!view_lse(call, from, out)) return 0;
  if (call->heads_first) {
    const int64_t h = out->shape[1];
    const int64_t stride = out->stride[1];
    out->shape[1] = out->shape[2];
    out->stride[1] = out->stride[2];
    out->shape[2] = h;
    out->stride[2] = stride;
  }
  return 1;
}

static int take_decay(call* call, PyObject* object, const array** taken) {
  const array* a = *taken = take(call, "decay", object, 0);
  int decay = 0;
  if (a == NULL || !has_engine_type(a, "float32") || !view_decay(call, a, &decay, &call->operands.linear.decay))
    return 0;
  call->problem.linear.decay = decay;
  return 1;
}

/* One part of a state: S (b, h_v, d_qk, d_v), or z (b, h_v, d_qk) as (b, h_v, d_qk, 1). */
static int view_state(const array* from, int rank, fal_tensor* out) {
  if (from->rank != rank) {
    raise_text(FAL_INVALID, NULL, "%s has %d axes: it must have %d, %s", from->name, from->rank, rank,
               rank == 4 ? "(b, h_v, d_qk, d_v)" : "(b, h_v, d_qk)");
    return 0;
  }
  if (from->dtype != FAL_F32) {
    raise_text(FAL_INVALID, NULL, "%s has the type %s: states are float32", from->name, dtype_name(from));
    return 0;
  }
  memset(out, 0, sizeof *out);
  out->data = from->data;
  out->dtype = from->dtype;
  out->shape[3] = out->stride[3] = 1;
  for (int i = 0; i < rank; ++i) {
    out->shape[i] = from->shape[i];
    out->stride[i] = from->stride[i];
  }
  return 1;
}

/* A state as the caller has it: an array; with normalise a pair (S, z). */
static int take_state(call* call, const char* name, const char* z_name, PyObject* object, int writes, fal_tensor* s,
                      fal_tensor* z) {
  const int is_pair = call->problem.linear.normalise;
  const array* a;
  if (is_pair && (!PyTuple_Check(object) || PyTuple_Size(object) != 2)) {
    PyErr_Format(PyExc_TypeError, "%s must be a pair (S, z) with normalise=True", name);
    return 0;
  }
  a = take(call, name, is_pair ? PyTuple_GetItem(object, 0) : object, writes);
  if (a == NULL || !view_state(a, 4, s)) return 0;
  if (!is_pair) return 1;
  a = take(call, z_name, PyTuple_GetItem(object, 1), writes);
  return a != NULL && view_state(a, 3, z);
}

/* A new state, in the same form; it comes back as a new reference. */
static PyObject* make_state(call* call, const char* name, const char* z_name, fal_tensor* s, fal_tensor* z) {
  const fal_linear_attention* problem = &call->problem.linear;
  const int64_t shape[4] = {problem->b, problem->h_v, problem->d_qk, problem->d_v};
  PyObject *first, *second, *pair;
  array* made;
  first = make_array(call, name, "state_out", 4, shape, FAL_F32, AS_IT_COMES, &made);
  if (first == NULL) return NULL;
  if (!view_state(made, 4, s)) Py_CLEAR(first);
  if (first == NULL || !problem->normalise) return first;
  second = make_array(call, z_name, "state_out", 3, shape, FAL_F32, AS_IT_COMES, &made);
  pair = second != NULL && view_state(made, 3, z) ? PyTuple_Pack(2, first, second) : NULL;
  Py_DECREF(first);
  Py_XDECREF(second);
  return pair;
}

/* All inputs of both passes. *decay is the array of that name, or null. */
static int take_linear_inputs(call* call, PyObject* const* qkv, PyObject* const* options, const array** decay) {
  fal_linear_operands* operands = &call->operands.linear;
  *decay = NULL;
  call->packed = options[L_CU_SEQLENS] != NULL;
  if (!read_layout(call, options[L_LAYOUT]) || !name_stream(call, options[L_STREAM]) || !take_qkv_linear(call, qkv) ||
      !read_numbers(call, options) || !take_cu_seqlens(call, options))
    return 0;
  if (options[L_DECAY] != NULL && !take_decay(call, options[L_DECAY], decay)) return 0;
  if (options[L_INITIAL_STATE] != NULL) {
    call->problem.linear.initial_state = 1;
    if (!take_state(call, "initial_state", "initial_z", options[L_INITIAL_STATE], 0, &operands->initial_state,
                    &operands->initial_z))
      return 0;
  }
  return read_stream(call, options[L_STREAM]);
}

static PyObject* forward(call* call, PyObject* return_state, PyObject* out, PyObject* state_out) {
  fal_linear_attention* problem = &call->problem.linear;
  fal_linear_operands* operands = &call->operands.linear;
  PyObject *o, *state = NULL, *result = NULL;
  uint8_t wants_state;
  if (!to_flag("return_state", return_state, &wants_state)) return NULL;
  problem->final_state = wants_state || state_out != NULL;
  o = output_bshd(call, "out", out, operands->v.shape, FAL_AS_Q, AS_IT_COMES, &operands->o);
  if (o == NULL) return NULL;
  if (state_out != NULL) {
    if (take_state(call, "state_out", "z_out", state_out, 1, &operands->final_state, &operands->final_z))
      state = Py_NewRef(state_out);
  } else if (wants_state) {
    state = make_state(call, "state_out", "z_out", &operands->final_state, &operands->final_z);
  }
  if ((!problem->final_state || state != NULL) && run(call))
    result = wants_state ? PyTuple_Pack(2, o, state) : Py_NewRef(o);
  Py_XDECREF(state);
  Py_DECREF(o);
  return result;
}

/* (grad_q, grad_k, grad_v, grad_decay, grad_initial_state); the last two are None without what they are of. */
static PyObject* backward(call* call, const array* decay, int has_state) {
  fal_linear_operands* operands = &call->operands.linear;
  static const char* const grad_names[] = {"grad_q", "grad_k", "grad_v"};
  const fal_tensor* like[] = {&operands->q, &operands->k, &operands->v};
  fal_tensor* out[] = {&operands->grad_q, &operands->grad_k, &operands->grad_v};
  PyObject *result = PyTuple_New(5), *grad;
  for (int i = 0; i < 5 && result != NULL; ++i) {
    if (i < 3) {
      grad = output_bshd(call, grad_names[i], NULL, like[i]->shape, FAL_AS_Q, AS_IT_COMES, out[i]);
    } else if (i == 3 && decay != NULL) {
      array* made;
      int kind;
      grad = make_array(call, "grad_decay", NULL, decay->rank, decay->shape, FAL_F32, AS_IT_COMES, &made);
      if (grad != NULL && !view_decay(call, made, &kind, &operands->grad_decay)) Py_CLEAR(grad);
    } else if (i == 4 && has_state) {
      grad = make_state(call, "grad_initial_state", "grad_initial_z", &operands->grad_initial_state,
                        &operands->grad_initial_z);
    } else {
      grad = Py_NewRef(Py_None);
    }
    if (grad == NULL || PyTuple_SetItem(result, i, grad) != 0) Py_CLEAR(result);
  }
  if (result != NULL && !run(call)) Py_CLEAR(result);
  return result;
}

FUNCTION(py_linear_attention) {
  PyObject *values[MOST_ARGUMENTS], *result = NULL;
  const array* decay;
  call call;
  (void)module;
  if (!bind(&forward_signature, args, count, names, values)) return NULL;
  begin(&call, "linear_attention", LINEAR, FAL_FORWARD);
  if (take_linear_inputs(&call, values, values + FORWARD_OPTIONS, &decay))
    result = forward(&call, values[RETURN_STATE], values[OUT], values[STATE_OUT]);
  end(&call);
  return result;
}

FUNCTION(py_linear_attention_backward) {
  PyObject *values[MOST_ARGUMENTS], *result = NULL;
  PyObject** options = values + BACKWARD_OPTIONS;
  const array* decay;
  call call;
  int ok;
  (void)module;
  if (!bind(&backward_signature, args, count, names, values)) return NULL;
  begin(&call, "linear_attention_backward", LINEAR, FAL_BACKWARD);
  ok = take_linear_inputs(&call, values + BACKWARD_Q, options, &decay) &&
       take_bshd(&call, "grad_o", values[GRAD_O], 0, &call.operands.linear.grad_o);
  if (ok && values[GRAD_STATE] != NULL) {
    call.problem.linear.final_state = 1;
    ok = take_state(&call, "grad_state", "grad_z", values[GRAD_STATE], 0, &call.operands.linear.grad_final_state,
                    &call.operands.linear.grad_final_z);
  }
  if (ok) result = backward(&call, decay, options[L_INITIAL_STATE] != NULL);
  end(&call);
  return result;
}
