/* explain.c: what a call of gemm or of a norm would decide and why. It takes the steps of the call itself, with shapes
 * in the place of arrays where the caller has none, up to the plan, and tells of that one instead of running it. */
#include <string.h>

#include "fal.h"

typedef PyObject* (*function)(explanation* story, PyObject* const* args, Py_ssize_t count, PyObject* names);
static const char* const names_of[] = {"gemm", "layer_norm", "rms_norm", NULL};
static const function functions[] = {call_gemm, call_layer_norm, call_rms_norm};

/* Which type a shape has by the argument `dtype`. 8 bits are for the first two, a and b: the others are float32 then.
 */
static int type_of_shape(const call* call) {
  const int dtype = call->story->dtype;
  return call->count >= 2 && (dtype == FAL_I8 || dtype == FAL_E4M3) ? FAL_F32 : dtype;
}

array* take_shape(call* call, const char* name, PyObject* shape, int dtype) {
  array* a = &call->arrays[call->count];
  int64_t dense = 1;
  memset(a, 0, sizeof *a);
  a->name = name;
  a->dtype = dtype != FAL_AS_Q ? dtype : type_of_shape(call);
  if (!read_extents(name, shape, a)) return NULL;
  if (a->rank > WHOLE_AXES) {
    raise_text(FAL_INVALID, NULL, "%s has more than %d axes, which no argument has", name, WHOLE_AXES);
    return NULL;
  }
  if (a->dtype == 0) {
    raise_text(FAL_INVALID, NULL,
               "%s is a shape, which needs dtype: float32, float16, bfloat16 or, of gemm, int8 or float8_e4m3fn", name);
    return NULL;
  }
  for (int i = a->rank - 1; i >= 0; --i) {
    a->stride[i] = dense;
    dense = times(dense, a->shape[i]);
  }
  ++call->count;
  if (call->leader == NULL) call->leader = a;
  return a;
}

static const char* text_for(const call* call, const fal_target* target, int32_t format) {
  return call->kind == GEMM ? fal_gemm_explain(&call->problem.gemm, target, format)
                            : fal_norm_explain(&call->problem.norm, target, format);
}

int explain_instead(call* call) {
  explanation* story = call->story;
  fal_target* target = &call->target;
  PyObject *level = NULL, *text = NULL, *json = NULL;
  const int is_here = call->leader->from.by != 0 && !call->leader->on_gpu; /* Arrays of the host stay there. */
  target->trust_pointers = 0;
  if (is_here && target->backend == FAL_BEST && story->target == NULL) target->backend = FAL_CPU;
  if (read_target_name(call, story->target, &level)) text = text_of(text_for(call, target, FAL_TEXT));
  if (text != NULL) json = text_of(text_for(call, target, FAL_JSON));
  if (json != NULL) story->texts = PyTuple_Pack(2, text, json);
  Py_XDECREF(json);
  Py_XDECREF(text);
  Py_XDECREF(level);
  return story->texts != NULL;
}

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
