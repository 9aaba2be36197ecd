/* functions/explain.c: what a call of gemm or of a norm would decide and why. It takes the steps of the call itself,
 * with shapes in the place of arrays where the caller has none, up to the plan, and tells of that one instead of
 * running it. */
#include "fal.h"

typedef PyObject* (*function)(explanation* story, PyObject* const* args, Py_ssize_t count, PyObject* names);
static const char* const names_of[] = {"gemm", "layer_norm", "rms_norm", NULL};
static const function functions[] = {call_gemm, call_layer_norm, call_rms_norm};

/* _explain_call(op, dtype, target, *arguments, **options): (text, JSON) */
FUNCTION(explain_call) {
  explanation story = {0, NULL, NULL};
  PyObject* outputs;
  int op;
  (void)module;
  if (count < 3) {
    PyErr_SetString(PyExc_TypeError, "_explain_call() takes op, dtype, target and the arguments of the function");
    return NULL;
  }
  if (!to_word("op", args[0], names_of, &op)) return NULL;
  if (args[1] != Py_None && !read_dtype("dtype", args[1], GEMM_TYPES, &story.dtype)) return NULL;
  if (args[2] != Py_None) story.target = args[2];
  outputs = functions[op](&story, args + 3, count - 3, names);
  if (outputs == NULL) Py_CLEAR(story.texts);
  Py_XDECREF(outputs);
  return story.texts;
}
