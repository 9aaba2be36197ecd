/* functions/torch_straight.c: the shortest way of falchion.torch: which tensors are ordinary, and attention of them
 * straight to C. What stands here was Python, where the questions alone took longer than to read the tensors. */
#include "fal.h"

/* What of torch is asked at each call, found once. A question takes some 0.05 us. */
enum {
  TENSOR,
  PARAMETER,
  DEVICE_CONTEXT,
  IS_NEG,
  IS_WRAPPED,
  IS_GRAD_ENABLED,
  FORWARD_AD,
  ANY_AUTOCAST,
  FUNCTION_MODES,
  FUNCTION_MODE_AT,
  DISPATCH_MODES,
  JIT_TRACE,
  TRANSFORMS,
  ASKED
};
static const char* const paths[] = {"Tensor",
                                    "nn.Parameter",
                                    "utils._device.DeviceContext",
                                    "Tensor.is_neg",
                                    "_C._functorch.is_functorch_wrapped_tensor",
                                    "is_grad_enabled",
                                    "autograd.forward_ad",
                                    "_C._is_any_autocast_enabled",
                                    "_C._len_torch_function_stack",
                                    "_C._get_function_stack_at",
                                    "_C._len_torch_dispatch_stack",
                                    "_C._is_tracing",
                                    "_C._functorch.peek_interpreter_stack"};
static PyObject* asked[ASKED];

static int find_torch(void) {
  PyObject* name;
  if (asked[ASKED - 1] != NULL) return 1;
  name = PyUnicode_FromString("torch");
  for (int i = 0; i < ASKED && name != NULL; ++i) {
    if (asked[i] == NULL) asked[i] = look_up(name, paths[i]);
    if (asked[i] == NULL) Py_CLEAR(name);
  }
  Py_XDECREF(name);
  return name != NULL;
}

/* 1 or 0 as the answer is true, -1 with an exception. None and 0 are not. */
static int says(PyObject* function, PyObject* argument) {
  PyObject* answer = PyObject_CallFunctionObjArgs(function, argument, NULL);
  const int is = answer != NULL ? PyObject_IsTrue(answer) : -1;
  Py_XDECREF(answer);
  return is;
}

/* The level of forward-mode AD is -1 where there is none. */
static int has_forward_mode(void) {
  static PyObject* level_of;
  PyObject* level;
  int has;
  if (level_of == NULL) level_of = PyUnicode_InternFromString("_current_level");
  level = level_of != NULL ? PyObject_GetAttr(asked[FORWARD_AD], level_of) : NULL;
  has = level != NULL ? PyLong_AsLong(level) >= 0 : -1;
  Py_XDECREF(level);
  return PyErr_Occurred() ? -1 : has;
}

/* Has a function mode to see the call? torch.set_default_device and `with device` are modes that change where new
 * tensors are made, and attention makes its own beside q: they need not see it. -1 with an exception. */
static int has_function_mode(void) {
  PyObject* number = PyObject_CallFunctionObjArgs(asked[FUNCTION_MODES], NULL);
  const long count = number != NULL ? PyLong_AsLong(number) : -1;
  int has = count < 0 ? -1 : 0;
  Py_XDECREF(number);
  for (long i = 0; i < count && has == 0; ++i) {
    PyObject* mode = PyObject_CallFunction(asked[FUNCTION_MODE_AT], "l", i);
    has = mode != NULL ? Py_TYPE(mode) != (PyTypeObject*)asked[DEVICE_CONTEXT] : -1;
    Py_XDECREF(mode);
  }
  return has;
}

/* Has a mode, torch.jit.trace, a transform of torch.func or a level of forward-mode AD to see the call? -1 with an
 * exception. */
static int is_seen(void) {
  int is = has_function_mode();
  if (is == 0) is = says(asked[DISPATCH_MODES], NULL);
  if (is == 0) is = says(asked[JIT_TRACE], NULL);
  if (is == 0) is = says(asked[TRANSFORMS], NULL);
  return is == 0 ? has_forward_mode() : is;
}

/* Is this exactly a Tensor or a Parameter, no negation waits in it, and it is no wrapper that was taken out of a
 * transform of torch.func? What else has no memory is refused where it is read. -1 with an exception. */
static int is_plain(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  int is;
  if (type != (PyTypeObject*)asked[TENSOR] && type != (PyTypeObject*)asked[PARAMETER]) return 0;
  is = says(asked[IS_NEG], object);
  if (is == 0) is = says(asked[IS_WRAPPED], object);
  return is < 0 ? -1 : !is;
}

/* Is the tensor in one piece of memory? One of the device meta has none, and a nested one has several. Asked of the
 * first one alone: what else has no memory is refused where it is read. -1 with an exception. */
static int has_memory(PyObject* object) {
  static PyObject* names[2];
  static const char* const texts[] = {"is_meta", "is_nested"};
  for (int i = 0; i < 2; ++i) {
    PyObject* is;
    if (names[i] == NULL) names[i] = PyUnicode_InternFromString(texts[i]);
    is = names[i] != NULL ? PyObject_GetAttr(object, names[i]) : NULL;
    Py_XDECREF(is);
    if (is != Py_False) return is != NULL ? 0 : -1;
  }
  return 1;
}

static int are_plain(PyObject* const* objects, Py_ssize_t count) {
  const int has = count > 0 && Py_TYPE(objects[0]) == (PyTypeObject*)asked[TENSOR] ? has_memory(objects[0]) : 1;
  if (has != 1) return has;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const int is = objects[i] != Py_None ? is_plain(objects[i]) : 1;
    if (is != 1) return is;
  }
  return 1;
}

/* are_ordinary(*tensors): whether nothing but the call itself has to see these tensors, of which some may be None. */
PyObject* torch_are_ordinary(PyObject* module, PyObject* const* args, Py_ssize_t count) {
  int seen, plain = 0;
  (void)module;
  if (!find_torch()) return NULL;
  seen = is_seen();
  if (seen == 0) plain = are_plain(args, count);
  return seen < 0 || plain < 0 ? NULL : PyBool_FromLong(plain);
}

/* The arguments of torch_attention. Those of gradients are for the backward pass alone. */
enum { Q, K, V, FIRST_OPTION, RETURN_LSE = FIRST_OPTION + OPTIONS };
static const char* const argument_names[] = {"q", "k", "v",
#define OPTION(name) #name,
#include "../call/options.def"
                                             "return_lse",
#define GRADIENT(name) #name,
#include "../call/options.def"
                                             NULL};
static signature straight_signature = {"attention", argument_names, 3, 3, 0, {NULL}};

int ready_torch(void) { return ready_signature(&straight_signature); }

/* The options that are tensors, of which some may be null. */
static const struct {
  int at;
  const char* name;
} tensors[] = {
#define TENSOR_OPTION(name) {OPTION_##name, #name},
#include "../call/options.def"
};
enum { TENSORS = sizeof tensors / sizeof tensors[0] };

/* Does one of the tensors that may have one need a gradient? -1 with an exception. */
static int is_recorded(PyObject* const* values) {
  static PyObject* requires_grad;
  PyObject* needs;
  int is = says(asked[IS_GRAD_ENABLED], NULL);
  if (requires_grad == NULL) requires_grad = PyUnicode_InternFromString("requires_grad");
  if (is <= 0 || requires_grad == NULL) return is;
  is = 0;
  for (int i = 0; i < FIRST_OPTION + TENSORS && is == 0; ++i) {
    PyObject* x = values[i < FIRST_OPTION ? i : FIRST_OPTION + tensors[i - FIRST_OPTION].at];
    if (x == NULL) continue;
    needs = PyObject_GetAttr(x, requires_grad);
    is = needs != NULL ? needs == Py_True : -1;
    Py_XDECREF(needs);
  }
  return is;
}

static PyObject* run_straight(PyObject* const* values) {
  PyObject* result = NULL;
  uint8_t wants_lse;
  call call;
  begin(&call, "attention", ATTENTION, FAL_FORWARD);
  call.recording = RECORDS_NOT; /* is_recorded has asked */
  if (take_inputs(&call, values + Q, NULL, values + FIRST_OPTION, NULL) &&
      to_flag("return_lse", values[RETURN_LSE], &wants_lse))
    result = run_forward(&call, wants_lse, NULL, NULL);
  end(&call);
  return result;
}

/* Slopes, bias and mask with fewer or more axes than C takes are given others first, or refused, on the long way. */
static int has_axes(PyObject* object, long most) {
  static PyObject* ndim;
  PyObject* number;
  long axes;
  if (object == NULL) return 1;
  if (ndim == NULL) ndim = PyUnicode_InternFromString("ndim");
  number = ndim != NULL ? PyObject_GetAttr(object, ndim) : NULL;
  axes = number != NULL ? PyLong_AsLong(number) : -1;
  Py_XDECREF(number);
  return PyErr_Occurred() ? -1 : axes >= 1 && axes <= most;
}

/* Which way has the call to take? */
enum { FAILED = -1, LONG_WAY, AUTOGRAD, STRAIGHT };
static int way_of(PyObject* const* values) {
  PyObject* const* options = values + FIRST_OPTION;
  int is = is_seen();
  if (is == 0) is = says(asked[ANY_AUTOCAST], NULL);
  if (is != 0) return is < 0 ? FAILED : LONG_WAY;
  is = are_plain(values, FIRST_OPTION);
  for (int i = 0; i < TENSORS && is == 1; ++i) {
    PyObject* x = options[tensors[i].at];
    if (x != NULL) is = is_plain(x);
    if (is == 1) is = has_axes(x, most_axes(tensors[i].name));
  }
#define LENGTHS_OPTION(name) \
  if (is == 1 && options[OPTION_##name] != NULL) is = is_plain(options[OPTION_##name]);
#include "../call/options.def"
  if (is != 1) return is < 0 ? FAILED : LONG_WAY;
  is = is_recorded(values);
  return is < 0 ? FAILED : is ? AUTOGRAD : STRAIGHT;
}

/* Attention of ordinary tensors of which none needs a gradient. None: something else has to see the call.
 * NotImplemented: only autograd has to. */
FUNCTION(torch_attention) {
  PyObject* values[MOST_ARGUMENTS];
  (void)module;
  if (!find_torch() || !bind(&straight_signature, args, count, names, values)) return NULL;
  switch (way_of(values)) {
    case LONG_WAY: return Py_NewRef(Py_None);
    case AUTOGRAD: return Py_NewRef(Py_NotImplemented);
    case STRAIGHT: return run_straight(values);
    default: return NULL;
  }
}
