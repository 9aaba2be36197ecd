/* call/options_arrays.c: the options that are arrays: the tensors of fal_operands that may be missing, lengths, and the
 * seed where it lies in memory. */
#include <string.h>

#include "fal.h"

/* (h_q) or (b, h_q) as (b or 1, 1, h_q, 1). */
static int view_slopes(const call* call, const array* from, fal_tensor* out) {
  const int last = from->rank - 1;
  (void)call;
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
static int view_pairs(const call* call, const array* from, fal_tensor* out) {
  (void)call;
  if (from->rank >= 1) return view_last(from, out);
  raise_text(FAL_INVALID, NULL, "%s has no axes: it must have 1 to 4, the last of (b, h_q, s_q, s_k)", from->name);
  return 0;
}

/* (b, columns), or (columns) of all sequences one after another, as (b or 1, columns, 1, 1). */
static int view_page_table(const call* call, const array* from, fal_tensor* out) {
  const int last = from->rank - 1;
  (void)call;
  if (from->rank != 1 && from->rank != 2) {
    raise_text(FAL_INVALID, NULL, "%s has %d axes: it must have 2, (b, columns), or 1 with page_starts", from->name,
               from->rank);
    return 0;
  }
  memset(out, 0, sizeof *out);
  out->data = from->data;
  out->dtype = from->dtype;
  out->shape[0] = from->rank == 2 ? from->shape[0] : 1;
  out->stride[0] = from->rank == 2 ? from->stride[0] : from->stride[last] * from->shape[last];
  out->shape[1] = from->shape[last];
  out->stride[1] = from->stride[last];
  out->shape[2] = out->stride[2] = out->shape[3] = out->stride[3] = 1;
  return 1;
}

/* (positions, columns) or (positions, 2, columns / 2), cosines first, as (1, positions, 2, columns / 2). */
static int view_rotary(const call* call, const array* from, fal_tensor* out) {
  (void)call;
  if ((from->rank == 2 && from->shape[1] % 2 == 0) || from->rank == 3) {
    view_last(from, out);
    if (from->rank == 3) return 1;
    out->shape[1] = from->shape[0];
    out->stride[1] = from->stride[0];
    out->shape[2] = 2;
    out->shape[3] = from->shape[1] / 2;
    out->stride[2] = out->shape[3] * out->stride[3];
    return 1;
  }
  raise_text(FAL_INVALID, NULL, "%s must be (positions, 2, columns / 2), or (positions, columns) with even columns",
             from->name);
  return 0;
}

/* (h_k), (keys, h_k) or (b or pages, keys, h_k), as (b or pages, keys, h_k, 1); an axis of 1 is shared. */
static int view_key_numbers(const call* call, const array* from, fal_tensor* out) {
  (void)call;
  view_last(from, out);
  for (int axis = 0; axis < 3; ++axis) {
    out->shape[axis] = out->shape[axis + 1];
    out->stride[axis] = out->stride[axis + 1];
  }
  out->shape[3] = out->stride[3] = 1;
  return 1;
}

int has_engine_type(const array* a, const char* wanted) {
  if ((a->dtype >= FAL_F32 && a->dtype <= FAL_BOOL) || a->dtype == FAL_I32) return 1;
  raise_text(FAL_INVALID, NULL, "%s has the type %s: it must be %s", a->name, dtype_name(a), wanted);
  return 0;
}

/* How an operand lies in Python by its shape in fields.def, which types it has, and who writes it. */
static const struct row {
  const char* name;
  int (*view)(const call* call, const array* from, fal_tensor* out);
  int most_axes;
  const char* types;
  int is_written[2]; /* by pass */
} rows[] = {
#define VIEW_q view_bshd, 4
#define VIEW_k view_keys, 4
#define VIEW_v view_keys, 4
#define VIEW_o view_bshd, 4
#define VIEW_loose_o view_bshd, 4
#define VIEW_row_numbers view_lse, 3
#define VIEW_pairs view_pairs, 4
#define VIEW_scores view_pairs, 4
#define VIEW_head_numbers view_slopes, 2
#define VIEW_page_table view_page_table, 2
#define VIEW_k_new view_bshd, 4
#define VIEW_v_new view_bshd, 4
#define VIEW_rotary view_rotary, 3
#define VIEW_key_numbers view_key_numbers, 3
#define VIEW_query_numbers view_key_numbers, 3
#define TYPES_same "the type of q"
#define TYPES_as_o "the type of q"
#define TYPES_as_k "the type of q"
#define TYPES_as_v "the type of q"
#define TYPES_f32 "float32"
#define TYPES_f32_or_same "float32 or the type of q"
#define TYPES_boolean "bool"
#define TYPES_gradient "float32 or the type of q"
#define TYPES_i32 "int32"
#define IS_neither 0
#define IS_reads 0
#define IS_writes 1
#define FALCHION_OPERAND(name, in_forward, in_backward, shape, type, ...) \
  {#name, VIEW_##shape, TYPES_##type, {IS_##in_forward, IS_##in_backward}},
#include "../../src/base/fields.def"
};

static const struct row* row_of(const char* name) {
  const struct row* row = rows;
  while (strcmp(row->name, name) != 0) ++row; /* Each name is one of fields.def. */
  return row;
}

int most_axes(const char* name) { return row_of(name)->most_axes; }

int take_operand(call* call, const char* name, PyObject* object, uint8_t* flag, fal_tensor* out) {
  const struct row* row;
  const array* a;
  if (object == NULL) return 1;
  row = row_of(name);
  a = take(call, name, object, row->is_written[call->pass]);
  *flag = 1;
  return a != NULL && has_engine_type(a, row->types) && row->view(call, a, out);
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
#define LENGTHS_OPTION(name) \
  if (problem->name) return 1;
#include "options.def"
  return 0;
}

/* (b, h, i, j), or with the query heads of the larger problem (b, h, i, j, h_q) */
static int read_origin(PyObject* object, fal_origin* out) {
  static const char* const names[] = {"origin[0]", "origin[1]", "origin[2]", "origin[3]", "origin[4]"};
  int64_t* const numbers[] = {&out->b, &out->h, &out->i, &out->j, &out->h_q};
  const Py_ssize_t count = is_list(object) ? PySequence_Size(object) : 0;
  if (count != 4 && count != 5) {
    PyErr_SetString(PyExc_TypeError, "origin must be (b, h, i, j) or (b, h, i, j, h_q), whole numbers");
    return 0;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* number = PySequence_GetItem(object, i);
    const int ok = number != NULL && to_int64(names[i], number, numbers[i]);
    Py_XDECREF(number);
    if (!ok) return 0;
  }
  return 1;
}

static int read_rng(call* call, PyObject* const* options) {
  fal_rng* rng = &call->operands.attention.rng;
  if (options[OPTION_seed] != NULL && !read_seed(call, options[OPTION_seed], rng)) return 0;
  if (options[OPTION_offset] != NULL && !to_uint64("offset", options[OPTION_offset], &rng->offset)) return 0;
  return options[OPTION_origin] == NULL || read_origin(options[OPTION_origin], &call->operands.attention.origin);
}

int read_option_arrays(call* call, PyObject* const* options) {
  fal_attention* problem = &call->problem.attention;
  fal_operands* operands = &call->operands.attention;
#define TENSOR_OPTION(name) \
  if (!take_operand(call, #name, options[OPTION_##name], &problem->name, &operands->name)) return 0;
#include "options.def"
  if (!read_rng(call, options)) return 0;
#define LENGTHS_OPTION(name) \
  if (!take_sequence_lengths(call, #name, options[OPTION_##name], &problem->name, &operands->name)) return 0;
#include "options.def"
  return 1;
}
