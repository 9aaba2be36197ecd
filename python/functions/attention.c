/* functions/attention.c: attention(...) and varlen(...): the order of the steps of the forward pass. */
#include "fal.h"

/* Both functions take the same arguments in the same order, but for the lengths of packed sequences. */
enum { Q, K, V, DENSE_OPTIONS };
enum { CU_Q = V + 1, CU_K, MAX_Q, MAX_K, PACKED_OPTIONS };
enum { RETURN_LSE, OUT, LSE }; /* after the options and FORWARD_... */
#define AFTER_OPTIONS "return_lse", "out", "lse", NULL
#define OPTION(name) #name,
#define FORWARD(name) #name,
static const char* const names[] = {"q", "k", "v",
#include "../call/options.def"
                                    AFTER_OPTIONS};
#define OPTION(name) #name,
#define FORWARD(name) #name,
static const char* const packed_names[] = {"q",          "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_q", "max_k",
#include "../call/options.def"
                                           AFTER_OPTIONS};
static signature dense_signature = {"attention", names, 3, 3, 0, {NULL}};
static signature packed_signature = {"varlen", packed_names, 4, 5, 0, {NULL}};

int ready_attention(void) { return ready_signature(&dense_signature) && ready_signature(&packed_signature); }

/* New keys are written into k and v. */
static int take_keys(call* call, const char* name, PyObject* object, fal_tensor* out) {
  const array* a = take(call, name, object, call->problem.attention.append);
  return a != NULL && view_keys(call, a, out);
}

static int take_queries(call* call, PyObject* object, fal_tensor* out) {
  const array* a = take(call, "q", object, 0);
  if (a == NULL || !view_queries(call, a, out)) return 0;
  call->problem.attention.dtype = out->dtype;
  return 1;
}

int take_qkv(call* call, PyObject* const* qkv, PyObject* const* forwards) {
  fal_attention* problem = &call->problem.attention;
  fal_operands* operands = &call->operands.attention;
  if (!take_queries(call, qkv[0], &operands->q) || !says_cache(call, forwards) ||
      !take_keys(call, "k", qkv[1], &operands->k) || !take_keys(call, "v", qkv[2], &operands->v))
    return 0;
  if (is_8bit(problem->dtype) || is_8bit(operands->k.dtype)) problem->dtype_k = operands->k.dtype;
  if (is_8bit(problem->dtype) || is_8bit(operands->v.dtype)) problem->dtype_v = operands->v.dtype;
  problem->h_q = operands->q.shape[2];
  problem->h_k = operands->k.shape[2];
  problem->d_qk = operands->q.shape[3];
  problem->d_v = operands->v.shape[3];
  problem->b = operands->q.shape[0];
  problem->s_q = operands->q.shape[1];
  problem->s_k = problem->cache ? 0 : operands->k.shape[1]; /* read_forwards */
  return 1;
}

/* Beside a cache q alone is packed. */
static int take_packed_queries(call* call, PyObject* cu_k, PyObject* max_q, PyObject* max_k, int64_t count) {
  fal_attention* problem = &call->problem.attention;
  const fal_operands* operands = &call->operands.attention;
  if (cu_k != NULL || count < 1) {
    raise_text(FAL_INVALID, call,
               cu_k != NULL ? "cu_seqlens_k is given, but k and v are a cache, whose lengths used_k says"
                            : "cu_seqlens_q has 0 numbers: it has one more than there are sequences");
    return 0;
  }
  problem->packed = 1;
  problem->b = count - 1;
  return read_longest(call, "max_q", max_q, problem->b, operands->cu_seqlens_q, operands->q.shape[1], &problem->s_q) &&
         (max_k == NULL || to_int64("max_k", max_k, &problem->s_k));
}

int take_packed(call* call, PyObject* cu_q, PyObject* cu_k, PyObject* max_q, PyObject* max_k) {
  fal_attention* problem = &call->problem.attention;
  fal_operands* operands = &call->operands.attention;
  int64_t count_q = 0;
  int64_t count_k = 0;
  if (!take_lengths(call, "cu_seqlens_q", cu_q, &operands->cu_seqlens_q, &count_q)) return 0;
  if (problem->cache) return take_packed_queries(call, cu_k, max_q, max_k, count_q);
  if (cu_k == NULL) cu_k = cu_q;
  if (!take_lengths(call, "cu_seqlens_k", cu_k, &operands->cu_seqlens_k, &count_k)) return 0;
  if (count_q < 1 || count_q != count_k) {
    raise_text(FAL_INVALID, call,
               "cu_seqlens_q has %lld numbers and cu_seqlens_k %lld: both have one more than there are sequences",
               (long long)count_q, (long long)count_k);
    return 0;
  }
  problem->packed = 1;
  problem->b = count_q - 1;
  if (max_k == NULL && cu_k == cu_q) max_k = max_q;
  return read_longest(call, "max_q", max_q, problem->b, operands->cu_seqlens_q, operands->q.shape[1], &problem->s_q) &&
         read_longest(call, "max_k", max_k, problem->b, operands->cu_seqlens_k, operands->k.shape[1], &problem->s_k);
}

/* Do lengths leave as many rows of q as of k? What counts of both is the same where one array says it of both; any
 * other list may differ. */
static int have_same_lengths(PyObject* const* options) {
#define LENGTHS_OPTION(name) \
  if (OPTION_##name != OPTION_used_q && OPTION_##name != OPTION_used_k && options[OPTION_##name] != NULL) return 0;
#include "../call/options.def"
  return options[OPTION_used_q] == options[OPTION_used_k];
}

/* What both passes read of their options, once q, k, v and the lengths are there. */
static int read_options(call* call, PyObject* const* options, int same_lengths) {
  if (!have_same_lengths(options)) same_lengths = 0;
  if (call->problem.attention.s_q != call->problem.attention.s_k) same_lengths = 0;
  if (!read_target(call, options[OPTION_backend], options[OPTION_threads]) || !read_band(call, options, same_lengths) ||
      !read_numbers_and_flags(call, options))
    return 0;
  if (call->problem.attention.dropout != 0 && options[OPTION_seed] == NULL) return raise_no_seed(call);
  return read_option_arrays(call, options) && read_stream(call, options[OPTION_stream]);
}

int take_inputs(call* call, PyObject* const* qkv, PyObject* const* lengths, PyObject* const* options,
                PyObject* const* forwards) {
  const int same = lengths == NULL || lengths[1] == NULL || lengths[1] == lengths[0];
  call->packed = lengths != NULL;
  return read_layout(call, options[OPTION_layout]) && name_stream(call, options[OPTION_stream]) &&
         take_qkv(call, qkv, forwards) &&
         (lengths == NULL || take_packed(call, lengths[0], lengths[1], lengths[2], lengths[3])) &&
         read_forwards(call, forwards) && read_options(call, options, same && !call->problem.attention.cache);
}

int32_t dtype_of_o(const fal_operands* operands) {
  if (!is_8bit(operands->q.dtype)) return FAL_AS_Q;
  return is_8bit(operands->v.dtype) ? FAL_BF16 : operands->v.dtype;
}

/* The outputs, the run, and what the caller gets. Rows past a used length are left alone by the engine; in arrays that
 * are made here they are 0, and their LSE is that of a row without keys. */
PyObject* run_forward(call* call, int wants_lse, PyObject* out, PyObject* lse) {
  fal_attention* problem = &call->problem.attention;
  fal_operands* operands = &call->operands.attention;
  const fal_tensor* q = &operands->q;
  const int64_t shape[4] = {q->shape[0], q->shape[1], q->shape[2], operands->v.shape[3]};
  const int has_gaps = problem->used_q;
  PyObject *o, *l = NULL, *result = NULL;
  problem->lse = wants_lse || lse != NULL;
  o = output_bshd(call, "out", out, shape, dtype_of_o(operands), has_gaps ? ZEROES : AS_IT_COMES, &operands->o);
  if (o == NULL) return NULL;
  if (is_8bit(q->dtype)) problem->dtype_o = operands->o.dtype;
  if (problem->lse) {
    l = output_lse(call, "lse", lse, has_gaps ? MINUS_INFINITY : AS_IT_COMES, &operands->lse);
    if (l == NULL) goto done;
  }
  if (!run(call)) goto done;
  result = wants_lse ? PyTuple_Pack(2, o, l) : Py_NewRef(o);
done:
  Py_XDECREF(l);
  Py_DECREF(o);
  return result;
}

/* The steps of both functions; those of packed sequences have four arguments more. */
static PyObject* forward(const signature* signature, int packed, PyObject* const* args, Py_ssize_t count,
                         PyObject* names) {
  PyObject *values[MOST_ARGUMENTS], *result = NULL;
  PyObject** const options = values + (packed ? PACKED_OPTIONS : DENSE_OPTIONS);
  PyObject** const forwards = options + OPTIONS;
  PyObject** const more = forwards + FORWARDS;
  uint8_t wants_lse;
  call call;
  if (!bind(signature, args, count, names, values)) return NULL;
  begin(&call, signature->function, ATTENTION, FAL_FORWARD);
  if (take_inputs(&call, values + Q, packed ? values + CU_Q : NULL, options, forwards) &&
      to_flag("return_lse", more[RETURN_LSE], &wants_lse))
    result = run_forward(&call, wants_lse, more[OUT], more[LSE]);
  end(&call);
  return result;
}

FUNCTION(py_attention) {
  (void)module;
  return forward(&dense_signature, 0, args, count, names);
}

FUNCTION(py_varlen) {
  (void)module;
  return forward(&packed_signature, 1, args, count, names);
}
