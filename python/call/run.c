/* call/run.c: one run of one plan: its workspace, and the GIL given up while the engine works. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fal.h"

enum { ALIGNED = 64 };

/* The host's workspace of one thread. It only grows, and the thread's end frees it. */
typedef struct workspace {
  void* data;
  size_t bytes;
} workspace;
static pthread_key_t of_thread;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int has_key;

static void free_workspace(void* object) {
  workspace* mine = object;
  if (mine != NULL) free(mine->data);
  free(mine);
}
static void make_key(void) { has_key = pthread_key_create(&of_thread, free_workspace) == 0; }

static void* host_workspace(size_t bytes) {
  workspace* mine;
  pthread_once(&once, make_key);
  mine = has_key ? pthread_getspecific(of_thread) : NULL;
  if (mine == NULL && has_key) {
    mine = calloc(1, sizeof *mine);
    if (mine != NULL && pthread_setspecific(of_thread, mine) != 0) {
      free(mine);
      mine = NULL;
    }
  }
  if (mine == NULL) return NULL;
  if (mine->bytes >= bytes) return mine->data;
  free(mine->data);
  mine->bytes = 0;
  if (posix_memalign(&mine->data, ALIGNED, bytes) != 0) mine->data = NULL;
  if (mine->data != NULL) mine->bytes = bytes;
  return mine->data;
}

PyObject* release_workspaces(PyObject* module, PyObject* none) {
  (void)module;
  (void)none;
  pthread_once(&once, make_key);
  if (has_key) {
    free_workspace(pthread_getspecific(of_thread));
    pthread_setspecific(of_thread, NULL);
  }
  fal_release_workspaces();
  return Py_NewRef(Py_None);
}

static void set_error(void* context, const char* kind, const char* message) {
  (void)context;
  PyErr_Format(PyExc_RuntimeError, "the workspace could not be allocated: %s: %s", kind, message);
}

/* A GPU's workspace is of the caller's library, so that it comes from the same pool and a graph may be captured. It is
 * given back when the run is enqueued: the pool hands it out again only to what comes later on the stream. */
typedef struct gpu_workspace {
  void* data;
  DLManagedTensorVersioned* tensor;
  PyObject* array;
  struct array view;
} gpu_workspace;

static int get_gpu_workspace(const call* call, size_t bytes, gpu_workspace* out) {
  const library* from = &call->leader->from;
  int64_t shape = (int64_t)bytes;
  int64_t stride = 1;
  memset(out, 0, offsetof(gpu_workspace, view));
  if (from->by == BY_TABLE) {
    DLTensor like = {NULL, {kDLCUDA, 0}, 1, {kDLUInt, 8, 1}, NULL, NULL, 0};
    like.device.device_id = call->leader->device;
    like.shape = &shape;
    like.strides = &stride;
    if (from->api->managed_tensor_allocator(&like, &out->tensor, NULL, set_error) != 0 || out->tensor == NULL) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "the workspace could not be allocated");
      return 0;
    }
    out->data = (char*)out->tensor->dl_tensor.data + out->tensor->dl_tensor.byte_offset;
    return 1;
  }
  if (from->uint8 == NULL || (from->empty == NULL && !from->has_new_empty)) {
    PyErr_Format(PyExc_TypeError, "the plan needs a workspace of %zu bytes, and Falchion cannot make arrays of %U",
                 bytes, from->name);
    return 0;
  }
  if (from->has_new_empty) {
    PyObject* method = PyObject_GetAttrString(call->leader_object, "new_empty");
    PyObject* arguments = Py_BuildValue("((L))", (long long)shape);
    PyObject* keywords = Py_BuildValue("{s:O}", "dtype", from->uint8);
    if (method != NULL && arguments != NULL && keywords != NULL)
      out->array = PyObject_Call(method, arguments, keywords);
    Py_XDECREF(keywords);
    Py_XDECREF(arguments);
    Py_XDECREF(method);
  } else {
    out->array = PyObject_CallFunction(from->empty, "(L)O", (long long)shape, from->uint8);
  }
  if (out->array == NULL || !read_array("workspace", out->array, 1, NULL, &out->view)) {
    Py_CLEAR(out->array);
    return 0;
  }
  out->data = out->view.data;
  return 1;
}

static void drop_gpu_workspace(gpu_workspace* workspace) {
  if (workspace->tensor != NULL && workspace->tensor->deleter != NULL) workspace->tensor->deleter(workspace->tensor);
  if (workspace->array != NULL) release_array(&workspace->view);
  Py_XDECREF(workspace->array);
}

static fal_status run_operands(const call* call, const fal_plan* plan, void* memory, size_t bytes) {
  switch (call->kind) {
    case ATTENTION: return fal_plan_run(plan, &call->operands.attention, memory, bytes, call->stream);
    case LINEAR: return fal_linear_plan_run(plan, &call->operands.linear, memory, bytes, call->stream);
    case GEMM: return fal_gemm_plan_run(plan, &call->operands.gemm, memory, bytes, call->stream);
    case NORM: return fal_norm_plan_run(plan, &call->operands.norm, memory, bytes, call->stream);
    default: return fal_quantise_plan_run(plan, &call->operands.quantise, memory, bytes, call->stream);
  }
}

int run_plan(call* call, const fal_plan* plan) {
  const size_t bytes = fal_plan_workspace(plan);
  gpu_workspace on_gpu;
  void* memory = NULL;
  fal_status status;
  memset(&on_gpu, 0, offsetof(gpu_workspace, view));
  if (bytes > 0 && call->leader->on_gpu) {
    if (!get_gpu_workspace(call, bytes, &on_gpu)) return 0;
    memory = on_gpu.data;
  } else if (bytes > 0) {
    memory = host_workspace(bytes);
    if (memory == NULL) {
      PyErr_NoMemory();
      return 0;
    }
  }
  Py_BEGIN_ALLOW_THREADS status = run_operands(call, plan, memory, bytes);
  Py_END_ALLOW_THREADS drop_gpu_workspace(&on_gpu);
  if (status != FAL_OK) raise_why(status, call);
  return status == FAL_OK;
}

/* Are b lengths, of which there may be none, in [0, rows]? first: with these in front of them, each at most as large.
 */
static int are_within(const int32_t* lengths, const int32_t* first, int64_t b, int64_t rows) {
  int64_t i;
  for (i = 0; i < b; ++i) {
    const int64_t length = lengths != NULL ? lengths[i] : rows;
    if (length < 0 || length > rows || (first != NULL && (first[i] < 0 || first[i] > length))) return 0;
  }
  return 1;
}

/* Where the host can read lengths they are checked, which the engine itself leaves out: those of packed sequences, used
 * ones and first keys. The engine's check goes over the whole problem, as the run does once more, 0.7 us. So it is
 * asked about sequences that are not packed only where a number is out of its range, and then says which, and of pages
 * always. */
static int check_lengths(const call* call) {
  const fal_attention* problem = &call->problem.attention;
  const fal_operands* operands = &call->operands.attention;
  const int used = call->kind == ATTENTION && has_lengths(problem);
  fal_status status;
  if ((!call->packed && !used) || call->leader->on_gpu) return 1;
  if (!call->packed && (call->kind != ATTENTION || problem->page_size == 0) &&
      are_within(operands->used_q, NULL, problem->b, operands->q.shape[1]) &&
      are_within(operands->used_k, operands->first_k, problem->b, operands->k.shape[1]))
    return 1;
  status = call->kind == ATTENTION ? fal_validate_lengths(problem, &call->operands.attention)
                                   : fal_linear_validate_lengths(&call->problem.linear, &call->operands.linear);
  if (status != FAL_OK) raise_why(status, call);
  return status == FAL_OK;
}

/* What explain(...) asks for instead of the run. */
static const char* text_for(const call* call, const fal_target* target, int32_t format) {
  return call->kind == GEMM ? fal_gemm_explain(&call->problem.gemm, target, format)
                            : fal_norm_explain(&call->problem.norm, target, format);
}

static int explain_instead(call* call) {
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

int run(call* call) {
  kept_plan* plan;
  int ok;
  if (call->story != NULL) return explain_instead(call);
  if (!check_lengths(call)) return 0;
  if (call->fixed != NULL) return run_plan(call, call->fixed);
  plan = plan_for(call);
  ok = plan != NULL && run_plan(call, plan->plan);
  drop_plan(plan);
  return ok;
}
