/* module.c: the module falchion._fal: its functions and exceptions. What each function takes and gives is written in
 * falchion/_fal.pyi, and in short in the docstrings here. */
#include "fal.h"

static PyObject* version(PyObject* module, PyObject* none) {
  (void)module;
  (void)none;
  return PyUnicode_FromString(fal_version());
}

static PyObject* build_info(PyObject* module, PyObject* none) {
  const char* text = fal_build_info();
  (void)module;
  (void)none;
  if (text != NULL) return PyUnicode_FromString(text);
  raise_why(FAL_DEVICE, NULL);
  return NULL;
}

#define WITH_NAMES(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS

static PyMethodDef functions[] = {
    {"attention", WITH_NAMES(py_attention), "Exact softmax attention: O = softmax(scale Q K^T) V."},
    {"attention_backward", WITH_NAMES(py_attention_backward), "The gradients of attention: (grad_q, grad_k, grad_v)."},
    {"varlen", WITH_NAMES(py_varlen), "Attention of sequences that are packed one after another: (total, h, d)."},
    {"varlen_backward", WITH_NAMES(py_varlen_backward), "The gradients of varlen: (grad_q, grad_k, grad_v)."},
    {"plan_cache_info", plan_cache_info, METH_NOARGS, "How often a plan was found and made, and how many are kept."},
    {"plan_cache_clear", plan_cache_clear, METH_NOARGS, "Frees the plans that are kept."},
    {"release_workspaces", release_workspaces, METH_NOARGS, "Frees the workspaces of this thread."},
    {"version", version, METH_NOARGS, "The version of the library, as \"0.1.0\"."},
    {"build_info", build_info, METH_NOARGS, "How the library was built and what it found here, as text."},
    {NULL, NULL, 0, NULL}};

/* One state for the process (m_size = -1): the plans and the remembered types are shared by all who import it. */
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                        "falchion._fal",
                                        "Attention on arrays of any library.",
                                        -1,
                                        functions,
                                        NULL,
                                        NULL,
                                        NULL,
                                        NULL};

PyMODINIT_FUNC PyInit__fal(void) {
  PyObject* module = PyModule_Create(&definition);
  if (module != NULL && add_errors(module) && ready_attention() && ready_attention_backward()) return module;
  Py_XDECREF(module);
  return NULL;
}
