/* python/_fal.c: a placeholder. */
#include <Python.h>
#include "falchion/falchion.h"
static PyObject* version(PyObject* self, PyObject* unused) {
  (void)self; (void)unused;
  return PyUnicode_FromString(fal_version());
}
static PyMethodDef methods[] = {{"version", version, METH_NOARGS, ""}, {NULL, NULL, 0, NULL}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_fal", NULL, 0, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__fal(void) { return PyModule_Create(&module); }
