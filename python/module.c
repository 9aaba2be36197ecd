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
    {"gemm", WITH_NAMES(py_gemm), DOC_gemm},
    {"layer_norm", WITH_NAMES(py_layer_norm), DOC_layer_norm},
    {"rms_norm", WITH_NAMES(py_rms_norm), DOC_rms_norm},
    {"layer_norm_backward", WITH_NAMES(py_layer_norm_backward), DOC_layer_norm_backward},
    {"rms_norm_backward", WITH_NAMES(py_rms_norm_backward), DOC_rms_norm_backward},
    {"quantise", WITH_NAMES(py_quantise), DOC_quantise},
    {"merge", WITH_NAMES(py_merge), DOC_merge},
    {"validate_lengths", WITH_NAMES(py_validate_lengths), DOC_validate_lengths},
    {"_explain_text", (PyCFunction)(void (*)(void))explain_text, METH_VARARGS | METH_KEYWORDS,
     "What a plan would decide and why, also where there is none: (text, JSON)."},
    {"_explain_call", WITH_NAMES(explain_call), "What a call of gemm or of a norm would decide and why: (text, JSON)."},
    {"_torch_are_ordinary", (PyCFunction)(void (*)(void))torch_are_ordinary, METH_FASTCALL,
     "Whether nothing but the call itself has to see these tensors of torch."},
    {"_torch_attention", WITH_NAMES(torch_attention),
     "falchion.torch.attention of ordinary tensors, of which none needs a gradient."},
    {"_number", as_number, METH_VARARGS, "_number(name, object): an option as a number of Python."},
    {"_whole", as_whole, METH_VARARGS, "_whole(name, object): the same of a whole number."},
    {"_flag", as_flag, METH_VARARGS, "_flag(name, object): the same of True and False."},
    {"_no_argument", no_argument, METH_VARARGS, "_no_argument(function, name, parameters): raises TypeError."},
    {"plan_cache_info", plan_cache_info, METH_NOARGS, DOC_plan_cache_info},
    {"plan_cache_clear", plan_cache_clear, METH_NOARGS, DOC_plan_cache_clear},
    {"release_workspaces", release_workspaces, METH_NOARGS, DOC_release_workspaces},
    {"version", version, METH_NOARGS, DOC_version},
    {"build_info", build_info, METH_NOARGS, DOC_build_info},
    {NULL, NULL, 0, NULL}};

/* What is static here belongs to one interpreter: its classes, its remembered types. Another one of the same process
 * would hand objects from one to the other, so it is refused. */
static int is_first_interpreter(void) {
  static int64_t first = -1;
  const int64_t mine = PyInterpreterState_GetID(PyInterpreterState_Get());
  if (mine < 0) return 0;
  if (first < 0) first = mine;
  if (first == mine) return 1;
  PyErr_SetString(PyExc_ImportError,
                  "falchion works in one interpreter of a process, and another one has imported it: sub-interpreters "
                  "are not supported; please use threads or processes");
  return 0;
}

/* One module for the process: who imports it anew, without the entry in sys.modules, gets the same one. */
static PyObject* the_module;

static PyObject* create(PyObject* spec, PyModuleDef* definition) {
  (void)spec;
  (void)definition;
  if (!is_first_interpreter() || !check_same_library()) return NULL;
  return the_module != NULL ? Py_NewRef(the_module) : PyModule_New("falchion._fal");
}

static int fill(PyObject* module) {
  if (module == the_module) return 0;
  if (!add_errors(module) || !add_plan_type(module) || !ready_attention() || !ready_attention_backward() ||
      !ready_linear() || !ready_gemm() || !ready_norm() || !ready_norm_backward() || !ready_quantise() ||
      !ready_merge() || !ready_torch() || !add_options(module))
    return -1;
  the_module = Py_NewRef(module);
  return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_create, (void*)create}, {Py_mod_exec, (void*)fill}, {0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                        "falchion._fal",
                                        "Attention on arrays of any library.",
                                        0,
                                        functions,
                                        slots,
                                        NULL,
                                        NULL,
                                        NULL};

PyMODINIT_FUNC PyInit__fal(void) { return PyModuleDef_Init(&definition); }
