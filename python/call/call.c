/* call/call.c: what one call of one operation holds: its arrays, and the engine's view of each of them. */
#include <stddef.h>
#include <string.h>

#include "fal.h"

static const struct {
  size_t problem, operands;
} sizes[] = {{sizeof(fal_attention), sizeof(fal_operands)},
             {sizeof(fal_linear_attention), sizeof(fal_linear_operands)},
             {sizeof(fal_gemm), sizeof(fal_gemm_operands)},
             {sizeof(fal_norm), sizeof(fal_norm_operands)},
             {sizeof(fal_quantise), sizeof(fal_quantise_operands)}};

void begin(call* call, const char* function, int kind, int32_t pass) {
  memset(call, 0, offsetof(struct call, arrays));
  call->function = function;
  call->kind = kind;
  call->pass = pass;
  call->target.size = sizeof call->target;
  call->problem.size = sizes[kind].problem;
  call->operands.size = sizes[kind].operands;
}

void end(call* call) {
  leave_stream(call);
  for (int i = 0; i < call->count; ++i) release_array(&call->arrays[i]);
  call->count = 0;
}

static int fits_leader(const call* call, const array* a) {
  const array* leader = call->leader;
  if (a->from.name != leader->from.name) {
    PyErr_Format(PyExc_TypeError, "%s is an array of %U, but %s is one of %U: all arrays of a call are of one library",
                 a->name, a->from.name, leader->name, leader->from.name);
    return 0;
  }
  if (a->on_gpu == leader->on_gpu && a->device == leader->device) return 1;
  if (a->on_gpu && leader->on_gpu)
    raise_text(FAL_INVALID, call, "%s lies on GPU %d, but %s on GPU %d: all arrays of a call lie on one device",
               a->name, (int)a->device, leader->name, (int)leader->device);
  else
    raise_text(FAL_INVALID, call, "%s lies %s, but %s %s: all arrays of a call lie on one device", a->name,
               a->on_gpu ? "on a GPU" : "in the host's memory", leader->name,
               leader->on_gpu ? "on a GPU" : "in the host's memory");
  return 0;
}

/* Does torch record gradients now? It is not imported: where it is not, nobody has a tensor of it. */
static int is_recording(void) {
  static PyObject* is_grad_enabled;
  PyObject* answer;
  int is;
  if (is_grad_enabled == NULL) {
    PyObject* name = PyUnicode_FromString("torch");
    PyObject* torch = name != NULL ? PyImport_GetModule(name) : NULL;
    if (torch != NULL) is_grad_enabled = PyObject_GetAttrString(torch, "is_grad_enabled");
    Py_XDECREF(torch);
    Py_XDECREF(name);
  }
  answer = is_grad_enabled != NULL ? PyObject_CallFunctionObjArgs(is_grad_enabled, NULL) : NULL;
  is = answer == Py_True;
  Py_XDECREF(answer);
  PyErr_Clear();
  return is;
}

/* A tensor that requires a gradient is refused where torch records, for what is read as memory leaves no record and the
 * gradient would be wrong in silence. The two questions take some 0.05 us each, and the first is asked once a call. */
static int needs_no_record(call* call, const array* a, PyObject* object) {
  static PyObject* requires_grad;
  const char* const of_torch = call->kind == LINEAR      ? "linear_attention"
                               : call->kind != ATTENTION ? NULL
                               : call->packed            ? "varlen"
                                                         : "attention";
  PyObject* answer;
  int needs;
  if (!a->from.has_new_empty || (a->dtype > FAL_BF16 && a->dtype != FAL_E4M3)) return 1;
  if (call->recording == NOT_ASKED) call->recording = is_recording() ? RECORDS : RECORDS_NOT;
  if (call->recording == RECORDS_NOT) return 1;
  if (requires_grad == NULL) requires_grad = PyUnicode_InternFromString("requires_grad");
  answer = requires_grad != NULL ? PyObject_GetAttr(object, requires_grad) : NULL;
  needs = answer == Py_True;
  Py_XDECREF(answer);
  PyErr_Clear();
  if (!needs || strcmp(call->function, "validate_lengths") == 0) return 1; /* That one reads no numbers of q. */
  raise_text(FAL_INVALID, call,
             "%s requires a gradient, and falchion.%s records none: %s%s%sgive %s.detach(), or call it under "
             "torch.no_grad()",
             a->name, call->function, of_torch != NULL ? "call falchion.torch." : "", of_torch != NULL ? of_torch : "",
             of_torch != NULL ? ", or " : "", a->name);
  return 0;
}

static int is_empty(const array* a) {
  for (int i = 0; i < a->rank; ++i)
    if (a->shape[i] == 0) return 1;
  return 0;
}

/* Which type a shape has by the argument `dtype`. 8 bits are for the first two, a and b: the others are float32 then.
 */
static int type_of_shape(const call* call) {
  const int dtype = call->story->dtype;
  return call->count >= 2 && is_8bit(dtype) ? FAL_F32 : dtype;
}

array* take_shape(call* call, const char* name, PyObject* shape, int dtype) {
  array* a = &call->arrays[call->count];
  int64_t dense = 1;
  memset(a, 0, sizeof *a);
  a->name = name;
  a->dtype = dtype != FAL_AS_Q ? dtype : type_of_shape(call);
  if (!read_extents(name, shape, a)) return NULL;
  if (a->rank > WHOLE_AXES) {
    raise_text(FAL_INVALID, NULL, "%s has more than %d axes, which no argument has", name, WHOLE_AXES);
    return NULL;
  }
  if (a->dtype == 0) {
    raise_text(FAL_INVALID, NULL,
               "%s is a shape, which needs dtype: float32, float16, bfloat16 or, of gemm, int8 or float8_e4m3fn", name);
    return NULL;
  }
  for (int i = a->rank - 1; i >= 0; --i) {
    a->stride[i] = dense;
    dense = times(dense, a->shape[i]);
  }
  ++call->count;
  if (call->leader == NULL) call->leader = a;
  return a;
}

array* take(call* call, const char* name, PyObject* object, int writes) {
  array* a = &call->arrays[call->count];
  if (call->count == MOST_ARRAYS) {
    PyErr_SetString(PyExc_SystemError, "a call has more arrays than MOST_ARRAYS");
    return NULL;
  }
  if (call->story != NULL && is_list(object)) return take_shape(call, name, object, FAL_AS_Q);
  if (!read_array(name, object, writes, call->stream, a)) return NULL;
  ++call->count; /* From here on `end` releases it. */
  if (call->story == NULL && !needs_no_record(call, a, object)) return NULL;
  if (a->data == NULL && !is_empty(a)) {
    raise_text(FAL_INVALID, call,
               "%s has no memory: its address is 0, as that of a tensor of torch's FakeTensorMode is", name);
    return NULL;
  }
  if (!follow_stream(call, a)) return NULL;
  if (call->leader != NULL) return call->story != NULL || fits_leader(call, a) ? a : NULL;
  call->leader = a;
  call->leader_object = object;
  return a;
}

int is_8bit(int32_t dtype) { return dtype == FAL_I8 || dtype == FAL_E4M3; }

int has_float_type(const array* a) {
  if (a->dtype >= FAL_F32 && a->dtype <= FAL_BF16) return 1;
  raise_text(FAL_INVALID, NULL, "%s has the type %s: it must be float32, float16 or bfloat16", a->name, dtype_name(a));
  return 0;
}

static void set_axis(const array* from, int axis, fal_tensor* out, int to) {
  out->shape[to] = from->shape[axis];
  out->stride[to] = from->stride[axis];
}

static int view_rows(const call* call, const array* from, int packed, fal_tensor* out) {
  const int rank = packed ? 3 : 4;
  const int first = rank - 3; /* the axis after b */
  if (from->rank != rank) {
    const char* axes = packed ? (call->heads_first ? "(h, total, d)" : "(total, h, d)")
                              : (call->heads_first ? "(b, h, s, d)" : "(b, s, h, d)");
    raise_text(FAL_INVALID, NULL, "%s has %d axes: it must have %d, %s", from->name, from->rank, rank, axes);
    return 0;
  }
  memset(out, 0, sizeof *out);
  out->data = from->data;
  out->dtype = from->dtype;
  out->shape[0] = 1;
  if (rank == 4) set_axis(from, 0, out, 0);
  set_axis(from, first + (call->heads_first ? 1 : 0), out, 1);
  set_axis(from, first + (call->heads_first ? 0 : 1), out, 2);
  set_axis(from, first + 2, out, 3);
  return 1;
}

int view_bshd(const call* call, const array* from, fal_tensor* out) {
  return view_rows(call, from, call->packed, out) && has_float_type(from);
}

int view_queries(const call* call, const array* from, fal_tensor* out) {
  const int is_bytes = call->pass == FAL_FORWARD && is_8bit(from->dtype);
  return view_rows(call, from, call->packed, out) && (is_bytes || has_float_type(from));
}

int view_keys(const call* call, const array* from, fal_tensor* out) {
  const fal_attention* problem = &call->problem.attention;
  const int may_be_bytes = problem->cache || is_8bit(problem->dtype);
  return view_rows(call, from, call->packed && !problem->cache, out) &&
         ((may_be_bytes && is_8bit(from->dtype)) || has_float_type(from));
}

int view_lse(const call* call, const array* from, fal_tensor* out) {
  const int rank = call->packed ? 2 : 3;
  if (from->rank != rank) {
    raise_text(FAL_INVALID, NULL, "%s has %d axes: it must have %d, %s", from->name, from->rank, rank,
               call->packed ? "(h, total)" : "(b, h, s)");
    return 0;
  }
  if (!has_float_type(from)) return 0;
  memset(out, 0, sizeof *out);
  out->data = from->data;
  out->dtype = from->dtype;
  out->shape[0] = 1;
  if (rank == 3) set_axis(from, 0, out, 0);
  set_axis(from, rank - 2, out, 1);
  set_axis(from, rank - 1, out, 2);
  out->shape[3] = out->stride[3] = 1;
  return 1;
}

int take_bshd(call* call, const char* name, PyObject* object, int writes, fal_tensor* out) {
  const array* a = take(call, name, object, writes);
  return a != NULL && view_bshd(call, a, out);
}

int take_lse(call* call, const char* name, PyObject* object, int writes, fal_tensor* out) {
  const array* a = take(call, name, object, writes);
  return a != NULL && view_lse(call, a, out);
}

/* One number of a list of lengths as int32. */
static int to_length(const call* call, const char* name, PyObject* list, Py_ssize_t index, int32_t* out) {
  char item_name[48];
  PyObject* item = PySequence_GetItem(list, index);
  int64_t value = 0;
  int ok;
  PyOS_snprintf(item_name, sizeof item_name, "%.32s[%lld]", name, (long long)index);
  ok = item != NULL && to_int64(item_name, item, &value);
  Py_XDECREF(item);
  if (!ok || (value >= INT32_MIN && value <= INT32_MAX)) {
    *out = (int32_t)value;
    return ok;
  }
  raise_text(FAL_INVALID, call, "%s = %lld: lengths are int32, which hold numbers in [-2^31, 2^31)", item_name,
             (long long)value);
  return 0;
}

/* Lengths in another form than the engine's, a list or whole numbers of any type and stride, become int32 once each was
 * seen to fit. This is done in the host's memory alone: a copy from a GPU would have to wait for it. */
static int convert_lengths(const call* call, PyObject* object, array* a) {
  PyObject* list = is_list(object) ? Py_NewRef(object) : PyObject_CallMethod(object, "tolist", NULL);
  const Py_ssize_t count = list != NULL ? PySequence_Size(list) : -1;
  PyObject* bytes = count >= 0 ? PyByteArray_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int32_t)) : NULL;
  int32_t* numbers = bytes != NULL ? (int32_t*)(void*)PyByteArray_AsString(bytes) : NULL;
  int ok = numbers != NULL;
  for (Py_ssize_t i = 0; i < count && ok; ++i) ok = to_length(call, a->name, list, i, &numbers[i]);
  if (ok) {
    release_array(a);
    a->kept = Py_NewRef(bytes);
    a->data = numbers;
    a->dtype = FAL_I32;
    a->rank = 1;
    a->shape[0] = count;
    a->stride[0] = 1;
  }
  Py_XDECREF(bytes);
  Py_XDECREF(list);
  return ok;
}

/* A list has no library and lies on the host, so the arrays of the call have to lie there too. */
static array* take_list(call* call, const char* name, PyObject* list) {
  array* a = &call->arrays[call->count];
  if (call->count == MOST_ARRAYS) {
    PyErr_SetString(PyExc_SystemError, "a call has more arrays than MOST_ARRAYS");
    return NULL;
  }
  if (call->leader->on_gpu) {
    raise_text(FAL_INVALID, call, "%s is a list, but %s lies on a GPU: give an int32 array that lies there", name,
               call->leader->name);
    return NULL;
  }
  memset(a, 0, sizeof *a);
  a->name = name;
  a->from = call->leader->from;
  ++call->count;
  return convert_lengths(call, list, a) ? a : NULL;
}

static int is_whole_type(const array* a) {
  return a->dtype == FAL_I32 || a->dtype == FAL_I8 || a->dtype == TYPE_I64 || a->dtype == TYPE_U64 ||
         a->dtype == TYPE_U8 || strncmp(a->other_type, "int", 3) == 0 || strncmp(a->other_type, "uint", 4) == 0;
}

int take_lengths(call* call, const char* name, PyObject* object, const int32_t** out, int64_t* length) {
  array* a = is_list(object) ? take_list(call, name, object) : take(call, name, object, 0);
  if (a == NULL) return 0;
  if (!is_whole_type(a) || (a->dtype != FAL_I32 && a->on_gpu)) {
    raise_text(FAL_INVALID, call, "%s has the type %s: lengths are int32%s", name, dtype_name(a),
               a->on_gpu ? "" : ", or other whole numbers, which are converted");
    return 0;
  }
  if (a->rank != 1 || (a->on_gpu && a->shape[0] > 1 && a->stride[0] != 1)) {
    raise_text(FAL_INVALID, call, "%s must have one axis, without gaps: it has %d axes", name, a->rank);
    return 0;
  }
  if (!a->on_gpu && a->dtype == FAL_I32 && (uintptr_t)a->data % sizeof(int32_t) != 0) {
    /* It is read here, before the engine looks. */
    raise_text(FAL_INVALID, call, "%s lies at %p, which is no multiple of %d: it must be aligned to its elements", name,
               a->data, (int)sizeof(int32_t));
    return 0;
  }
  if (!a->on_gpu && (a->dtype != FAL_I32 || (a->shape[0] > 1 && a->stride[0] != 1)) &&
      !convert_lengths(call, object, a))
    return 0;
  *out = a->data;
  *length = a->shape[0];
  return 1;
}

int read_longest(const call* call, const char* name, PyObject* given, int64_t b, const int32_t* starts, int64_t total,
                 int64_t* out) {
  *out = 0;
  if (given != NULL) {
    if (!to_int64(name, given, out)) return 0;
    /* A hint that is too small is made larger where the host has the lengths. validate_lengths compares with it. */
    if (*out < 0 || call->leader->on_gpu || strcmp(call->function, "validate_lengths") == 0) return 1;
  } else if (call->leader->on_gpu) {
    *out = b > 0 ? (total + b - 1) / b : 0;
    return 1;
  }
  for (int64_t i = 0; i < b; ++i) {
    const int64_t length = (int64_t)starts[i + 1] - starts[i];
    if (length > *out) *out = length;
  }
  return 1;
}
