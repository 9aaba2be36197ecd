/* call/options.c: the options that every function of attention takes, as fields of the problem, the target and the
 * operands. */
#include "fal.h"

static const char* const layouts[] = {"bshd", "bhsd", NULL};
static const char* const backends[] = {"best", "ref", "cpu", "sm80", "sm90", NULL};
static const char* const aligns[] = {"bottom_right", "top_left", NULL};
enum { MOST_OFFSET = 1 << 30 };

int read_layout(call* call, PyObject* layout) {
  return layout == NULL || to_word("layout", layout, layouts, &call->heads_first);
}

/* How many threads torch was told to use, for its arrays on the host; 0 for all others. */
static int threads_of_leader(const call* call) {
  static PyObject* get_num_threads;
  PyObject* number;
  int threads;
  if (call->leader->on_gpu || call->leader->from.by != BY_TABLE || !call->leader->from.has_new_empty) return 0;
  if (get_num_threads == NULL) {
    PyObject* torch = PyImport_GetModule(call->leader->from.name);
    if (torch != NULL) get_num_threads = PyObject_GetAttrString(torch, "get_num_threads");
    Py_XDECREF(torch);
  }
  number = get_num_threads != NULL ? PyObject_CallFunctionObjArgs(get_num_threads, NULL) : NULL;
  threads = number != NULL ? (int)PyLong_AsLong(number) : 0;
  Py_XDECREF(number);
  PyErr_Clear();
  return threads > 0 ? threads : 0;
}

int read_target(call* call, PyObject* backend_name, PyObject* thread_count) {
  fal_target* target = &call->target;
  int64_t threads = 0;
  int backend = FAL_BEST;
  if (backend_name != NULL && !to_word("backend", backend_name, backends, &backend)) return 0;
  if (thread_count != NULL && !to_int64("threads", thread_count, &threads)) return 0;
  if (threads < 0 || threads > INT32_MAX) {
    raise_text(FAL_INVALID, call, "threads = %lld: it must be 0 (the default) or more", (long long)threads);
    return 0;
  }
  target->backend = backend;
  target->threads = (int32_t)threads;
  if (call->leader == NULL) return 1;
  target->threads = threads > 0 ? (int32_t)threads : threads_of_leader(call);
  /* Every array said where it lies. So nobody has to ask the driver again, where the backend is of that kind. */
  if (call->leader->on_gpu) {
    if (call->leader->from.by == BY_CUDA_INTERFACE) {
      target->use_device = knows_gpu_of_numba(&call->leader->from, &target->device);
      return 1;
    }
    target->device = call->leader->device;
    target->use_device = 1;
    target->trust_pointers = backend != FAL_REF && backend != FAL_CPU;
  } else {
    target->trust_pointers = backend != FAL_SM80 && backend != FAL_SM90;
  }
  return 1;
}

int read_target_name(call* call, PyObject* target, PyObject** level) {
  static const struct {
    const char* name;
    int sm;
  } gpus[] = {
#define FALCHION_GPU(name, sm) {name, sm},
#include "../../src/plan/gpus.def"
  };
  enum { GPUS = sizeof gpus / sizeof gpus[0] };
  static const char* const others[] = {"ref",  "cpu",         "generic", "avx2",         "avx512",
                                       "vnni", "avx512_bf16", "amx",     "amx_emulated", "neon"};
  enum { OTHERS = sizeof others / sizeof others[0] };
  const char* words[OTHERS + GPUS + 1] = {NULL};
  int word = 0;
  for (int i = 0; i < OTHERS; ++i) words[i] = others[i];
  for (int i = 0; i < GPUS; ++i) words[OTHERS + i] = gpus[i].name;
  if (target == NULL) return 1;
  if (!to_word("target", target, words, &word)) return 0;
  if (word < 2) {
    call->target.backend = word == 0 ? FAL_REF : FAL_CPU;
  } else if (word >= OTHERS) {
    call->target.sm = gpus[word - OTHERS].sm;
  } else {
    *level = PyUnicode_AsUTF8String(target);
    if (*level == NULL) return 0;
    call->target.backend = FAL_CPU;
    call->target.cpu_level = PyBytes_AsString(*level);
  }
  return 1;
}

static int read_side(const char* name, PyObject* window, Py_ssize_t index, int64_t* out) {
  PyObject* side = PySequence_GetItem(window, index);
  int ok = side != NULL;
  *out = FAL_UNBOUNDED;
  if (side != NULL && side != Py_None) ok = to_int64(name, side, out);
  Py_XDECREF(side);
  return ok;
}

static int read_window(PyObject* window, fal_band* band) {
  if (!PyTuple_Check(window) && !PyList_Check(window)) {
    PyErr_SetString(PyExc_TypeError, "window must be a pair (left, right), where None is unbounded");
    return 0;
  }
  if (PySequence_Size(window) != 2) {
    PyErr_SetString(PyExc_TypeError, "window must have two sides, (left, right)");
    return 0;
  }
  return read_side("window[0]", window, 0, &band->left) && read_side("window[1]", window, 1, &band->right);
}

/* causal=True and a window without align are taken only where both alignments mean the same. */
static int raise_unaligned(const call* call, PyObject* const* options, const char* what) {
  const fal_attention* problem = &call->problem.attention;
  const char* lengths = "cu_seqlens_q and cu_seqlens_k";
#define LENGTHS_OPTION(name) /* False is a plan's */ \
  if (options[OPTION_##name] != NULL && options[OPTION_##name] != Py_False) lengths = #name " is given";
#include "options.def"
  if (problem->s_q == problem->s_k)
    raise_text(
        FAL_INVALID, call,
        "%s does not say how the diagonal lies where lengths of q and k may differ (%s): say \"bottom_right\" (the "
        "last query sees the last key), \"top_left\" (query 0 sees key 0) or align=n (query 0 stands at key n)",
        what, lengths);
  else
    raise_text(
        FAL_INVALID, call,
        "%s does not say how the diagonal lies where s_q = %lld and s_k = %lld differ: say \"bottom_right\" (the "
        "last query sees the last key), \"top_left\" (query 0 sees key 0) or align=n (query 0 stands at key n)",
        what, (long long)problem->s_q, (long long)problem->s_k);
  return 0;
}

/* A corner, its number in aligns, or the key at which query 0 stands, which gives 2. */
static int read_align(const call* call, PyObject* object, int* align, fal_band* band) {
  int64_t offset = 0;
  if (PyUnicode_Check(object)) {
    for (*align = 0; aligns[*align] != NULL; ++*align)
      if (PyUnicode_CompareWithASCIIString(object, aligns[*align]) == 0) return 1;
    raise_text(FAL_INVALID, call,
               "align = %R: it is \"bottom_right\", \"top_left\" or a whole number, the key at which query 0 stands",
               object);
    return 0;
  }
  if (is_bool(object)) {
    PyErr_SetString(PyExc_TypeError, "align must be a whole number or the name of a corner, not a bool");
    return 0;
  }
  if (!to_int64("align", object, &offset)) return 0;
  if (offset < -MOST_OFFSET || offset > MOST_OFFSET) {
    raise_text(FAL_INVALID, call, "align = %lld: the key of query 0 must be in [-2^30, 2^30]", (long long)offset);
    return 0;
  }
  *align = 2;
  band->offset = (int32_t)offset;
  return 1;
}

int read_band(call* call, PyObject* const* options, int same_lengths) {
  fal_band* band = &call->problem.attention.band;
  PyObject* causal = options[OPTION_causal];
  const int truth = causal == NULL ? 0 : PyUnicode_Check(causal) ? NO_TRUTH : truth_of(causal);
  const int is_causal = truth != 0;
  int align = -1;
  if (truth < 0) return 0;
  if (options[OPTION_align] != NULL && !read_align(call, options[OPTION_align], &align, band)) return 0;
  band->left = band->right = FAL_UNBOUNDED;
  if (options[OPTION_window] != NULL && !read_window(options[OPTION_window], band)) return 0;
  if (is_causal) band->right = 0;
  if (truth == NO_TRUTH) {
    int named = 0;
    if (PyLong_Check(causal)) {
      raise_text(FAL_INVALID, call, "causal = %R: it is True, False, \"bottom_right\" or \"top_left\"", causal);
      return 0;
    }
    if (!PyUnicode_Check(causal)) {
      PyErr_SetString(PyExc_TypeError, "causal must be True, False, \"bottom_right\" or \"top_left\"");
      return 0;
    }
    if (!to_word("causal", causal, aligns, &named)) return 0;
    if (align >= 0 && align != named) {
      raise_text(FAL_INVALID, call, "causal = %R, but align = %R", causal, options[OPTION_align]);
      return 0;
    }
    align = named;
  }
  if (align < 0 && (band->left != FAL_UNBOUNDED || band->right != FAL_UNBOUNDED)) {
    if (!same_lengths) return raise_unaligned(call, options, is_causal ? "causal=True" : "a window without align");
    align = 0;
  }
  band->align = align < 0 ? FAL_ALIGN_UNSET : align == 0 ? FAL_BOTTOM_RIGHT : align == 1 ? FAL_TOP_LEFT : FAL_AT;
  return 1;
}

int read_numbers_and_flags(call* call, PyObject* const* options) {
  fal_attention* problem = &call->problem.attention;
#define NUMBER_OPTION(name) \
  if (options[OPTION_##name] != NULL && !to_float(#name, options[OPTION_##name], &problem->name)) return 0;
#define FLAG_OPTION(name) \
  if (!to_flag(#name, options[OPTION_##name], &problem->name)) return 0;
#include "options.def"
  if (options[OPTION_scale] == NULL || problem->scale != 0) return 1;
  raise_text(FAL_INVALID, call, "scale = 0 would make all scores equal: None asks for 1/sqrt(d_qk)");
  return 0;
}

typedef struct named {
  const char *kind, *name;
} named;

static int add_names(PyObject* module, const char* attribute, const named* rows, Py_ssize_t count) {
  PyObject* all = PyTuple_New(count);
  int ok;
  for (Py_ssize_t i = 0; i < count && all != NULL; ++i) {
    PyObject* row = Py_BuildValue("(ss)", rows[i].kind, rows[i].name);
    if (row == NULL || PyTuple_SetItem(all, i, row) != 0) Py_CLEAR(all);
  }
  ok = all != NULL && PyModule_AddObjectRef(module, attribute, all) == 0;
  Py_XDECREF(all);
  return ok;
}

int add_options(PyObject* module) {
  static const named options[] = {
#define BAND_OPTION(name) {"band", #name},
#define NUMBER_OPTION(name) {"number", #name},
#define TENSOR_OPTION(name) {"tensor", #name},
#define FLAG_OPTION(name) {"flag", #name},
#define LENGTHS_OPTION(name) {"lengths", #name},
#define RUN_OPTION(name) {"run", #name},
#define TARGET_OPTION(name) {"target", #name},
#include "options.def"
  };
  static const named forwards[] = {
#define FLAG_FORWARD(name) {"flag", #name},
#define COUNT_FORWARD(name) {"count", #name},
#define TENSOR_FORWARD(name) {"tensor", #name},
#define SCALE_FORWARD(name) {"scale", #name},
#define STARTS_FORWARD(name) {"starts", #name},
#include "options.def"
  };
  static const named gradients[] = {
#define FLAG_GRADIENT(name) {"flag", #name},
#define TENSOR_GRADIENT(name) {"tensor", #name},
#include "options.def"
  };
  static const named shapes[] = {
#define FALCHION_OPERAND(name, in_forward, in_backward, shape, ...) {#shape, #name},
#include "../../src/base/fields.def"
  };
  return add_names(module, "_options", options, sizeof options / sizeof options[0]) &&
         add_names(module, "_forwards", forwards, sizeof forwards / sizeof forwards[0]) &&
         add_names(module, "_gradients", gradients, sizeof gradients / sizeof gradients[0]) &&
         add_names(module, "_operands", shapes, sizeof shapes / sizeof shapes[0]);
}

int raise_no_seed(const call* call) {
  raise_text(FAL_INVALID, call, "dropout needs a seed: a number, or an array of two (seed, offset)");
  return 0;
}
