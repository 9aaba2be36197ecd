/* call/options_arrays.c: the options that are arrays: slopes, bias, mask, lengths, and the seed where it lies in
 * memory. */
#include <string.h>

#include "fal.h"

/* (h_q) or (b, h_q) as (b or 1, 1, h_q, 1). */
int view_slopes(const array* from, fal_tensor* out) {
  const int last = from->rank - 1;
  if (from->rank != 1 && from->rank != 2) {
    raise_text(FAL_INVALID, NULL, "%s has %d axes: it must have 1 or 2, (h_q) or (b, h_q)", from->name, from->rank);
    return 0;
  }
  memset(out, 0, sizeof *out);
  out->data = from->data;
  out->dtype = from->dtype;
  out->shape[0] = from->rank == 2 ? from->shape[0] : 1;
  out->stride[0] = from->rank == 2 ? from->stride[0] : from->stride[last] * from->shape[last];
  out->shape[1] = out->stride[1] = 1;
  out->shape[2] = from->shape[last];
  out->stride[2] = from->stride[last];
  out->shape[3] = out->stride[3] = 1;
  return 1;
}

int view_last(const array* from, fal_tensor* out) {
  const int missing = 4 - from->rank;
  int64_t dense = 1;
  memset(out, 0, sizeof *out);
  out->data = from->data;
  out->dtype = from->dtype;
  for (int axis = 3; axis >= 0; --axis) {
    out->shape[axis] = axis < missing ? 1 : from->shape[axis - missing];
    out->stride[axis] = axis < missing ? dense : from->stride[axis - missing];
    dense = times(out->stride[axis], out->shape[axis]);
  }
  return 1;
}

/* (s_k), (s_q, s_k), (h_q, s_q, s_k) or (b, h_q, s_q, s_k) */
int view_pairs(const array* from, fal_tensor* out) {
  if (from->rank >= 1) return view_last(from, out);
  raise_text(FAL_INVALID, NULL, "%s has no axes: it must have 1 to 4, the last of (b, h_q, s_q, s_k)", from->name);
  return 0;
}

int has_engine_type(const array* a, const char* wanted) {
  if (a->dtype >= FAL_F32 && a->dtype <= FAL_BOOL) return 1;
  raise_text(FAL_INVALID, NULL, "%s has the type %s: it must be %s", a->name, dtype_name(a), wanted);
  return 0;
}

static int take_pairs(call* call, const char* name, PyObject* object, const char* wanted, uint8_t* flag,
                      fal_tensor* out) {
  const array* a;
  if (object == NULL) return 1;
  a = take(call, name, object, 0);
  *flag = 1;
  return a != NULL && has_engine_type(a, wanted) && view_pairs(a, out);
}

static int take_sequence_lengths(call* call, const char* name, PyObject* object, uint8_t* flag, const int32_t** out) {
  const int64_t b = call->problem.attention.b;
  int64_t count = 0;
  if (object == NULL) return 1;
  if (!take_lengths(call, name, object, out, &count)) return 0;
  *flag = 1;
  if (count == b) return 1;
  raise_text(FAL_INVALID, call, "%s has %lld numbers: it must have one for each of b = %lld sequences", name,
             (long long)count, (long long)b);
  return 0;
}

/* Is this a number? An array without axes is one, as a scalar of NumPy; it may be of any library. */
static int is_number(PyObject* object, int* out) {
  library from;
  array a;
  *out = 1;
  if (PyLong_Check(object)) return 1;
  if (!library_of(object, &from)) return 0;
  if (from.by == 0) return 1;
  if (!read_array("seed", object, 0, NULL, &a)) return 0;
  *out = a.rank == 0;
  release_array(&a);
  return 1;
}

/* A seed is a number, or an array of two numbers (seed, offset) that the run itself reads. */
static int read_seed(call* call, PyObject* seed, fal_rng* rng) {
  const array* a;
  int is_one;
  if (!is_number(seed, &is_one)) return 0;
  if (is_one) return to_uint64("seed", seed, &rng->seed);
  a = take(call, "seed", seed, 0);
  if (a == NULL) return 0;
  if ((a->dtype != TYPE_I64 && a->dtype != TYPE_U64) || a->rank != 1 || a->shape[0] != 2 || a->stride[0] != 1) {
    raise_text(FAL_INVALID, call, "seed must be a number, or an int64 or uint64 array of two, (seed, offset)");
    return 0;
  }
  rng->at = a->data;
  return 1;
}

int has_lengths(const fal_attention* problem) {
#define FALCHION_LENGTHS(key, ...) \
  if (problem->key) return 1;
#include "../../src/base/fields.def"
  return 0;
}

int read_option_arrays(call* call, PyObject* const* options) {
  fal_attention* problem = &call->problem.attention;
  fal_operands* operands = &call->operands.attention;
  if (options[ALIBI] != NULL) {
    const array* a = take(call, "alibi", options[ALIBI], 0);
    problem->alibi = 1;
    if (a == NULL || !has_engine_type(a, "float32") || !view_slopes(a, &operands->alibi)) return 0;
  }
  if (!take_pairs(call, "bias", options[BIAS], "float32 or the type of q", &problem->bias, &operands->bias)) return 0;
  if (!take_pairs(call, "mask", options[MASK], "bool", &problem->mask, &operands->mask)) return 0;
  if (options[SEED] != NULL && !read_seed(call, options[SEED], &operands->rng)) return 0;
  if (options[OFFSET] != NULL && !to_uint64("offset", options[OFFSET], &operands->rng.offset)) return 0;
  return take_sequence_lengths(call, "used_q", options[USED_Q], &problem->used_q, &operands->used_q) &&
         take_sequence_lengths(call, "used_k", options[USED_K], &problem->used_k, &operands->used_k) &&
         take_sequence_lengths(call, "first_k", options[FIRST_K], &problem->first_k, &operands->first_k);
}
