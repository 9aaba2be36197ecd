/* arguments/numbers.c: numbers, flags and words out of Python's objects: those of Python itself, scalars of NumPy, and
 * arrays and tensors without axes of any library. */
#include <float.h>
#include <math.h>

#include "fal.h"

/* TypeError: "window must be a whole number, not str", with the module of types that are not Python's own. */
static int raise_type(const char* name, const char* wanted, PyObject* object) {
  PyObject* type = PyType_GetName(Py_TYPE(object));
  PyObject* module = PyObject_GetAttrString((PyObject*)Py_TYPE(object), "__module__");
  PyErr_Clear();
  if (type != NULL && module != NULL && PyUnicode_Check(module) &&
      PyUnicode_CompareWithASCIIString(module, "builtins") != 0)
    PyErr_Format(PyExc_TypeError, "%s must be %s, not %U.%U", name, wanted, module, type);
  else if (type != NULL)
    PyErr_Format(PyExc_TypeError, "%s must be %s, not %U", name, wanted, type);
  Py_XDECREF(module);
  Py_XDECREF(type);
  return 0;
}

/* Does the name of an array's type have this word in it? */
static int has_dtype(PyObject* object, const char* word) {
  PyObject* dtype = PyObject_GetAttrString(object, "dtype");
  PyObject* name = dtype != NULL ? PyObject_Str(dtype) : NULL;
  PyObject* at = name != NULL ? PyObject_CallMethod(name, "find", "s", word) : NULL;
  const int has = at != NULL && PyLong_AsLong(at) >= 0;
  Py_XDECREF(at);
  Py_XDECREF(name);
  Py_XDECREF(dtype);
  PyErr_Clear();
  return has;
}

/* What an array may be that stands for a number: it has no mask, no imaginary part, which Python would drop with no
 * more than a warning, and autograd does not wait for its gradient. */
static int is_plain_number(const char* name, PyObject* object) {
  library from;
  PyObject* needs;
  int is = 1;
  if (PyFloat_Check(object) || PyLong_Check(object)) return 1;
  if (!library_of(object, &from) || !has_no_mask(name, object, &from)) return 0;
  if (has_dtype(object, "complex")) return raise_type(name, "a number", object);
  if (!from.has_new_empty) return 1;
  needs = PyObject_GetAttrString(object, "requires_grad");
  if (needs == NULL) PyErr_Clear();
  if (needs == Py_True) {
    raise_text(FAL_INVALID, NULL, "%s requires a gradient, and falchion computes none of an option: give %s.detach()",
               name, name);
    is = 0;
  }
  Py_XDECREF(needs);
  return is;
}

/* A whole number as an int, or null with an exception. */
static PyObject* whole(const char* name, PyObject* object) {
  PyObject* number = is_plain_number(name, object) ? PyNumber_Index(object) : NULL;
  if (number == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) raise_type(name, "a whole number", object);
  return number;
}

/* A number outside of 64 bits becomes Invalid, with the number as it is, unless it has hundreds of digits. */
static int raise_range(const char* name, PyObject* number, const char* range) {
  PyObject* text;
  PyErr_Clear();
  text = PyObject_Str(number);
  if (text == NULL || PyUnicode_GetLength(text) > 60) {
    PyErr_Clear();
    raise_text(FAL_INVALID, NULL, "%s has too many digits: it must be in %s", name, range);
  } else {
    raise_text(FAL_INVALID, NULL, "%s = %U: it must be in %s", name, text, range);
  }
  Py_XDECREF(text);
  return 0;
}

int to_int64(const char* name, PyObject* object, int64_t* out) {
  PyObject* number = whole(name, object);
  int ok = number != NULL;
  if (!ok) return 0;
  *out = PyLong_AsLongLong(number);
  if (*out == -1 && PyErr_Occurred()) ok = raise_range(name, number, "[-2^63, 2^63)");
  Py_DECREF(number);
  return ok;
}

int to_uint64(const char* name, PyObject* object, uint64_t* out) {
  PyObject* number = whole(name, object);
  int ok = number != NULL;
  if (!ok) return 0;
  *out = PyLong_AsUnsignedLongLong(number);
  if (*out == (uint64_t)-1 && PyErr_Occurred()) ok = raise_range(name, number, "[0, 2^64)");
  Py_DECREF(number);
  return ok;
}

/* A number that is not 0 but would be 0 as a float32, or a finite one that would be infinite, is refused. */
static int fits_float32(const char* name, double value) {
  const double size = fabs(value);
  PyObject* number;
  if (!isfinite(value) || size == 0 || ((float)size > 0 && size <= FLT_MAX)) return 1;
  number = PyFloat_FromDouble(value);
  if (number != NULL)
    raise_text(FAL_INVALID, NULL, "%s = %R: a float32 has sizes from 1.4e-45 to 3.4e38, and 0", name, number);
  Py_XDECREF(number);
  return 0;
}

int to_float(const char* name, PyObject* object, float* out) {
  const double value = is_plain_number(name, object) ? PyFloat_AsDouble(object) : -1;
  if (value != -1 || !PyErr_Occurred()) {
    if (!fits_float32(name, value)) return 0;
    *out = (float)value;
    return 1;
  }
  if (is_error_of_ours()) return 0;
  if (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError) ||
      PyErr_ExceptionMatches(PyExc_RuntimeError)) /* torch's of a tensor with several elements */
    return raise_type(name, "a number", object);
  if (PyErr_ExceptionMatches(PyExc_OverflowError)) return raise_range(name, object, "the range of a float");
  return 0;
}

/* Is it a bool without axes, as NumPy's scalar is? */
static int is_bool_array(PyObject* object) {
  PyObject* rank = has_dtype(object, "bool") ? PyObject_GetAttrString(object, "ndim") : NULL;
  const int is = rank != NULL && PyLong_Check(rank) && PyLong_AsLong(rank) == 0;
  Py_XDECREF(rank);
  PyErr_Clear();
  return is;
}

int is_bool(PyObject* object) { return PyBool_Check(object) || is_bool_array(object); }

int truth_of(PyObject* object) {
  PyObject* number;
  long value;
  if (object == Py_True || object == Py_False) return object == Py_True;
  number = PyNumber_Index(object);
  if (number == NULL) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
    PyErr_Clear();
    return is_bool_array(object) ? PyObject_IsTrue(object) : NO_TRUTH;
  }
  value = PyLong_AsLong(number);
  PyErr_Clear();
  Py_DECREF(number);
  return value == 0 || value == 1 ? (int)value : NO_TRUTH;
}

int is_list(PyObject* object) { return PyList_Check(object) || PyTuple_Check(object); }

int to_flag(const char* name, PyObject* object, uint8_t* out) {
  const int truth = object == NULL ? 0 : truth_of(object);
  if (truth == NO_TRUTH && PyLong_Check(object))
    raise_text(FAL_INVALID, NULL, "%s = %R: it must be True or False", name, object);
  else if (truth == NO_TRUTH)
    raise_type(name, "True or False", object);
  *out = truth == 1;
  return truth == 0 || truth == 1;
}

/* What falchion.torch and falchion.jax ask for their own options: _number(name, object) and its like. */
PyObject* as_number(PyObject* module, PyObject* args) {
  const char* name;
  PyObject* object;
  float rounded;
  (void)module;
  if (!PyArg_ParseTuple(args, "sO", &name, &object) || !to_float(name, object, &rounded)) return NULL;
  return PyFloat_FromDouble(PyFloat_AsDouble(object));
}

PyObject* as_whole(PyObject* module, PyObject* args) {
  const char* name;
  PyObject* object;
  int64_t number;
  (void)module;
  if (!PyArg_ParseTuple(args, "sO", &name, &object) || !to_int64(name, object, &number)) return NULL;
  return PyLong_FromLongLong(number);
}

PyObject* as_flag(PyObject* module, PyObject* args) {
  const char* name;
  PyObject* object;
  uint8_t is;
  (void)module;
  if (!PyArg_ParseTuple(args, "sO", &name, &object) || !to_flag(name, object, &is)) return NULL;
  return PyBool_FromLong(is);
}

int to_word(const char* name, PyObject* object, const char* const* words, int* out) {
  PyObject* list;
  if (!PyUnicode_Check(object)) return raise_type(name, "a string", object);
  for (int i = 0; words[i] != NULL; ++i)
    if (PyUnicode_CompareWithASCIIString(object, words[i]) == 0) {
      *out = i;
      return 1;
    }
  list = PyUnicode_FromFormat("\"%s\"", words[0]);
  for (int i = 1; words[i] != NULL && list != NULL; ++i) {
    PyObject* longer = PyUnicode_FromFormat("%U, \"%s\"", list, words[i]);
    Py_DECREF(list);
    list = longer;
  }
  if (list != NULL) raise_text(FAL_INVALID, NULL, "%s = %R: it is one of %U", name, object, list);
  Py_XDECREF(list);
  return 0;
}

int read_extents(const char* name, PyObject* shape, array* out) {
  const Py_ssize_t rank = PySequence_Size(shape);
  out->rank = rank > WHOLE_AXES ? WHOLE_AXES + 1 : (int)rank;
  for (int i = 0; i < out->rank && i < WHOLE_AXES; ++i) {
    PyObject* extent = PySequence_GetItem(shape, i);
    const int ok = extent != NULL && to_int64(name, extent, &out->shape[i]);
    Py_XDECREF(extent);
    if (!ok) return 0;
  }
  return 1;
}

/* "float16", numpy.float16, numpy.dtype("float16"), torch.float16: what str() of it ends with. */
int read_dtype(const char* argument, PyObject* dtype, int count, int32_t* out) {
  static const char* const all[] = {"float32", "float16", "bfloat16", "int32", "int8", "float8_e4m3fn"};
  static const int32_t types[] = {FAL_F32, FAL_F16, FAL_BF16, FAL_I32, FAL_I8, FAL_E4M3};
  const char* words[GEMM_TYPES + 1] = {NULL};
  PyObject* name = PyUnicode_Check(dtype) ? Py_NewRef(dtype) : PyObject_GetAttrString(dtype, "__name__");
  PyObject* parts = NULL;
  PyObject* last = NULL;
  int word = 0, ok = 0;
  for (int i = 0; i < count; ++i) words[i] = all[i];
  if (name == NULL) {
    PyErr_Clear();
    name = PyObject_Str(dtype);
  }
  if (name != NULL) parts = PyObject_CallMethod(name, "split", "s", ".");
  if (parts != NULL) last = PySequence_GetItem(parts, PySequence_Size(parts) - 1);
  if (last != NULL) ok = to_word(argument, last, words, &word);
  *out = types[word];
  Py_XDECREF(last);
  Py_XDECREF(parts);
  Py_XDECREF(name);
  return ok;
}
