/* functions/plan_arguments.c: the arguments of Plan(...) and explain(...) as a problem and a target. Where a function
 * of attention takes an array these take a shape, or only the word that there will be one. */
#include <string.h>

#include "fal.h"

enum { Q, K, V, DTYPE, PLAN_OPTIONS, PLAN_FORWARDS = PLAN_OPTIONS + OPTIONS };
/* After the options and FORWARD_... GRADIENT_... begin at FIRST_GRADIENT, and what says of gradients ends before
 * SEQUENCES. */
enum {
  BACKWARD,
  RETURN_LSE,
  FIRST_GRADIENT,
  F32 = FIRST_GRADIENT + GRADIENTS,
  ACCUMULATE,
  FROZEN,
  SEQUENCES,
  MAX_Q,
  MAX_K,
  TARGET,
  SMS,
  DTYPE_V
};
#define OPTION(name) #name,
#define FORWARD(name) #name,
static const char* const make_names[] = {"q",        "k",          "v",      "dtype",
#include "../call/options.def"
                                         "backward", "return_lse",
#define GRADIENT(name) #name,
#include "../call/options.def"
                                         "f32",      "accumulate", "frozen", "sequences", "max_q",
                                         "max_k",    "target",     "sms",    "dtype_v",   NULL};
static signature make_signature = {"Plan", make_names, 1, 4, 0, {NULL}};

int ready_plan_arguments(void) { return ready_signature(&make_signature); }

/* A plan of arrays is for the device that they lie on, unless the caller names another target. */
static void stay_with(call* call, const array* a) {
  fal_target* target = &call->target;
  if (target->backend != FAL_BEST || target->sm != 0) return;
  if (!a->on_gpu)
    target->backend = FAL_CPU;
  else if (a->from.by != BY_CUDA_INTERFACE) {
    target->device = a->device;
    target->use_device = 1;
  }
}

/* Where the CPU has no kernel for q of 8 bits, a plan of arrays on the host is one of the definition, as a call is. */
static void stay_with_definition(call* call) {
  fal_plan* plan = NULL;
  fal_target* target = &call->target;
  if (target->backend != FAL_CPU || !is_8bit(call->problem.attention.dtype)) return;
  if (fal_plan_make(&call->problem.attention, call->pass, target, &plan) == FAL_UNSUPPORTED) target->backend = FAL_REF;
  fal_plan_free(plan);
}

/* One of q, k, v of a problem: a shape, or an array that has one, and then its type too. */
static int read_shape(call* call, const char* name, PyObject* object, fal_tensor* out) {
  int (*const view)(const struct call*, const array*, fal_tensor*) = name[0] == 'q' ? view_queries : view_keys;
  array a;
  int ok;
  memset(&a, 0, sizeof a);
  a.name = name;
  a.dtype = FAL_F32;
  if (!is_list(object)) {
    if (!read_array(name, object, 0, NULL, &a)) return 0;
    ok = view(call, &a, out);
    stay_with(call, &a);
    release_array(&a);
    return ok;
  }
  if (!read_extents(name, object, &a) || !view(call, &a, out)) return 0;
  out->dtype = 0;
  return 1;
}

/* Which optional arrays the runs will bring: True, or an array, which has an axis. */
static int is_wanted(const char* name, PyObject* option, uint8_t* out) {
  library from;
  array a;
  int rank = 0;
  const int truth = option == NULL ? 0 : truth_of(option);
  *out = truth != 0;
  if (truth != NO_TRUTH) return truth >= 0;
  if (!library_of(option, &from)) return 0;
  if (is_list(option)) {
    rank = 1; /* lengths */
  } else if (from.by != 0) {
    if (!read_array(name, option, 0, NULL, &a)) return 0;
    rank = a.rank;
    release_array(&a);
  }
  if (rank > 0) return 1;
  PyErr_Format(PyExc_TypeError, "%s must be True where the runs will bring one, False, None or an array", name);
  return 0;
}

/* False and 0 say no more than what is not given. */
static int has_nothing_of_gradients(PyObject* const* more) {
  for (int i = FIRST_GRADIENT; i < SEQUENCES; ++i) {
    const int truth = more[i] == NULL ? 0 : truth_of(more[i]);
    if (truth < 0) return 0;
    if (truth == 0) continue;
    raise_text(FAL_INVALID, NULL, "%s is given, but the plan is not one of the backward pass: say backward=True",
               make_names[PLAN_FORWARDS + FORWARDS + i]);
    return 0;
  }
  return 1;
}

static int read_flags(call* call, PyObject* const* options, PyObject* const* more) {
  fal_attention* x = &call->problem.attention;
  PyObject* const* gradients = more + FIRST_GRADIENT;
  uint8_t backward, lse, f32, accumulate;
  int64_t frozen = 0;
#define TENSOR_OPTION(name) \
  if (!is_wanted(#name, options[OPTION_##name], &x->name)) return 0;
#define LENGTHS_OPTION TENSOR_OPTION
#include "../call/options.def"
  if (!to_flag("backward", more[BACKWARD], &backward) || !to_flag("return_lse", more[RETURN_LSE], &lse) ||
      !to_flag("f32", more[F32], &f32) || !to_flag("accumulate", more[ACCUMULATE], &accumulate))
    return 0;
#define FLAG_GRADIENT(name) \
  if (!to_flag(#name, gradients[GRADIENT_##name], &x->name)) return 0;
#include "../call/options.def"
  if (more[FROZEN] != NULL && !to_int64("frozen", more[FROZEN], &frozen)) return 0;
  call->pass = backward ? FAL_BACKWARD : FAL_FORWARD;
  x->lse = backward ? 0 : lse;
  if (!backward) return has_nothing_of_gradients(more);
  if (lse) {
    raise_text(FAL_INVALID, NULL, "return_lse is given, but the plan is one of the backward pass, which takes the lse");
    return 0;
  }
  if (frozen < 0 || frozen > 3) {
    raise_text(FAL_INVALID, NULL, "frozen = %lld: it must be 0 (nothing), 1 (no grad_q), 2 (no grad_k and grad_v) or 3",
               (long long)frozen);
    return 0;
  }
  x->frozen = (uint8_t)frozen;
  x->grads = accumulate ? FAL_GRADS_ACCUMULATE : f32 ? FAL_GRADS_F32 : FAL_GRADS_ROUNDED;
#define TENSOR_GRADIENT(name) \
  if (!is_wanted(#name, gradients[GRADIENT_##name], &x->name)) return 0;
#include "../call/options.def"
  return 1;
}

/* What a plan does not depend on is no argument of it. */
static int has_nothing_of_a_run(PyObject* const* options) {
#define RUN_OPTION(name) {OPTION_##name, #name},
  static const struct {
    int at;
    const char* name;
  } of_runs[] = {
#include "../call/options.def"
  };
  for (size_t i = 0; i < sizeof of_runs / sizeof of_runs[0]; ++i) {
    if (options[of_runs[i].at] == NULL) continue;
    PyErr_Format(PyExc_TypeError, "a plan is made without %s: give it to each run of the plan", of_runs[i].name);
    return 0;
  }
  return 1;
}

static int read_packed(call* call, PyObject* const* more) {
  fal_attention* x = &call->problem.attention;
  const int takes_max_k = call->packed || x->page_size > 0;
  if ((!call->packed && more[MAX_Q] != NULL) || (!takes_max_k && more[MAX_K] != NULL)) {
    raise_text(FAL_INVALID, NULL, "%s is given without sequences, how many packed ones there are",
               more[MAX_Q] != NULL ? "max_q" : "max_k");
    return 0;
  }
  if (x->page_size > 0 && more[MAX_K] == NULL) {
    raise_text(FAL_INVALID, NULL, "a plan of a cache with pages needs max_k, the most keys of a sequence");
    return 0;
  }
  if (!call->packed) return more[MAX_K] == NULL || to_int64("max_k", more[MAX_K], &x->s_k);
  if (more[MAX_Q] == NULL) {
    raise_text(FAL_INVALID, NULL, "a plan of packed sequences needs max_q, the longest of them");
    return 0;
  }
  x->packed = 1;
  if (!to_int64("sequences", more[SEQUENCES], &x->b) || !to_int64("max_q", more[MAX_Q], &x->s_q)) return 0;
  if (!x->cache) x->s_k = x->s_q;
  return more[MAX_K] == NULL || to_int64("max_k", more[MAX_K], &x->s_k);
}

/* How many columns turn: those of an array of angles, or all of them. */
static int read_rotary_dim(PyObject* rotary, int64_t d_qk, int64_t* out) {
  library from;
  array a;
  *out = d_qk;
  if (truth_of(rotary) != NO_TRUTH || !library_of(rotary, &from) || from.by == 0) return !PyErr_Occurred();
  if (!read_array("rotary", rotary, 0, NULL, &a)) return 0;
  *out = a.shape[a.rank - 1] * (a.rank == 3 ? 2 : 1);
  release_array(&a);
  return 1;
}

/* Is it a cache, and which of its arrays will the runs bring? */
static int read_wanted_forwards(call* call, PyObject* const* forwards, uint8_t* wanted) {
  fal_attention* x = &call->problem.attention;
#define FLAG_FORWARD(name) \
  if (!to_flag(#name, forwards[FORWARD_##name], &x->name)) return 0;
#define COUNT_FORWARD(name) \
  if (forwards[FORWARD_##name] != NULL && !to_int64(#name, forwards[FORWARD_##name], &x->name)) return 0;
#define TENSOR_FORWARD(name) \
  if (!is_wanted(#name, forwards[FORWARD_##name], &wanted[FORWARD_##name])) return 0;
#define SCALE_FORWARD TENSOR_FORWARD
#define STARTS_FORWARD TENSOR_FORWARD
#include "../call/options.def"
#define TENSOR_FORWARD(name) x->cache |= wanted[FORWARD_##name];
#define SCALE_FORWARD(name) x->name = wanted[FORWARD_##name] != 0;
#include "../call/options.def"
  if ((x->k_scale || x->v_scale) && !is_8bit(x->dtype)) x->cache = 1;
  return 1;
}

/* How many SMs the plan may use. The engine says what is wrong with a number. */
static int read_sms(call* call, PyObject* object) {
  int64_t sms = 0;
  if (object == NULL) return 1;
  if (!to_int64("sms", object, &sms)) return 0;
  if (sms >= 0 && sms <= UINT16_MAX) {
    call->target.sms = (uint16_t)sms;
    return 1;
  }
  raise_text(FAL_INVALID, NULL, "sms = %lld: it must be 0 (all SMs of the GPU) or more, up to 65535", (long long)sms);
  return 0;
}

/* The types of k and v, by their arrays or, of shapes, that of q; v may be said to have another one. */
static int read_types(fal_attention* x, int32_t k, int32_t v, PyObject* dtype_v) {
  if (is_8bit(x->dtype) || is_8bit(k)) x->dtype_k = k;
  if (is_8bit(x->dtype) || is_8bit(v)) x->dtype_v = v;
  return dtype_v == NULL || read_dtype("dtype_v", dtype_v, GEMM_TYPES, &x->dtype_v);
}

/* The type of q, by its array or as the caller says it. */
static int read_type_of_q(fal_attention* x, int32_t q, PyObject* dtype) {
  x->dtype = q;
  if (dtype != NULL && !read_dtype("dtype", dtype, GEMM_TYPES, &x->dtype)) return 0;
  if (x->dtype != 0) return 1;
  raise_text(FAL_INVALID, NULL,
             "a plan made from shapes needs dtype: float32, float16 or bfloat16, or of 8 bits float8_e4m3fn or int8");
  return 0;
}

/* Shapes and options as a problem and a target. */
static int read_problem(call* call, plan_arguments* out, PyObject* const* values) {
  PyObject* const* options = values + PLAN_OPTIONS;
  PyObject* const* more = values + PLAN_FORWARDS + FORWARDS;
  uint8_t wanted[FORWARDS] = {0};
  fal_attention* x = &call->problem.attention;
  PyObject* const k = values[K] != NULL ? values[K] : values[Q];
  PyObject* const v = values[V] != NULL ? values[V] : k;
  fal_tensor shape_q, shape_k, shape_v;
  int same_lengths;
  call->packed = more[SEQUENCES] != NULL;
  if (!has_nothing_of_a_run(options) || !read_target(call, options[OPTION_backend], options[OPTION_threads]) ||
      !read_target_name(call, more[TARGET], &out->cpu_level) || !read_sms(call, more[SMS]) ||
      !read_layout(call, options[OPTION_layout]) || !read_shape(call, "q", values[Q], &shape_q) ||
      !read_type_of_q(x, shape_q.dtype, values[DTYPE]) || !read_wanted_forwards(call, values + PLAN_FORWARDS, wanted) ||
      !read_shape(call, "k", k, &shape_k) || !read_shape(call, "v", v, &shape_v) ||
      !read_types(x, shape_k.dtype, shape_v.dtype, more[DTYPE_V]))
    return 0;
  x->b = shape_q.shape[0];
  x->s_q = shape_q.shape[1];
  x->s_k = shape_k.shape[1];
  x->h_q = shape_q.shape[2];
  x->h_k = shape_k.shape[2];
  x->d_qk = shape_q.shape[3];
  x->d_v = shape_v.shape[3];
  if (wanted[FORWARD_page_table]) x->page_size = x->s_k;
  x->append = wanted[FORWARD_k_new] || wanted[FORWARD_v_new];
  if (wanted[FORWARD_rotary] && !read_rotary_dim(values[PLAN_FORWARDS + FORWARD_rotary], x->d_qk, &x->rotary_dim))
    return 0;
  if (!read_packed(call, more) || !read_flags(call, options, more) || !read_numbers_and_flags(call, options)) return 0;
  same_lengths = x->s_q == x->s_k && !x->packed && !has_lengths(x);
  if (!read_band(call, options, same_lengths)) return 0;
  if (options[OPTION_backend] == NULL && more[TARGET] == NULL) stay_with_definition(call);
  return 1;
}

int read_plan_arguments(PyObject* args, PyObject* keywords, plan_arguments* out) {
  PyObject* values[MOST_ARGUMENTS];
  call call;
  memset(out, 0, sizeof *out);
  if (!bind_tuple(&make_signature, args, keywords, values)) return 0;
  begin(&call, "Plan", ATTENTION, FAL_FORWARD);
  if (!read_problem(&call, out, values)) return 0;
  out->pass = call.pass;
  out->problem = call.problem.attention;
  out->target = call.target;
  out->heads_first = call.heads_first;
  return 1;
}
