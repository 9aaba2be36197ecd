/* call/stream.c: the stream of a run on a GPU: the one that the caller names, or else the one that the arrays' library
 * works on now. A named one is made the current one of torch or cupy for the length of the call, because their
 * allocators hand memory out by streams: outputs and workspace then belong to the stream that the run is on. */
#include "fal.h"

/* A stream as a number: itself, or the number of torch's (cuda_stream) or cupy's (ptr). */
static int number_of(PyObject* stream, void** out) {
  PyObject* number;
  if (PyLong_Check(stream))
    number = Py_NewRef(stream);
  else {
    number = PyObject_GetAttrString(stream, "cuda_stream");
    if (number == NULL) {
      PyErr_Clear();
      number = PyObject_GetAttrString(stream, "ptr");
    }
    if (number == NULL) {
      PyErr_Clear();
      number = PyNumber_Index(stream);
    }
  }
  if (number == NULL || !PyLong_Check(number)) {
    PyErr_SetString(PyExc_TypeError, "stream must be a number, or a stream of torch or cupy");
    Py_XDECREF(number);
    return 0;
  }
  *out = PyLong_AsVoidPtr(number);
  Py_DECREF(number);
  return !PyErr_Occurred();
}

/* Enters a context of the library's, which leave_stream leaves. It takes the reference `context`, which may be null. */
static int enter(call* call, PyObject* context) {
  PyObject* done = context != NULL ? PyObject_CallMethod(context, "__enter__", NULL) : NULL;
  if (done != NULL) call->entered[call->entered[0] != NULL] = Py_NewRef(context);
  Py_XDECREF(done);
  Py_XDECREF(context);
  return done != NULL;
}

/* A stream that is a number, or another library's, as one of this library's. */
static PyObject* as_theirs(const call* call, PyObject* stream, const char* number) {
  const library* from = &call->leader->from;
  PyObject *external, *made = NULL;
  if (!PyLong_Check(stream) && PyObject_HasAttrString(stream, number)) return Py_NewRef(stream);
  external = look_up(from->name, "cuda.ExternalStream");
  if (external != NULL)
    made = PyObject_CallFunction(external, "Ni", PyLong_FromVoidPtr(call->stream), (int)call->leader->device);
  Py_XDECREF(external);
  return made;
}

static int enter_torch_stream(call* call, PyObject* stream) {
  PyObject* theirs = as_theirs(call, stream, "cuda_stream");
  PyObject* make = theirs != NULL ? look_up(call->leader->from.name, "cuda.stream") : NULL;
  PyObject* context = make != NULL ? PyObject_CallFunctionObjArgs(make, theirs, NULL) : NULL;
  Py_XDECREF(make);
  Py_XDECREF(theirs);
  return enter(call, context);
}

/* The one that was entered last is left first. An exception of the call itself stays. */
void leave_stream(call* call) {
  for (int i = 1; i >= 0; --i) {
    PyObject *type, *value, *trace, *left;
    if (call->entered[i] == NULL) continue;
    PyErr_Fetch(&type, &value, &trace);
    left = PyObject_CallMethod(call->entered[i], "__exit__", "OOO", Py_None, Py_None, Py_None);
    if (left == NULL) PyErr_Clear();
    Py_XDECREF(left);
    Py_CLEAR(call->entered[i]);
    PyErr_Restore(type, value, trace);
  }
}

int name_stream(call* call, PyObject* stream) {
  call->names_stream = stream != NULL;
  return stream == NULL || number_of(stream, &call->stream);
}

int follow_stream(call* call, const array* array) {
  if (array->stream == NULL || call->names_stream || call->stream == array->stream) return 1;
  if (call->stream == NULL) {
    call->stream = array->stream;
    return 1;
  }
  raise_text(FAL_INVALID, call,
             "%s is written on the stream %p, but another array of the call on %p: say which one the run goes to by "
             "stream=, once it waits for the other",
             array->name, array->stream, call->stream);
  return 0;
}

/* The stream that the library of the arrays works on now. One that says nothing of streams is on the default one. */
static int current_stream(call* call) {
  const library* from = &call->leader->from;
  PyObject *function, *stream = NULL;
  int ok;
  if (from->by == BY_TABLE) return from->api->current_work_stream(kDLCUDA, call->leader->device, &call->stream) == 0;
  if (PyUnicode_CompareWithASCIIString(from->name, "torch") == 0) {
    function = look_up(from->name, "_C._cuda_getCurrentRawStream");
    if (function != NULL) stream = PyObject_CallFunction(function, "i", (int)call->leader->device);
  } else if (PyUnicode_CompareWithASCIIString(from->name, "cupy") == 0) {
    function = look_up(from->name, "cuda.get_current_stream");
    if (function != NULL) stream = PyObject_CallFunctionObjArgs(function, NULL);
  } else {
    return 1;
  }
  ok = stream != NULL && number_of(stream, &call->stream);
  Py_XDECREF(stream);
  Py_XDECREF(function);
  return ok;
}

/* cupy makes arrays on its current device and tells of the stream of that one, so the arrays' device becomes current
 * for the length of the call. */
static int enter_cupy_device(call* call) {
  PyObject* make = look_up(call->leader->from.name, "cuda.Device");
  PyObject* device = make != NULL ? PyObject_CallFunction(make, "i", (int)call->leader->device) : NULL;
  Py_XDECREF(make);
  return enter(call, device);
}

int read_stream(call* call, PyObject* stream) {
  int is_cupy;
  if (!call->leader->on_gpu) {
    if (stream == NULL) return 1;
    raise_text(FAL_INVALID, call, "stream is given, but %s lies in the host's memory", call->leader->name);
    return 0;
  }
  is_cupy = PyUnicode_CompareWithASCIIString(call->leader->from.name, "cupy") == 0;
  if (is_cupy && !enter_cupy_device(call)) return 0;
  if (stream == NULL) return current_stream(call);
  if (is_cupy) return enter(call, as_theirs(call, stream, "ptr"));
  return !call->leader->from.has_new_empty || enter_torch_stream(call, stream);
}

/* What has no plan runs on the current device: that of the arrays, for the length of the call. */
int enter_device(call* call) {
  PyObject *make, *device;
  if (!call->leader->on_gpu || call->entered[0] != NULL || !call->leader->from.has_new_empty) return 1;
  make = look_up(call->leader->from.name, "cuda.device");
  device = make != NULL ? PyObject_CallFunction(make, "i", (int)call->leader->device) : NULL;
  Py_XDECREF(make);
  return enter(call, device);
}
