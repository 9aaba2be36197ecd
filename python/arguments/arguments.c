/* arguments/arguments.c: which argument is which. Names of arguments are interned, hence they are mostly found by their
 * address. */
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
  if (PyErr_Occurred()) return 0;
  if (at >= 0) {
    PyErr_Format(PyExc_TypeError, "%s() was given '%U' twice", s->function, name);
  } else {
    PyObject* parameters = PyTuple_New(s->count);
    for (int i = 0; i < s->count && parameters != NULL; ++i) PyTuple_SetItem(parameters, i, Py_NewRef(s->interned[i]));
    if (parameters != NULL) raise_no_argument(s->function, name, parameters);
    Py_XDECREF(parameters);
  }
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
