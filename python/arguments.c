/* arguments.c: which argument is which, and numbers, flags and words out of Python's objects. Names of arguments are
 * interned, hence they are mostly found by their address. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "fal.h"

int ready_signature(signature* s) {
  for (s->count = 0; s->names[s->count] != NULL; ++s->count) {
    if (s->count == MOST_ARGUMENTS) {
      PyErr_SetString(PyExc_SystemError, "a function has more arguments than MOST_ARGUMENTS");
      return 0;
    }
    s->interned[s->count] = PyUnicode_InternFromString(s->names[s->count]);
    if (s->interned[s->count] == NULL) return 0;
  }
  return 1;
}

static int index_of(const signature* s, PyObject* name) {
  for (int i = 0; i < s->count; ++i)
    if (s->interned[i] == name) return i;
  for (int i = 0; i < s->count; ++i)
    if (PyUnicode_Compare(s->interned[i], name) == 0) return i;
  return -1;
}

static int set_by_name(const signature* s, PyObject* name, PyObject* value, PyObject** values) {
  const int at = index_of(s, name);
  if (at >= 0 && values[at] == NULL) {
    values[at] = value;
    return 1;
  }
  if (!PyErr_Occurred())
    PyErr_Format(PyExc_TypeError, at < 0 ? "%s() has no argument '%U'" : "%s() was given '%U' twice", s->function,
                 name);
  return 0;
}

static int begin_values(const signature* s, Py_ssize_t count, PyObject** values) {
  memset(values, 0, (size_t)s->count * sizeof *values);
  if (count <= s->positional) return 1;
  PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional arguments, but %zd were given", s->function,
               s->positional, count);
  return 0;
}

/* None counts as not given. */
static int end_values(const signature* s, PyObject** values) {
  for (int i = 0; i < s->count; ++i) {
    if (values[i] == Py_None) values[i] = NULL;
    if (i >= s->required || values[i] != NULL) continue;
    PyErr_Format(PyExc_TypeError, "%s() needs the argument '%U'", s->function, s->interned[i]);
    return 0;
  }
  return 1;
}

int bind(const signature* s, PyObject* const* args, Py_ssize_t count, PyObject* names, PyObject** values) {
  const Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0;
  if (!begin_values(s, count, values)) return 0;
  for (Py_ssize_t i = 0; i < count; ++i) values[i] = args[i];
  for (Py_ssize_t i = 0; i < named; ++i)
    if (!set_by_name(s, PyTuple_GetItem(names, i), args[count + i], values)) return 0;
  return end_values(s, values);
}

int bind_tuple(const signature* s, PyObject* args, PyObject* keywords, PyObject** values) {
  const Py_ssize_t count = PyTuple_Size(args);
  PyObject *name, *value;
  Py_ssize_t at = 0;
  if (!begin_values(s, count, values)) return 0;
  for (Py_ssize_t i = 0; i < count; ++i) values[i] = PyTuple_GetItem(args, i);
  while (keywords != NULL && PyDict_Next(keywords, &at, &name, &value))
    if (!set_by_name(s, name, value, values)) return 0;
  return end_values(s, values);
}

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

/* A whole number as an int, or null with an exception. */
static PyObject* whole(const char* name, PyObject* object) {
  PyObject* number = PyNumber_Index(object);
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
  const double value = PyFloat_AsDouble(object);
  if (value != -1 || !PyErr_Occurred()) {
    if (!fits_float32(name, value)) return 0;
    *out = (float)value;
    return 1;
  }
  if (PyErr_ExceptionMatches(PyExc_TypeError)) return raise_type(name, "a number", object);
  if (PyErr_ExceptionMatches(PyExc_OverflowError)) return raise_range(name, object, "the range of a float");
  return 0;
}

int to_flag(const char* name, PyObject* object, uint8_t* out) {
  if (object != NULL && !PyBool_Check(object)) return raise_type(name, "True or False", object);
  *out = object == Py_True;
  return 1;
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
