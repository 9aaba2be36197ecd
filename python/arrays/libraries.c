/* arrays/libraries.c: which library an array is of and how its arrays are read. This is asked for each argument of each
 * call, so the answer is remembered for each type. A type that is remembered is kept alive, hence its address stays its
 * own. */
#include <string.h>

#include "fal.h"

enum { REMEMBERED = 16 };
static struct {
  PyTypeObject* type;
  library library;
} remembered[REMEMBERED];
static int count, next;

/* An attribute that may be missing: null then, and no exception. */
static PyObject* attribute(PyObject* object, const char* name) {
  PyObject* value = PyObject_GetAttrString(object, name);
  if (value == NULL) PyErr_Clear();
  return value;
}

static int has(PyObject* object, const char* name) {
  PyObject* value = attribute(object, name);
  Py_XDECREF(value);
  return value != NULL;
}

/* The table of functions that a type offers, of a version that we can read, or null. torch has it from 2.10 on. */
static const DLPackExchangeAPI* table_of(PyObject* type) {
  PyObject* capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
  const DLPackExchangeAPI* api = NULL;
  if (capsule == NULL) PyErr_Clear();
  if (capsule != NULL && PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
    api = (const DLPackExchangeAPI*)PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  Py_XDECREF(capsule); /* The table lives as long as the process. */
  while (api != NULL && api->header.version.major > DLPACK_MAJOR_VERSION)
    api = (const DLPackExchangeAPI*)api->header.prev_api; /* the table of an older version begins with its header too */
  return api != NULL && api->header.version.major == DLPACK_MAJOR_VERSION &&
                 api->dltensor_from_py_object_no_sync != NULL
             ? api
             : NULL;
}

/* Is this type numpy's ndarray, or made from it? numpy is not imported: where it is not, nobody has an array of it. */
static int is_numpy(PyTypeObject* type) {
  PyObject* name = PyUnicode_FromString("numpy");
  PyObject* numpy = name != NULL ? PyImport_GetModule(name) : NULL;
  PyObject* ndarray = numpy != NULL ? PyObject_GetAttrString(numpy, "ndarray") : NULL;
  int is = ndarray != NULL && PyType_Check(ndarray) && PyType_IsSubtype(type, (PyTypeObject*)ndarray);
  PyErr_Clear();
  Py_XDECREF(ndarray);
  Py_XDECREF(numpy);
  Py_XDECREF(name);
  return is;
}

/* The top of the name of the module that a type is from: "torch" of torch.nn.parameter. */
static PyObject* top_of(PyObject* type) {
  PyObject* module = PyObject_GetAttrString(type, "__module__");
  PyObject *parts = NULL, *top = NULL;
  if (module != NULL && PyUnicode_Check(module)) parts = PyObject_CallMethod(module, "split", "si", ".", 1);
  if (parts != NULL) top = PySequence_GetItem(parts, 0);
  Py_XDECREF(parts);
  Py_XDECREF(module);
  if (top == NULL) PyErr_Clear();
  if (top == NULL) top = PyUnicode_FromString("an unknown module");
  if (top != NULL) PyUnicode_InternInPlace(&top);
  return top;
}

/* Of which libraries is it known what their function `empty` does? Any other module may have one that does something
 * else. */
static int makes_arrays(PyObject* name) {
  static const char* const known[] = {"numpy", "torch", "cupy", NULL};
  for (int i = 0; known[i] != NULL; ++i)
    if (PyUnicode_CompareWithASCIIString(name, known[i]) == 0) return 1;
  return 0;
}

/* The functions and types that a library makes arrays by. Those of numba's GPU are below numba.cuda and take the names
 * of NumPy's types. */
static void find_makers(library* out) {
  PyObject* module = PyImport_GetModule(out->name);
  if (module != NULL && PyUnicode_CompareWithASCIIString(out->name, "numba") == 0) {
    PyObject* cuda = attribute(module, "cuda");
    out->empty = cuda != NULL ? attribute(cuda, "device_array") : NULL;
    out->float32 = PyUnicode_InternFromString("float32");
    out->uint8 = PyUnicode_InternFromString("uint8");
    Py_XDECREF(cuda);
  } else if (module != NULL && makes_arrays(out->name)) {
    out->empty = attribute(module, "empty");
    out->empty_like = attribute(module, "empty_like");
    out->float32 = attribute(module, "float32");
    out->uint8 = attribute(module, "uint8");
  }
  Py_XDECREF(module);
  PyErr_Clear();
}

/* Have arrays of this type elements that do not count? So have those of numpy.ma (mask, filled), astropy (mask,
 * unmasked) and torch.masked (get_mask, get_data). Their memory does not say which ones. */
static int is_masked(PyObject* type) {
  return (has(type, "mask") && (has(type, "filled") || has(type, "unmasked"))) ||
         (has(type, "get_mask") && has(type, "get_data"));
}

int has_no_mask(const char* name, PyObject* object, const library* from) {
  PyObject* type;
  if (!from->has_mask) return 1;
  type = PyType_GetQualName(Py_TYPE(object));
  if (type != NULL)
    raise_text(FAL_UNSUPPORTED, NULL,
               "%s is a %U of %U, an array with a mask, and Falchion reads every element of an array: give what the "
               "elements that do not count shall be (its filled()), and say by an argument which keys may be seen",
               name, type, from->name);
  Py_XDECREF(type);
  return 0;
}

static int look_at(PyObject* object, library* out) {
  PyTypeObject* type = Py_TYPE(object);
  memset(out, 0, sizeof *out);
  out->api = table_of((PyObject*)type);
  if (out->api != NULL)
    out->by = BY_TABLE;
  else if (is_numpy(type))
    out->by = BY_BUFFER;
  else if (has((PyObject*)type, "__dlpack__") && has((PyObject*)type, "__dlpack_device__"))
    out->by = BY_DLPACK;
  else if (has((PyObject*)type, "__cuda_array_interface__"))
    out->by = BY_CUDA_INTERFACE;
  else if (PyObject_CheckBuffer(object))
    out->by = BY_BUFFER;
  if (out->by == 0) return 1;
  out->has_new_empty = has((PyObject*)type, "new_empty");
  out->has_mask = is_masked((PyObject*)type);
  /* What is made from numpy's or torch's classes is of their library, whoever wrote the class. */
  if (out->by == BY_BUFFER && is_numpy(type))
    out->name = PyUnicode_InternFromString("numpy");
  else if (out->has_new_empty && out->api != NULL)
    out->name = PyUnicode_InternFromString("torch");
  else
    out->name = top_of((PyObject*)type);
  if (out->name == NULL) return 0;
  find_makers(out);
  return 1;
}

int library_of(PyObject* object, library* out) {
  PyTypeObject *type = Py_TYPE(object), *forgotten;
  for (int i = 0; i < count; ++i)
    if (remembered[i].type == type) {
      *out = remembered[i].library;
      return 1;
    }
  if (!look_at(object, out)) return 0;
  if (out->by == 0) return 1;
  /* A full table forgets its types in turn. What an entry refers to besides its type is a function of a module and a
   * name; these are left alive, because a call that goes on may hold them too. */
  forgotten = count < REMEMBERED ? NULL : remembered[next].type;
  if (count < REMEMBERED) ++count;
  Py_INCREF((PyObject*)type);
  remembered[next].type = type;
  remembered[next].library = *out;
  next = (next + 1) % REMEMBERED;
  Py_XDECREF((PyObject*)forgotten); /* last, for what this frees may run code that calls us again */
  return 1;
}

PyObject* look_up(PyObject* module_name, const char* path) {
  PyObject* at = PyImport_GetModule(module_name);
  while (at != NULL && *path != '\0') {
    char part[48];
    size_t length = strcspn(path, ".");
    PyObject* below;
    PyOS_snprintf(part, sizeof part, "%.*s", (int)length, path);
    below = PyObject_GetAttrString(at, part);
    Py_DECREF(at);
    at = below;
    path += length + (path[length] == '.');
  }
  if (at == NULL && !PyErr_Occurred()) PyErr_Format(PyExc_ImportError, "%U is not imported", module_name);
  return at;
}

int knows_stream_of(const library* from) {
  return from->by == BY_TABLE || PyUnicode_CompareWithASCIIString(from->name, "torch") == 0 ||
         PyUnicode_CompareWithASCIIString(from->name, "cupy") == 0;
}
