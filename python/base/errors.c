/* base/errors.c: the exceptions. Error is the base of all; each of its subclasses is also a class of Python's own that
 * means the same, so that callers may catch either. */
#include <stdarg.h>
#include <string.h>

#include "fal.h"

static PyObject *error, *by_status[FAL_DEVICE + 1];

static PyObject* new_error(PyObject* module, const char* name, const char* doc, const char* code, PyObject* also) {
  char full[40];
  PyObject* bases = also != NULL ? PyTuple_Pack(2, error, also) : NULL;
  PyObject* made = NULL;
  PyObject* word = PyUnicode_FromString(code);
  PyOS_snprintf(full, sizeof full, "falchion.%s", name);
  if (word != NULL && (also == NULL || bases != NULL)) made = PyErr_NewExceptionWithDoc(full, doc, bases, NULL);
  if (made != NULL &&
      (PyObject_SetAttrString(made, "code", word) != 0 || PyModule_AddObjectRef(module, name, made) != 0))
    Py_CLEAR(made);
  Py_XDECREF(word);
  Py_XDECREF(bases);
  return made;
}

int is_error_of_ours(void) { return PyErr_ExceptionMatches(error); }

int add_errors(PyObject* module) {
  error =
      new_error(module, "Error",
                "The base of Falchion's exceptions. The text names the argument, its value and the limit; `code` is "
                "one word for the kind; __notes__ list the arrays of the call.",
                "error", NULL);
  if (error == NULL) return 0;
  by_status[FAL_OK] = error;
  by_status[FAL_INVALID] = new_error(module, "Invalid", "An argument that means nothing, or arrays that do not fit.",
                                     "invalid", PyExc_ValueError);
  by_status[FAL_UNSUPPORTED] = new_error(module, "Unsupported", "What is asked for has a meaning, but no kernel here.",
                                         "unsupported", PyExc_NotImplementedError);
  by_status[FAL_WORKSPACE] =
      new_error(module, "Workspace", "The workspace is too small or unaligned.", "workspace", PyExc_RuntimeError);
  by_status[FAL_DEVICE] =
      new_error(module, "Device", "The GPU, its driver or a thread pool failed.", "device", PyExc_RuntimeError);
  for (int i = FAL_INVALID; i <= FAL_DEVICE; ++i)
    if (by_status[i] == NULL) return 0;
  return 1;
}

/* "q: float32 (1, 2, 3, 4) of numpy, k: ..." */
static PyObject* note_of(const call* call) {
  PyObject* note = PyUnicode_FromFormat("%s of", call->function);
  for (int i = 0; i < call->count && note != NULL; ++i) {
    const array* a = &call->arrays[i];
    PyObject* line;
    char shape[96];
    size_t used = 0;
    shape[0] = '\0';
    for (int axis = 0; axis < a->rank; ++axis) {
      PyOS_snprintf(shape + used, sizeof shape - used, "%s%lld", axis == 0 ? "" : ", ", (long long)a->shape[axis]);
      used = strlen(shape);
    }
    line = PyUnicode_FromFormat("%U%s %s %s (%s%s)%s", note, i == 0 ? "" : ",", a->name, dtype_name(a), shape,
                                a->rank == 1 ? "," : "", a->on_gpu ? " on a GPU" : "");
    Py_DECREF(note);
    note = line;
  }
  return note;
}

/* Takes the text over. Whatever fails on the way is raised in its place. */
static void raise_object(fal_status status, const call* call, PyObject* text) {
  PyObject* type = status >= FAL_OK && status <= FAL_DEVICE ? by_status[status] : error;
  PyObject* exception = text != NULL ? PyObject_CallFunctionObjArgs(type, text, NULL) : NULL;
  Py_XDECREF(text);
  if (exception == NULL) return;
  if (call != NULL && call->count > 0) {
    PyObject* note = note_of(call);
    PyObject* added = note != NULL ? PyObject_CallMethod(exception, "add_note", "O", note) : NULL;
    Py_XDECREF(note);
    Py_XDECREF(added);
    if (added == NULL) {
      Py_DECREF(exception);
      return;
    }
  }
  PyErr_SetObject(type, exception);
  Py_DECREF(exception);
}

void raise_why(fal_status status, const call* call) {
  char text[2048];
  in_words_of_python(fal_why(), call, text, sizeof text);
  raise_object(status, call, PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace"));
}

void raise_text(fal_status status, const call* call, const char* format, ...) {
  va_list list;
  PyObject* text;
  va_start(list, format);
  text = PyUnicode_FromFormatV(format, list);
  va_end(list);
  raise_object(status, call, text);
}

PyObject* text_of(const char* text) {
  if (text != NULL) return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
  raise_why(FAL_DEVICE, NULL);
  return NULL;
}
