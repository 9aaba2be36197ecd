/* arrays/arrays.c: one argument as an array, whatever library made it. */
#include "fal.h"

int64_t times(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

int64_t extent_of_both(int64_t a, int64_t b) {
  if (a < 0 || b < 0) return a < b ? a : b;
  return a != 0 && b > INT64_MAX / a ? INT64_MAX : a * b;
}

static int raise_no_array(const char* name, PyObject* object) {
  PyObject* type = PyType_GetName(Py_TYPE(object));
  if (type != NULL)
    PyErr_Format(
        PyExc_TypeError,
        "%s must be an array (of NumPy, PyTorch or another library with DLPack or __cuda_array_interface__), not %U",
        name, type);
  Py_XDECREF(type);
  return 0;
}

int can_be_written(const library* from) {
  if (from->by != BY_DLPACK || PyUnicode_CompareWithASCIIString(from->name, "jaxlib") != 0) return 1;
  PyErr_SetString(PyExc_TypeError,
                  "arrays of JAX cannot be written into: falchion.jax has functions for them "
                  "(attention, varlen and linear_attention)");
  return 0;
}

/* Has it an attribute of that name that is True? */
static int is_true(PyObject* object, const char* name) {
  PyObject* value = PyObject_GetAttrString(object, name);
  PyErr_Clear();
  Py_XDECREF(value);
  return value == Py_True;
}

/* The table's function failed. What torch says of a tensor without memory of its own (of "meta", sparse, inside of
 * vmap) has a backtrace of C++ below its first line and does not name the argument. */
static int raise_unreadable(const char* name, PyObject* object, const library* from) {
  PyObject *type, *value, *trace, *text, *first = NULL;
  if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return 0;
  PyErr_Fetch(&type, &value, &trace);
  text = value != NULL ? PyObject_Str(value) : NULL;
  if (is_true(object, "is_meta")) {
    raise_text(FAL_UNSUPPORTED, NULL,
               "%s lies on the device meta and has no memory: falchion.torch computes the shape of the result, and "
               "takes it where all tensors are there",
               name);
  } else if (is_true(object, "is_nested")) {
    raise_text(FAL_UNSUPPORTED, NULL,
               "%s is a nested tensor, which is no one array: falchion.torch.attention and sdpa take nested q, k and v "
               "of the layout torch.jagged",
               name);
  } else {
    if (text != NULL) first = PyObject_CallMethod(text, "partition", "s", "\n");
    if (first != NULL)
      PyErr_Format(PyExc_RuntimeError, "%s: %U gives no memory of this array: %U", name, from->name,
                   PyTuple_GetItem(first, 0));
  }
  Py_XDECREF(first);
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return 0;
}

int read_array(const char* name, PyObject* object, int writes, void* stream, array* out) {
  int ok = 0;
  out->name = name;
  out->rank = 0;
  out->other_type[0] = '\0';
  out->on_gpu = out->read_only = out->has_buffer = 0;
  out->device = 0;
  out->stream = NULL;
  out->kept = NULL;
  if (!library_of(object, &out->from)) return 0;
  if (!has_no_mask(name, object, &out->from)) return 0;
  if (writes && !can_be_written(&out->from)) return 0;
  switch (out->from.by) {
    case BY_TABLE: {
      DLTensor tensor;
      if (out->from.api->dltensor_from_py_object_no_sync(object, &tensor) != 0)
        return raise_unreadable(name, object, &out->from);
      ok = read_dltensor(&tensor, out);
      break;
    }
    case BY_BUFFER: ok = read_by_buffer(object, writes, out); break;
    case BY_DLPACK: ok = read_by_dlpack(object, stream, out); break;
    case BY_CUDA_INTERFACE: ok = read_by_cuda_interface(object, out); break;
    default: return raise_no_array(name, object);
  }
  if (ok && writes && out->read_only) {
    raise_text(FAL_INVALID, NULL, "%s is read-only, but it is to be written into", name);
    ok = 0;
  }
  if (!ok) release_array(out);
  return ok;
}

void release_array(array* array) {
  if (array->has_buffer) PyBuffer_Release(&array->buffer);
  array->has_buffer = 0;
  Py_CLEAR(array->kept);
}
