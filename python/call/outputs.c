/* call/outputs.c: arrays that the caller did not give. The caller's own library makes them, so that its allocator, its
 * streams and its rules hold. */
#include <string.h>

#include "fal.h"

/* A name that is looked up at each call, as a string that is made once; null with an exception. */
static PyObject* kept_name(PyObject** kept, const char* name) {
  if (*kept == NULL) *kept = PyUnicode_InternFromString(name);
  return *kept;
}

static PyObject* shape_tuple(int rank, const int64_t* shape) {
  PyObject* tuple = PyTuple_New(rank);
  for (int i = 0; i < rank && tuple != NULL; ++i) {
    PyObject* extent = PyLong_FromLongLong(shape[i]);
    if (extent == NULL || PyTuple_SetItem(tuple, i, extent) != 0) Py_CLEAR(tuple);
  }
  return tuple;
}

static int is_leaders_shape(const array* leader, int rank, const int64_t* shape) {
  int64_t dense = 1;
  if (leader->rank != rank) return 0;
  for (int i = rank - 1; i >= 0; --i) {
    if (leader->shape[i] != shape[i] || (shape[i] > 1 && leader->stride[i] != dense)) return 0;
    dense *= shape[i];
  }
  return 1;
}

/* NumPy and those that follow it know bfloat16 and float8_e4m3fn by name once the package ml_dtypes is imported. */
static int knows_type(const library* from, int dtype) {
  PyObject* package = PyImport_ImportModule("ml_dtypes");
  const int is_missing = package == NULL && PyErr_ExceptionMatches(PyExc_ImportError);
  Py_XDECREF(package);
  if (is_missing) {
    PyErr_Clear();
    raise_text(FAL_UNSUPPORTED, NULL, "%s = %s: %U has this type by the package ml_dtypes, which cannot be imported",
               dtype == FAL_BF16 ? "out_dtype" : "dtype", type_name(dtype), from->name);
  }
  return package != NULL;
}

/* How the leader's library calls a type: torch has it as an attribute, NumPy and those that follow it take the name.
 * A new reference. */
static PyObject* type_of(const library* from, int dtype) {
  if (dtype == FAL_F32 && from->float32 != NULL) return Py_NewRef(from->float32);
  if (from->has_new_empty) return look_up(from->name, type_name(dtype));
  if ((dtype == FAL_BF16 || dtype == FAL_E4M3) && !knows_type(from, dtype)) return NULL;
  return PyUnicode_FromString(type_name(dtype));
}

/* {"dtype": torch.float32}, which is made once for each type. Borrowed. */
static PyObject* as_type(const library* from, int dtype) {
  static PyObject* kept[FAL_I32 + 1]; /* of torch, for no other library has new_empty and a name of float32 */
  if (kept[dtype] == NULL) kept[dtype] = Py_BuildValue("{s:N}", "dtype", type_of(from, dtype));
  return kept[dtype];
}

/* q.new_empty(*shape) and q.new_empty(*shape, dtype=torch.float32). With the shape as one tuple torch takes twice as
 * long (2.5 us and not 1.3, on a core of an EPYC with torch 2.11), because it takes the tuple for a number first.
 * torch.empty_like(q) is faster still, 0.8 us. */
static PyObject* from_leader(const call* call, PyObject* shape, int is_like, int dtype) {
  static PyObject* new_empty;
  const library* from = &call->leader->from;
  PyObject *method, *keywords = NULL, *made = NULL;
  if (is_like && dtype == FAL_AS_Q && from->empty_like != NULL)
    return PyObject_CallFunctionObjArgs(from->empty_like, call->leader_object, NULL);
  if (kept_name(&new_empty, "new_empty") == NULL) return NULL;
  if (dtype != FAL_AS_Q && from->float32 != NULL) {
    keywords = as_type(from, dtype);
    if (keywords == NULL) return NULL;
  }
  method = PyObject_GetAttr(call->leader_object, new_empty);
  if (method != NULL) made = PyObject_Call(method, shape, keywords);
  Py_XDECREF(method);
  return made;
}

/* numpy.empty(shape, q.dtype), and cupy's. */
static PyObject* from_module(const call* call, PyObject* shape, int dtype_wanted) {
  static PyObject* dtype_of;
  const library* from = &call->leader->from;
  PyObject *dtype, *made;
  if (kept_name(&dtype_of, "dtype") == NULL) return NULL;
  dtype = dtype_wanted != FAL_AS_Q ? type_of(from, dtype_wanted) : PyObject_GetAttr(call->leader_object, dtype_of);
  made = dtype != NULL ? PyObject_CallFunctionObjArgs(from->empty, shape, dtype, NULL) : NULL;
  Py_XDECREF(dtype);
  return made;
}

static int fill_array(const call* call, PyObject* array, int fill) {
  const char* method = call->leader->from.has_new_empty ? "fill_" : "fill";
  PyObject* done;
  if (fill == AS_IT_COMES) return 1;
  done = PyObject_CallMethod(array, method, "d", fill == ZEROES ? 0.0 : -Py_HUGE_VAL);
  Py_XDECREF(done);
  return done != NULL;
}

PyObject* make_array(call* call, const char* name, const char* argument, int rank, const int64_t* shape, int dtype,
                     int fill, array** out) {
  const library* from = &call->leader->from;
  PyObject *tuple, *made = NULL;
  if (call->story != NULL) {
    tuple = shape_tuple(rank, shape);
    *out = tuple != NULL ? take_shape(call, name, tuple, dtype == FAL_AS_Q ? call->leader->dtype : dtype) : NULL;
    if (*out == NULL) Py_CLEAR(tuple);
    return tuple;
  }
  if (dtype == call->leader->dtype) dtype = FAL_AS_Q; /* What is made has the leader's type without being asked. */
  if (!can_be_written(from)) return NULL;
  if (!from->has_new_empty && from->empty == NULL) {
    if (argument == NULL)
      PyErr_Format(PyExc_TypeError, "%s makes its %s, and Falchion cannot make arrays of %U", call->function,
                   call->kind == LINEAR ? "gradients" : name, from->name);
    else
      PyErr_Format(PyExc_TypeError, "Falchion cannot make arrays of %U: give %s=%s", from->name, argument,
                   strcmp(argument, "grads") == 0 ? "(grad_q, grad_k, grad_v)" : " an array to write into");
    return NULL;
  }
  tuple = shape_tuple(rank, shape);
  if (tuple == NULL) return NULL;
  if (from->has_new_empty)
    made = from_leader(call, tuple, is_leaders_shape(call->leader, rank, shape), dtype);
  else
    made = from_module(call, tuple, dtype);
  Py_DECREF(tuple);
  if (made == NULL) return NULL;
  *out = fill_array(call, made, fill) ? take(call, name, made, 1) : NULL;
  if (*out == NULL) Py_CLEAR(made);
  return made;
}

PyObject* output_bshd(call* call, const char* name, PyObject* given, const int64_t* bshd, int dtype, int fill,
                      fal_tensor* out) {
  const char* const argument = strcmp(name, "out") == 0 ? "out" : call->kind == LINEAR ? NULL : "grads";
  int64_t shape[4];
  array* made;
  PyObject* object;
  if (given != NULL) return take_bshd(call, name, given, 1, out) ? Py_NewRef(given) : NULL;
  shape[0] = bshd[0];
  shape[1] = bshd[call->heads_first ? 2 : 1];
  shape[2] = bshd[call->heads_first ? 1 : 2];
  shape[3] = bshd[3];
  object = call->packed ? make_array(call, name, argument, 3, shape + 1, dtype, fill, &made)
                        : make_array(call, name, argument, 4, shape, dtype, fill, &made);
  if (object != NULL && !view_bshd(call, made, out)) Py_CLEAR(object);
  return object;
}

PyObject* output_lse(call* call, const char* name, PyObject* given, int fill, fal_tensor* out) {
  const fal_tensor* q = &call->operands.attention.q;
  const int64_t shape[3] = {q->shape[0], q->shape[2], q->shape[1]};
  array* made;
  PyObject* object;
  if (given != NULL) return take_lse(call, name, given, 1, out) ? Py_NewRef(given) : NULL;
  object = call->packed ? make_array(call, name, "lse", 2, shape + 1, FAL_F32, fill, &made)
                        : make_array(call, name, "lse", 3, shape, FAL_F32, fill, &made);
  if (object != NULL && !view_lse(call, made, out)) Py_CLEAR(object);
  return object;
}
