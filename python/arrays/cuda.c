/* arrays/cuda.c: arrays of a GPU by __cuda_array_interface__, as numba's have it. It does not say on which GPU they
 * are, so their plan is for the device that is current, and each run asks the driver where they lie. Of numba's it is
 * known which device that is; the plans of others are not kept. */
#include <string.h>

#include "fal.h"

static int dtype_of(const char* type) {
  static const struct {
    const char* name;
    int dtype;
  } known[] = {{"<f4", FAL_F32}, {"<f2", FAL_F16}, {"|b1", FAL_BOOL}, {"|u1", TYPE_U8},
               {"|i1", FAL_I8},  {"<i4", FAL_I32}, {"<i8", TYPE_I64}, {"<u8", TYPE_U64}};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; ++i)
    if (strcmp(type, known[i].name) == 0) return known[i].dtype;
  return TYPE_OTHER;
}

static int item(PyObject* tuple, Py_ssize_t index, int64_t* out) {
  PyObject* value = PySequence_GetItem(tuple, index);
  *out = value != NULL ? PyLong_AsLongLong(value) : -1;
  Py_XDECREF(value);
  return !PyErr_Occurred();
}

static int read_fields(PyObject* fields, array* out) {
  PyObject* shape = PyMapping_GetItemString(fields, "shape");
  PyObject* data = shape != NULL ? PyMapping_GetItemString(fields, "data") : NULL;
  PyObject* type = data != NULL ? PyMapping_GetItemString(fields, "typestr") : NULL;
  PyObject* strides = NULL;
  PyObject* address = NULL;
  PyObject* read_only = NULL;
  PyObject* text = type != NULL ? PyUnicode_AsASCIIString(type) : NULL;
  int64_t dense = 1;
  int ok = 0;
  if (text == NULL) goto done;
  strides = PyMapping_GetItemString(fields, "strides");
  if (strides == NULL) PyErr_Clear();
  if (strides == Py_None) Py_CLEAR(strides);
  out->dtype = dtype_of(PyBytes_AsString(text));
  if (out->dtype == TYPE_OTHER) PyOS_snprintf(out->other_type, sizeof out->other_type, "%s", PyBytes_AsString(text));
  out->rank = (int)PySequence_Size(shape);
  if (out->rank < 0) goto done;
  if (strides != NULL && PySequence_Size(strides) != out->rank) {
    if (!PyErr_Occurred())
      raise_text(FAL_INVALID, NULL, "%s has %d axes, but %d strides", out->name, out->rank,
                 (int)PySequence_Size(strides));
    goto done;
  }
  if (out->rank > WHOLE_AXES) {
    raise_text(FAL_INVALID, NULL, "%s has %d axes: no argument has more than %d", out->name, out->rank, WHOLE_AXES);
    goto done;
  }
  for (int i = out->rank - 1; i >= 0; --i) {
    const int size = element_size(out->dtype) > 0 ? element_size(out->dtype) : 1;
    if (!item(shape, i, &out->shape[i])) goto done;
    out->stride[i] = dense;
    if (strides != NULL && !item(strides, i, &out->stride[i])) goto done;
    if (strides != NULL && out->shape[i] > 1 && out->stride[i] % size != 0) {
      raise_text(FAL_INVALID, NULL, "%s: axis %d has a stride of %lld bytes, which is no multiple of its elements' %d",
                 out->name, i, (long long)out->stride[i], size);
      goto done;
    }
    if (strides != NULL) out->stride[i] /= size;
    dense *= out->shape[i] > 0 ? out->shape[i] : 1;
  }
  address = PySequence_GetItem(data, 0);
  if (address != NULL) out->data = PyLong_AsVoidPtr(address);
  read_only = address != NULL && !PyErr_Occurred() ? PySequence_GetItem(data, 1) : NULL;
  out->read_only = read_only != NULL ? PyObject_IsTrue(read_only) : 0;
  ok = read_only != NULL && out->read_only >= 0;
done:
  Py_XDECREF(read_only);
  Py_XDECREF(address);
  Py_XDECREF(text);
  Py_XDECREF(strides);
  Py_XDECREF(type);
  Py_XDECREF(data);
  Py_XDECREF(shape);
  return ok;
}

/* The stream as a number: 1 and 2 are the default ones, as in CUDA itself. The protocol has no 0. */
static int read_array_stream(array* out) {
  PyObject* stream = PyMapping_GetItemString(out->kept, "stream");
  if (stream == NULL) PyErr_Clear();
  if (stream == Py_None) Py_CLEAR(stream);
  if (stream == NULL) return 1;
  out->stream = PyLong_Check(stream) ? PyLong_AsVoidPtr(stream) : NULL;
  Py_DECREF(stream);
  if (PyErr_Occurred()) return 0;
  if (out->stream != NULL) return 1;
  raise_text(FAL_INVALID, NULL,
             "%s: the stream in __cuda_array_interface__ must be None or a number, 1 for the default one, and not 0",
             out->name);
  return 0;
}

int knows_gpu_of_numba(const library* from, int32_t* device) {
  PyObject *function, *current, *number;
  int32_t id;
  if (PyUnicode_CompareWithASCIIString(from->name, "numba") != 0) return 0;
  function = look_up(from->name, "cuda.get_current_device");
  current = function != NULL ? PyObject_CallFunctionObjArgs(function, NULL) : NULL;
  number = current != NULL ? PyObject_GetAttrString(current, "id") : NULL;
  id = number != NULL ? (int32_t)PyLong_AsLong(number) : -1;
  Py_XDECREF(number);
  Py_XDECREF(current);
  Py_XDECREF(function);
  PyErr_Clear();
  if (id < 0) return 0; /* a numba that does not say it: the driver is asked, by the pointers */
  *device = id;
  return 1;
}

/* An array with a mask has elements that do not count, and every element of ours does. */
static int counts_whole(const array* a) {
  PyObject* mask = PyMapping_GetItemString(a->kept, "mask");
  const int is = mask != NULL && mask != Py_None;
  if (mask == NULL) PyErr_Clear();
  Py_XDECREF(mask);
  if (is) raise_text(FAL_UNSUPPORTED, NULL, "%s has a mask of elements that do not count: Falchion reads all", a->name);
  return !is;
}

int read_by_cuda_interface(PyObject* object, array* out) {
  out->kept = PyObject_GetAttrString(object, "__cuda_array_interface__");
  out->on_gpu = 1;
  if (out->kept == NULL) return 0;
  if (PyMapping_Check(out->kept)) return counts_whole(out) && read_array_stream(out) && read_fields(out->kept, out);
  PyErr_Format(PyExc_TypeError, "%s: __cuda_array_interface__ is no dictionary", out->name);
  return 0;
}
