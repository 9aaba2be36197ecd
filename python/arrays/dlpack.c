/* arrays/dlpack.c: arrays by DLPack: the DLTensor that the exchange table fills in, or the capsule that the method
 * __dlpack__ gives. */
#include "fal.h"

static int dtype_of(DLDataType type) {
  if (type.lanes != 1) return TYPE_OTHER;
  switch (type.code) {
    case kDLFloat: return type.bits == 32 ? FAL_F32 : type.bits == 16 ? FAL_F16 : TYPE_OTHER;
    case kDLBfloat: return type.bits == 16 ? FAL_BF16 : TYPE_OTHER;
    case kDLBool: return type.bits == 8 ? FAL_BOOL : TYPE_OTHER;
    case kDLInt: return type.bits == 8 ? FAL_I8 : type.bits == 32 ? FAL_I32 : type.bits == 64 ? TYPE_I64 : TYPE_OTHER;
    case kDLUInt: return type.bits == 64 ? TYPE_U64 : type.bits == 8 ? TYPE_U8 : TYPE_OTHER;
    case kDLFloat8_e4m3fn: return type.bits == 8 ? FAL_E4M3 : TYPE_OTHER;
    default: return TYPE_OTHER;
  }
}

/* What a message calls a type that the engine does not take: "float64". */
static void name_other(DLDataType type, char* out, size_t size) {
  static const char* const names[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  static const char* const small[] = {"float8_e3m4",     "float8_e4m3",   "float8_e4m3b11fnuz", "float8_e4m3fn",
                                      "float8_e4m3fnuz", "float8_e5m2",   "float8_e5m2fnuz",    "float8_e8m0fnu",
                                      "float6_e2m3fn",   "float6_e3m2fn", "float4_e2m1fn"}; /* from code 7 on */
  const size_t count = sizeof names / sizeof names[0];
  if (type.code < count)
    PyOS_snprintf(out, size, "%s%d", names[type.code], type.bits);
  else if (type.code < count + sizeof small / sizeof small[0])
    PyOS_snprintf(out, size, "%s", small[type.code - count]);
  else
    PyOS_snprintf(out, size, "number %d of %d bits", type.code, type.bits);
}

int read_dltensor(const DLTensor* from, array* out) {
  int64_t dense = 1;
  if (from->ndim < 0 || from->ndim > WHOLE_AXES) {
    raise_text(FAL_INVALID, NULL, "%s has %d axes: no argument has more than %d", out->name, (int)from->ndim,
               WHOLE_AXES);
    return 0;
  }
  switch (from->device.device_type) {
    case kDLCPU:
    case kDLCUDAHost: break;
    case kDLCUDA:
    case kDLCUDAManaged:
      out->on_gpu = 1;
      out->device = from->device.device_id;
      break;
    default:
      raise_text(FAL_UNSUPPORTED, NULL,
                 "%s lies on a device of DLPack's type %d: Falchion runs on the host (1) and on CUDA's (2)", out->name,
                 (int)from->device.device_type);
      return 0;
  }
  if (from->ndim > 0 && from->shape == NULL) {
    PyErr_Format(PyExc_TypeError, "%s: DLPack gave no shape", out->name);
    return 0;
  }
  out->rank = from->ndim;
  for (int i = from->ndim - 1; i >= 0; --i) {
    out->shape[i] = from->shape[i];
    out->stride[i] = from->strides != NULL ? from->strides[i] : dense;
    if (from->strides == NULL) dense *= from->shape[i] > 0 ? from->shape[i] : 1;
  }
  out->data = from->data != NULL ? (char*)from->data + from->byte_offset : NULL;
  out->dtype = dtype_of(from->dtype);
  if (out->dtype == TYPE_OTHER) name_other(from->dtype, out->other_type, sizeof out->other_type);
  return 1;
}

/* Is the array on a GPU? */
static int is_on_gpu(PyObject* object, int* on_gpu) {
  PyObject* device = PyObject_CallMethod(object, "__dlpack_device__", NULL);
  PyObject* type = device != NULL ? PySequence_GetItem(device, 0) : NULL;
  PyObject* index = type != NULL ? PyNumber_Index(type) : NULL;
  long value = index != NULL ? PyLong_AsLong(index) : -1;
  Py_XDECREF(index);
  Py_XDECREF(type);
  Py_XDECREF(device);
  if (value == -1 && PyErr_Occurred()) return 0;
  *on_gpu = value == kDLCUDA || value == kDLCUDAManaged;
  return 1;
}

/* What __dlpack__ is told of streams: -1, do not wait, where the run goes to the stream that the library works on.
 * Where that one is not known (as of JAX, which has several) the run goes to the one that the caller names, or to the
 * default one, which is 1 here, and the library makes that one wait for what is still written into the array. */
static PyObject* stream_number(const library* from, void* stream) {
  if (knows_stream_of(from)) return PyLong_FromLong(-1);
  return stream != NULL ? PyLong_FromVoidPtr(stream) : PyLong_FromLong(1);
}

/* Calls object.__dlpack__, at first with max_version, which libraries older than DLPack 1.0 do not know. */
static PyObject* capsule_of(PyObject* object, const library* from, int on_gpu, void* stream) {
  PyObject* method = PyObject_GetAttrString(object, "__dlpack__");
  PyObject* none = PyTuple_New(0);
  PyObject* keywords = on_gpu ? Py_BuildValue("{s:N,s:(ii)}", "stream", stream_number(from, stream), "max_version",
                                              DLPACK_MAJOR_VERSION, 0)
                              : Py_BuildValue("{s:(ii)}", "max_version", DLPACK_MAJOR_VERSION, 0);
  PyObject* capsule = NULL;
  if (method != NULL && none != NULL && keywords != NULL) {
    capsule = PyObject_Call(method, none, keywords);
    if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Clear();
      if (PyDict_DelItemString(keywords, "max_version") == 0) capsule = PyObject_Call(method, none, keywords);
    }
  }
  Py_XDECREF(keywords);
  Py_XDECREF(none);
  Py_XDECREF(method);
  return capsule;
}

int read_by_dlpack(PyObject* object, void* stream, array* out) {
  PyObject* plain = NULL;
  int on_gpu = 0;
  /* torch before 2.10 gives no capsule of a tensor that requires a gradient. */
  if (out->from.has_new_empty && PyObject_HasAttrString(object, "detach"))
    plain = PyObject_CallMethod(object, "detach", NULL);
  else {
    plain = object;
    Py_INCREF(plain);
  }
  if (plain != NULL && is_on_gpu(plain, &on_gpu)) out->kept = capsule_of(plain, &out->from, on_gpu, stream);
  Py_XDECREF(plain);
  if (out->kept == NULL) return 0;
  /* The capsule is not renamed, so its own destructor frees the tensor when the call lets go of it. */
  if (PyCapsule_IsValid(out->kept, "dltensor_versioned")) {
    const DLManagedTensorVersioned* tensor = PyCapsule_GetPointer(out->kept, "dltensor_versioned");
    if (tensor->version.major == DLPACK_MAJOR_VERSION) {
      out->read_only = (tensor->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
      return read_dltensor(&tensor->dl_tensor, out);
    }
    raise_text(FAL_UNSUPPORTED, NULL, "%s: __dlpack__ gave version %u of DLPack, and Falchion reads version %d",
               out->name, (unsigned)tensor->version.major, DLPACK_MAJOR_VERSION);
    return 0;
  }
  if (PyCapsule_IsValid(out->kept, "dltensor")) {
    const DLManagedTensor* tensor = PyCapsule_GetPointer(out->kept, "dltensor");
    return read_dltensor(&tensor->dl_tensor, out);
  }
  PyErr_Format(PyExc_TypeError, "%s: __dlpack__ gave no capsule of DLPack", out->name);
  return 0;
}
