/* arrays/buffer.c: arrays by Python's buffer protocol: NumPy's, memoryview and array.array. NumPy gives no buffer of
 * ml_dtypes' types, so these are known by their names, and the buffer is that of the same memory as uint16 or uint8. */
#include <string.h>

#include "fal.h"

static int dtype_of(const char* format, Py_ssize_t size) {
  if (format == NULL) return TYPE_U8;
  if (format[0] == '@' || format[0] == '=' || format[0] == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return TYPE_OTHER;
  switch (format[0]) {
    case 'f': return FAL_F32;
    case 'e': return FAL_F16;
    case '?': return FAL_BOOL;
    case 'B': return TYPE_U8;
    case 'b': return FAL_I8;
    case 'i':
    case 'l':
    case 'q': return size == 4 ? FAL_I32 : size == 8 ? TYPE_I64 : TYPE_OTHER;
    case 'L':
    case 'Q': return size == 8 ? TYPE_U64 : TYPE_OTHER;
    default: return TYPE_OTHER;
  }
}

/* What a message calls a type that the engine does not take: "int16"; else what struct calls it. */
static void name_other(const char* format, Py_ssize_t bytes, char* out, size_t size) {
  const char* bare = format + (strchr("@=<>!", format[0]) != NULL && format[0] != '\0');
  const char* order = format[0] == '>' || format[0] == '!' ? "big-endian " : "";
  const int bits = (int)bytes * 8;
  if (bare[0] == 'Z')
    PyOS_snprintf(out, size, "%scomplex%d", order, bits);
  else if (bare[0] == '\0' || bare[1] != '\0')
    PyOS_snprintf(out, size, "format '%.8s'", format);
  else if (strchr("efdg", bare[0]) != NULL)
    PyOS_snprintf(out, size, "%sfloat%d", order, bits);
  else if (strchr("bhilqn", bare[0]) != NULL)
    PyOS_snprintf(out, size, "%sint%d", order, bits);
  else if (strchr("BHILQN", bare[0]) != NULL)
    PyOS_snprintf(out, size, "%suint%d", order, bits);
  else if (bare[0] == 'O')
    PyOS_snprintf(out, size, "object");
  else
    PyOS_snprintf(out, size, "format '%.8s'", format);
}

/* The types of ml_dtypes that the engine has. */
static const struct {
  const char *name, *same_size;
  int dtype;
} named[] = {{"bfloat16", "uint16", FAL_BF16}, {"float8_e4m3fn", "uint8", FAL_E4M3}};

/* The array as whole numbers where its type is one of these, else null; with an exception only where something failed.
 */
static PyObject* as_whole_numbers(PyObject* object, int* type) {
  PyObject* dtype = PyObject_GetAttrString(object, "dtype");
  PyObject* name = dtype != NULL ? PyObject_GetAttrString(dtype, "name") : NULL;
  PyObject* words = NULL;
  PyErr_Clear();
  for (int i = 0; i < 2 && name != NULL && PyUnicode_Check(name); ++i) {
    if (PyUnicode_CompareWithASCIIString(name, named[i].name) != 0) continue;
    words = PyObject_CallMethod(object, "view", "s", named[i].same_size);
    *type = named[i].dtype;
  }
  Py_XDECREF(name);
  Py_XDECREF(dtype);
  return words;
}

static int get_buffer(PyObject* object, int writes, array* out) {
  const int flags = PyBUF_STRIDES | PyBUF_FORMAT | (writes ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(object, &out->buffer, flags) == 0) return out->has_buffer = 1;
  if (writes && (PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_BufferError))) {
    /* A read-only array is ValueError with numpy, as is a type without a format, and BufferError with memoryview. */
    PyErr_Clear();
    if (PyObject_GetBuffer(object, &out->buffer, flags & ~PyBUF_WRITABLE) != 0) return 0;
    return out->has_buffer = out->read_only = 1;
  }
  return 0;
}

int read_by_buffer(PyObject* object, int writes, array* out) {
  int named_type = 0;
  if (!get_buffer(object, writes, out)) {
    PyObject *type, *value, *trace, *words;
    PyErr_Fetch(&type, &value, &trace);
    words = as_whole_numbers(object, &named_type);
    if (words == NULL && value != NULL && PyErr_GivenExceptionMatches(type, PyExc_ValueError)) {
      raise_text(FAL_INVALID, NULL, "%s has a type without a buffer: %S", out->name, value);
      Py_XDECREF(type);
      Py_XDECREF(value);
      Py_XDECREF(trace);
      return 0;
    }
    if (words == NULL) {
      PyErr_Restore(type, value, trace);
      return 0;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    out->kept = words;
    if (!get_buffer(words, writes, out)) return 0;
  }
  {
    const Py_buffer* buffer = &out->buffer;
    out->dtype = named_type != 0 ? named_type : dtype_of(buffer->format, buffer->itemsize);
    if (out->dtype == TYPE_OTHER) name_other(buffer->format, buffer->itemsize, out->other_type, sizeof out->other_type);
    if (buffer->ndim > WHOLE_AXES) {
      raise_text(FAL_INVALID, NULL, "%s has %d axes: no argument has more than %d", out->name, buffer->ndim,
                 WHOLE_AXES);
      return 0;
    }
    if (buffer->itemsize <= 0) {
      raise_text(FAL_INVALID, NULL, "%s has elements of %zd bytes: there is nothing to read", out->name,
                 buffer->itemsize);
      return 0;
    }
    out->rank = buffer->ndim;
    out->data = buffer->buf;
    for (int i = 0; i < buffer->ndim; ++i) {
      out->shape[i] = buffer->shape[i];
      out->stride[i] = buffer->strides[i] / buffer->itemsize;
      if (out->shape[i] <= 1 || buffer->strides[i] % buffer->itemsize == 0) continue;
      raise_text(FAL_INVALID, NULL, "%s: axis %d has a stride of %zd bytes, which is no multiple of its elements' %zd",
                 out->name, i, buffer->strides[i], buffer->itemsize);
      return 0;
    }
  }
  return 1;
}
