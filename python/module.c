/* module.c: the module falchion._fal: its functions and exceptions. What each function takes and gives is written in
 * falchion/_fal.pyi, and in short in the docstrings here. */
#include "docstrings.inc"
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
    {"attention", WITH_NAMES(py_attention), DOC_attention},
    {"attention_backward", WITH_NAMES(py_attention_backward), DOC_attention_backward},
    {"varlen", WITH_NAMES(py_varlen), DOC_varlen},
    {"varlen_backward", WITH_NAMES(py_varlen_backward), DOC_varlen_backward},
    {"linear_attention", WITH_NAMES(py_linear_attention), DOC_linear_attention},
    {"linear_attention_backward", WITH_NAMES(py_linear_attention_backward), DOC_linear_attention_backward},
    {"merge", WITH_NAMES(py_merge), DOC_merge},
    {"validate_lengths", WITH_NAMES(py_validate_lengths), DOC_validate_lengths},
    {"_explain_text", (PyCFunction)(void (*)(void))explain_text, METH_VARARGS | METH_KEYWORDS,
     "What a plan would decide and why, also where there is none: (text, JSON)."},
    {"plan_cache_info", plan_cache_info, METH_NOARGS, DOC_plan_cache_info},
    {"plan_cache_clear", plan_cache_clear, METH_NOARGS, DOC_plan_cache_clear},
    {"release_workspaces", release_workspaces, METH_NOARGS, DOC_release_workspaces},
    {"version", version, METH_NOARGS, DOC_version},
    {"build_info", build_info, METH_NOARGS, DOC_build_info},
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
  PyObject* module = check_same_library() ? PyModule_Create(&definition) : NULL;
  if (module != NULL && add_errors(module) && add_plan_type(module) && ready_attention() &&
      ready_attention_backward() && ready_linear() && ready_merge())
    return module;
  Py_XDECREF(module);
  return NULL;
}
