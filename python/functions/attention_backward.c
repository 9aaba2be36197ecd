/* functions/attention_backward.c: attention_backward(...) and varlen_backward(...): the steps of the backward pass, in
 * order. */
#include "fal.h"

/* Both functions take the same arguments in the same order, but for the lengths of packed sequences. */
enum { GRAD_O, Q, K, V, O, LSE, DENSE_OPTIONS };
enum { CU_Q = LSE + 1, CU_K, MAX_Q, MAX_K, PACKED_OPTIONS };
enum { GRADS = GRADIENTS, ACCUMULATE, F32 }; /* after the options and GRADIENT_... */
#define AFTER_OPTIONS "grads", "accumulate", "f32", NULL
#define OPTION(name) #name,
#define GRADIENT(name) #name,
static const char* const names[] = {"grad_o",     "q", "k", "v", "o", "lse",
#include "../call/options.def"
                                    AFTER_OPTIONS};
#define OPTION(name) #name,
#define GRADIENT(name) #name,
static const char* const packed_names[] = {"grad_o",       "q",     "k",     "v", "o", "lse", "cu_seqlens_q",
                                           "cu_seqlens_k", "max_q", "max_k",
#include "../call/options.def"
                                           AFTER_OPTIONS};
static signature dense_signature = {"attention_backward", names, 6, 6, 0, {NULL}};
static signature packed_signature = {"varlen_backward", packed_names, 7, 8, 0, {NULL}};

int ready_attention_backward(void) { return ready_signature(&dense_signature) && ready_signature(&packed_signature); }

static int read_flags(call* call, PyObject* const* more) {
  fal_attention* problem = &call->problem.attention;
  uint8_t accumulate;
  uint8_t f32;
#define FLAG_GRADIENT(name) \
  if (!to_flag(#name, more[GRADIENT_##name], &problem->name)) return 0;
#include "../call/options.def"
  if (!to_flag("accumulate", more[ACCUMULATE], &accumulate) || !to_flag("f32", more[F32], &f32)) return 0;
  problem->grads = accumulate ? FAL_GRADS_ACCUMULATE : f32 ? FAL_GRADS_F32 : FAL_GRADS_ROUNDED;
  if (!accumulate || more[GRADS] != NULL) return 1;
  raise_text(FAL_INVALID, call, "accumulate=True needs grads, the arrays of float32 that are added to");
  return 0;
}

/* The gradients of bias and slopes are written where the caller says, for their shape says what is summed. */
static int take_backward_arrays(call* call, const backward_arrays* arrays) {
  fal_attention* problem = &call->problem.attention;
  fal_operands* operands = &call->operands.attention;
  if (!take_bshd(call, "o", arrays->o, 0, &operands->o) || !take_lse(call, "lse", arrays->lse, 0, &operands->lse) ||
      !take_bshd(call, "grad_o", arrays->grad_o, 0, &operands->grad_o))
    return 0;
#define TENSOR_GRADIENT(name) \
  if (!take_operand(call, #name, arrays->gradients[GRADIENT_##name], &problem->name, &operands->name)) return 0;
#include "../call/options.def"
  return 1;
}

/* One of grad_q, grad_k, grad_v as it is in the tuple `grads`: null stands for None; without a tuple each is made. */
static PyObject* given_grad(PyObject* grads, Py_ssize_t index) {
  PyObject* given = grads != NULL ? PyTuple_GetItem(grads, index) : NULL;
  return given == Py_None ? NULL : given;
}

/* Which gradients a Plan computes is its own: a run may neither bring more nor leave one out. */
static int has_planned_grads(const call* call, int planned, PyObject* grads) {
  static const char* const names[] = {"grad_q", "grad_k", "grad_v"};
  for (int i = 0; i < 3 && grads != NULL; ++i) {
    const int is_frozen = (planned & (i == 0 ? 1 : 2)) != 0;
    const int is_missing = call->problem.attention.frozen & (i == 0 ? 1 : 2);
    if (is_frozen && given_grad(grads, i) != NULL)
      raise_text(FAL_INVALID, call, "%s is given, but the plan was made with frozen = %d", names[i], planned);
    else if (!is_frozen && is_missing)
      raise_text(FAL_INVALID, call, "%s is None, but the plan was made with frozen = %d: it is computed", names[i],
                 planned);
    else
      continue;
    return 0;
  }
  return 1;
}

/* A new tuple (grad_q, grad_k, grad_v), with None for what is frozen. grad_k and grad_v come together: where only one
 * of them is given the other one is made. */
static PyObject* take_grads(call* call, PyObject* grads) {
  fal_attention* problem = &call->problem.attention;
  fal_operands* operands = &call->operands.attention;
  static const char* const names[] = {"grad_q", "grad_k", "grad_v"};
  const fal_tensor* like[] = {&operands->q, &operands->k, &operands->v};
  fal_tensor* out[] = {&operands->grad_q, &operands->grad_k, &operands->grad_v};
  const int has_gaps = has_lengths(problem);
  const int planned = problem->frozen; /* 0 but for a Plan */
  const int is_f32 = problem->grads != FAL_GRADS_ROUNDED;
  PyObject* result;
  if (grads != NULL && (!PyTuple_Check(grads) || PyTuple_Size(grads) != 3)) {
    PyErr_SetString(PyExc_TypeError, "grads must be a tuple (grad_q, grad_k, grad_v), where None is not computed");
    return NULL;
  }
  if (grads != NULL && given_grad(grads, 0) == NULL) problem->frozen |= 1;
  if (grads != NULL && given_grad(grads, 1) == NULL && given_grad(grads, 2) == NULL) problem->frozen |= 2;
  if (call->fixed != NULL && !has_planned_grads(call, planned, grads)) return NULL;
  /* Where the engine makes all of them it may clear the unused rows; beside a given one that would be cleared too. */
  if (grads == NULL && has_gaps && call->fixed == NULL) problem->zero_unused = 1;
  result = PyTuple_New(3);
  for (int i = 0; i < 3 && result != NULL; ++i) {
    PyObject* given = given_grad(grads, i);
    PyObject* grad;
    if (problem->frozen & (i == 0 ? 1 : 2)) {
      grad = Py_NewRef(Py_None);
    } else {
      const int adds = problem->grads == FAL_GRADS_ACCUMULATE;
      grad = output_bshd(call, names[i], given, like[i]->shape, is_f32 ? FAL_F32 : FAL_AS_Q,
                         adds || (has_gaps && !problem->zero_unused) ? ZEROES : AS_IT_COMES, out[i]);
    }
    if (grad == NULL || PyTuple_SetItem(result, i, grad) != 0) Py_CLEAR(result);
  }
  return result;
}

PyObject* run_backward(call* call, const backward_arrays* arrays) {
  PyObject* grads;
  if (!take_backward_arrays(call, arrays)) return NULL;
  grads = take_grads(call, arrays->grads);
  if (grads != NULL && !run(call)) Py_CLEAR(grads);
  return grads;
}

/* The steps of both functions. */
static PyObject* backward(const signature* signature, int packed, PyObject* const* args, Py_ssize_t count,
                          PyObject* names) {
  PyObject *values[MOST_ARGUMENTS], *result = NULL;
  PyObject** const options = values + (packed ? PACKED_OPTIONS : DENSE_OPTIONS);
  PyObject** const more = options + OPTIONS;
  call call;
  if (!bind(signature, args, count, names, values)) return NULL;
  begin(&call, signature->function, ATTENTION, FAL_BACKWARD);
  if (take_inputs(&call, values + Q, packed ? values + CU_Q : NULL, options, NULL) && read_flags(&call, more)) {
    const backward_arrays arrays = {values[GRAD_O], values[O], values[LSE], more[GRADS], more};
    result = run_backward(&call, &arrays);
  }
  end(&call);
  return result;
}

FUNCTION(py_attention_backward) {
  (void)module;
  return backward(&dense_signature, 0, args, count, names);
}

FUNCTION(py_varlen_backward) {
  (void)module;
  return backward(&packed_signature, 1, args, count, names);
}
