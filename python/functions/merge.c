/* functions/merge.c: merge(...), partial results over disjoint keys as one, and validate_lengths(...). Neither has a
 * plan. */
#include "fal.h"

enum { O_A, LSE_A, O_B, LSE_B, MERGE_LAYOUT, MERGE_STREAM, OUT, LSE };
static const char* const merge_names[] = {"o_a", "lse_a", "o_b", "lse_b", "layout", "stream", "out", "lse", NULL};
static signature merge_signature = {"merge", merge_names, 2, 4, 0, {NULL}};

#define LENGTHS_OPTION(name) LENGTHS_##name,
enum {
  Q,
  K,
  V,
  CU_Q,
  CU_K,
  MAX_Q,
  MAX_K,
#include "../call/options.def"
  FIRST_FORWARD,
  LENGTHS_LAYOUT = FIRST_FORWARD + FORWARDS
};
#define LENGTHS_OPTION(name) #name,
#define FORWARD(name) #name,
static const char* const lengths_names[] = {"q",      "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_q", "max_k",
#include "../call/options.def"
                                            "layout", NULL};
static signature lengths_signature = {"validate_lengths", lengths_names, 3, 5, 0, {NULL}};

int ready_merge(void) { return ready_signature(&merge_signature) && ready_signature(&lengths_signature); }

/* The parts of a call, at most as many as the engine takes. */
typedef struct parts {
  Py_ssize_t count;
  fal_tensor o[MOST_PARTS], lse[MOST_PARTS];
  char names[2][MOST_PARTS][16]; /* "o_parts[31]", as the engine says */
} parts;

static int take_two(call* call, PyObject* const* values, parts* out) {
  if (values[O_B] == NULL || values[LSE_B] == NULL) {
    PyErr_SetString(PyExc_TypeError, "merge() needs o_b and lse_b, or lists of parts as o_a and lse_a");
    return 0;
  }
  out->count = 2;
  return take_bshd(call, "o_a", values[O_A], 0, &out->o[0]) &&
         take_lse(call, "lse_a", values[LSE_A], 0, &out->lse[0]) &&
         take_bshd(call, "o_b", values[O_B], 0, &out->o[1]) && take_lse(call, "lse_b", values[LSE_B], 0, &out->lse[1]);
}

/* `os` and `lses` are tuples. */
static int take_many(call* call, PyObject* os, PyObject* lses, parts* out) {
  out->count = PyTuple_Size(os);
  if (out->count < 1 || out->count > MOST_PARTS || PyTuple_Size(lses) != out->count) {
    raise_text(FAL_INVALID, NULL, "o_a has %zd parts and lse_a %zd: merge takes as many of each, 1 to %d", out->count,
               PyTuple_Size(lses), MOST_PARTS);
    return 0;
  }
  for (int i = 0; i < (int)out->count; ++i) {
    PyOS_snprintf(out->names[0][i], sizeof out->names[0][i], "o_parts[%d]", i);
    PyOS_snprintf(out->names[1][i], sizeof out->names[1][i], "lse_parts[%d]", i);
    if (!take_bshd(call, out->names[0][i], PyTuple_GetItem(os, i), 0, &out->o[i]) ||
        !take_lse(call, out->names[1][i], PyTuple_GetItem(lses, i), 0, &out->lse[i]))
      return 0;
  }
  return 1;
}

/* On the host two parts keep their names, which the other form does not know. It alone takes a stream. */
static fal_status merge_parts(const call* call, const parts* p, int are_named) {
  const fal_operands* x = &call->operands.attention;
  if (are_named && !call->leader->on_gpu) return fal_merge(&p->o[0], &p->lse[0], &p->o[1], &p->lse[1], &x->o, &x->lse);
  return fal_merge_parts(p->o, p->lse, (size_t)p->count, &x->o, &x->lse, call->stream);
}

static PyObject* merge(call* call, PyObject* const* values, const parts* parts) {
  fal_operands* x = &call->operands.attention;
  fal_status status;
  PyObject *o, *lse, *result = NULL;
  if (!read_stream(call, values[MERGE_STREAM]) || !enter_device(call)) return NULL;
  x->q = parts->o[0]; /* what says the shape of an lse that is made */
  o = output_bshd(call, "out", values[OUT], x->q.shape, FAL_AS_Q, AS_IT_COMES, &x->o);
  lse = o != NULL ? output_lse(call, "lse", values[LSE], AS_IT_COMES, &x->lse) : NULL;
  if (lse != NULL) {
    Py_BEGIN_ALLOW_THREADS status = merge_parts(call, parts, !is_list(values[O_A]));
    Py_END_ALLOW_THREADS if (status == FAL_OK) result = PyTuple_Pack(2, o, lse);
    else raise_why(status, call);
  }
  Py_XDECREF(lse);
  Py_XDECREF(o);
  return result;
}

static PyObject* merge_lists(call* call, PyObject* const* values, parts* parts) {
  PyObject *os, *lses, *result = NULL;
  if (!is_list(values[LSE_A]) || values[O_B] != NULL || values[LSE_B] != NULL) {
    PyErr_SetString(PyExc_TypeError,
                    "merge(): where o_a is a list of parts, so is lse_a, and o_b and lse_b are not given");
    return NULL;
  }
  os = PySequence_Tuple(values[O_A]); /* a list may change while others run */
  lses = PySequence_Tuple(values[LSE_A]);
  if (os != NULL && lses != NULL && take_many(call, os, lses, parts)) result = merge(call, values, parts);
  Py_XDECREF(lses);
  Py_XDECREF(os);
  return result;
}

FUNCTION(py_merge) {
  PyObject *values[MOST_ARGUMENTS], *result = NULL;
  parts parts;
  call call;
  (void)module;
  if (!bind(&merge_signature, args, count, names, values)) return NULL;
  begin(&call, "merge", ATTENTION, FAL_FORWARD);
  if (read_layout(&call, values[MERGE_LAYOUT]) && name_stream(&call, values[MERGE_STREAM])) {
    if (is_list(values[O_A]))
      result = merge_lists(&call, values, &parts);
    else if (take_two(&call, values, &parts))
      result = merge(&call, values, &parts);
  }
  end(&call);
  return result;
}

/* The engine checks all operands of a pass, so there is an o, which nothing is written to. */
static int validate(call* call, PyObject* const* values) {
  PyObject* options[OPTIONS] = {NULL};
  fal_attention* problem = &call->problem.attention;
  fal_operands* x = &call->operands.attention;
  fal_status status;
  PyObject* o;
  int64_t shape[4];
#define LENGTHS_OPTION(name) options[OPTION_##name] = values[LENGTHS_##name];
#include "../call/options.def"
  call->packed = values[CU_Q] != NULL;
  if (!read_layout(call, values[LENGTHS_LAYOUT]) || !take_qkv(call, values + Q, values + FIRST_FORWARD)) return 0;
  if (call->packed && !take_packed(call, values[CU_Q], values[CU_K], values[MAX_Q], values[MAX_K])) return 0;
  if (!read_forwards(call, values + FIRST_FORWARD) || !read_option_arrays(call, options)) return 0;
  for (int i = 0; i < 3; ++i) shape[i] = x->q.shape[i];
  shape[3] = x->v.shape[3];
  o = output_bshd(call, "out", NULL, shape, dtype_of_o(x), AS_IT_COMES, &x->o);
  if (o == NULL) return 0;
  problem->band.left = problem->band.right = FAL_UNBOUNDED;
  status = fal_validate_lengths(problem, x);
  Py_DECREF(o);
  if (status != FAL_OK) raise_why(status, call);
  return status == FAL_OK;
}

FUNCTION(py_validate_lengths) {
  PyObject* values[MOST_ARGUMENTS];
  call call;
  int ok;
  (void)module;
  if (!bind(&lengths_signature, args, count, names, values)) return NULL;
  begin(&call, "validate_lengths", ATTENTION, FAL_FORWARD);
  ok = validate(&call, values);
  end(&call);
  return ok ? Py_NewRef(Py_None) : NULL;
}
