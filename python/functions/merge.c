/* functions/merge.c: merge(...), two partial results over disjoint keys as one, and validate_lengths(...). Neither has
 * a plan. */
#include "fal.h"

enum { O_A, LSE_A, O_B, LSE_B, MERGE_LAYOUT, OUT, LSE };
static const char* const merge_names[] = {"o_a", "lse_a", "o_b", "lse_b", "layout", "out", "lse", NULL};
static signature merge_signature = {"merge", merge_names, 4, 4, 0, {NULL}};

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

static PyObject* merge(call* call, PyObject* const* values) {
  fal_operands* x = &call->operands.attention;
  fal_tensor o_a, lse_a, o_b, lse_b;
  fal_status status = FAL_OK;
  PyObject *o = NULL, *lse = NULL, *result = NULL;
  if (!take_bshd(call, "o_a", values[O_A], 0, &o_a) || !take_lse(call, "lse_a", values[LSE_A], 0, &lse_a) ||
      !take_bshd(call, "o_b", values[O_B], 0, &o_b) || !take_lse(call, "lse_b", values[LSE_B], 0, &lse_b))
    return NULL;
  x->q = o_a; /* what says the shape of an lse that is made */
  o = output_bshd(call, "out", values[OUT], o_a.shape, FAL_AS_Q, AS_IT_COMES, &x->o);
  if (o != NULL) lse = output_lse(call, "lse", values[LSE], AS_IT_COMES, &x->lse);
  if (lse != NULL) {
    Py_BEGIN_ALLOW_THREADS status = fal_merge(&o_a, &lse_a, &o_b, &lse_b, &x->o, &x->lse);
    Py_END_ALLOW_THREADS if (status == FAL_OK) result = PyTuple_Pack(2, o, lse);
    else raise_why(status, call);
  }
  Py_XDECREF(lse);
  Py_XDECREF(o);
  return result;
}

FUNCTION(py_merge) {
  PyObject *values[MOST_ARGUMENTS], *result = NULL;
  call call;
  (void)module;
  if (!bind(&merge_signature, args, count, names, values)) return NULL;
  begin(&call, "merge", ATTENTION, FAL_FORWARD);
  if (read_layout(&call, values[MERGE_LAYOUT])) result = merge(&call, values);
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
  if (!read_layout(call, values[LENGTHS_LAYOUT]) || !says_cache(call, values + FIRST_FORWARD) ||
      !take_qkv(call, values[Q], values[K], values[V]))
    return 0;
  if (call->packed && !take_packed(call, values[CU_Q], values[CU_K], values[MAX_Q], values[MAX_K])) return 0;
  if (!read_forwards(call, values + FIRST_FORWARD) || !read_option_arrays(call, options)) return 0;
  for (int i = 0; i < 3; ++i) shape[i] = x->q.shape[i];
  shape[3] = x->v.shape[3];
  o = output_bshd(call, "out", NULL, shape, FAL_AS_Q, AS_IT_COMES, &x->o);
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
