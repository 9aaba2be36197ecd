/* call/plans.c: the plans that are kept. Making one takes 30 to 50 us, so the last 64 problems that were asked for have
 * theirs kept, in the order of their last use. What a plan is made from is its key: the bytes of the problem and of the
 * target, in structs that were zeroed before they were filled in. Plans know no strides and no addresses. */
#include <stdlib.h>
#include <string.h>

#include "fal.h"

enum { KEPT = 64 };
typedef struct key {
  int kind;
  int32_t pass;
  int on_gpu;
  fal_target target;
  problem problem;
} key;
typedef struct entry {
  key key;
  kept_plan* plan;
} entry;

static entry* kept[KEPT]; /* the last used one first */
static int count;
static unsigned long long hits, misses;

void drop_plan(kept_plan* plan) {
  if (plan == NULL || --plan->users > 0) return;
  fal_plan_free(plan->plan);
  PyMem_Free(plan);
}

static fal_status make(const key* key, int32_t backend, fal_plan** out) {
  fal_target target = key->target;
  target.backend = backend;
  switch (key->kind) {
    case ATTENTION: return fal_plan_make(&key->problem.attention, key->pass, &target, out);
    case LINEAR: return fal_linear_plan_make(&key->problem.linear, key->pass, &target, out);
    case GEMM: return fal_gemm_plan_make(&key->problem.gemm, &target, out);
    case NORM:
      return key->pass == FAL_BACKWARD ? fal_norm_backward_plan_make(&key->problem.norm, &target, out)
                                       : fal_norm_plan_make(&key->problem.norm, &target, out);
    default: return fal_quantise_plan_make(&key->problem.quantise, &target, out);
  }
}

/* "best" stays where the arrays lie. On the host it is the CPU, or ref where no kernel of the CPU takes the problem and
 * FALCHION_CPU names no level; on a GPU a plan of the CPU is none, and making one for sm80 by name says why. */
static fal_status make_best(const key* key, fal_plan** out) {
  const char* level = getenv("FALCHION_CPU");
  const int names_level = level != NULL && *level != '\0';
  fal_status status = make(key, key->on_gpu ? FAL_BEST : FAL_CPU, out);
  if (!key->on_gpu && status == FAL_UNSUPPORTED && !names_level) {
    fal_plan* definition = NULL;
    if (make(key, FAL_REF, &definition) == FAL_OK) {
      *out = definition;
      return FAL_OK;
    }
    return make(key, FAL_CPU, out); /* Its reason is the one to tell. */
  }
  if (!key->on_gpu || status != FAL_OK) return status;
  if (fal_plan_backend(*out) == FAL_SM80 || fal_plan_backend(*out) == FAL_SM90) return FAL_OK;
  fal_plan_free(*out);
  *out = NULL;
  return make(key, FAL_SM80, out);
}

static kept_plan* make_plan(const call* call, const key* key) {
  fal_plan* plan = NULL;
  kept_plan* made;
  const fal_status status =
      key->target.backend == FAL_BEST ? make_best(key, &plan) : make(key, key->target.backend, &plan);
  if (status != FAL_OK) {
    raise_why(status, call);
    return NULL;
  }
  made = PyMem_Malloc(sizeof *made);
  if (made == NULL) {
    fal_plan_free(plan);
    PyErr_NoMemory();
    return NULL;
  }
  made->plan = plan;
  made->users = 1;
  return made;
}

static void key_of(const call* call, key* out) {
  memset(out, 0, sizeof *out);
  out->kind = call->kind;
  out->pass = call->pass;
  out->on_gpu = call->leader != NULL ? call->leader->on_gpu : call->target.use_device;
  out->target = call->target;
  memcpy(&out->problem, &call->problem, call->problem.size);
}

kept_plan* plan_for(call* call) {
  key wanted;
  entry* found = NULL;
  int at;
  key_of(call, &wanted);
  /* A plan for the GPU that is current, where nobody knows which one that is, counts for this call alone. */
  if (wanted.on_gpu && !wanted.target.use_device) return make_plan(call, &wanted);
  for (at = 0; at < count && found == NULL; ++at)
    if (memcmp(&kept[at]->key, &wanted, sizeof wanted) == 0) found = kept[at];
  if (found != NULL) {
    ++hits;
    --at;
  } else {
    kept_plan* plan = make_plan(call, &wanted);
    if (plan == NULL) return NULL;
    ++misses;
    found = count < KEPT ? PyMem_Malloc(sizeof *found) : kept[KEPT - 1];
    if (found == NULL) return plan; /* There is no memory to keep it: this call alone uses it. */
    if (count < KEPT)
      ++count;
    else
      drop_plan(found->plan);
    found->key = wanted;
    found->plan = plan;
    at = count - 1;
  }
  if (at > 0) memmove(kept + 1, kept, (size_t)at * sizeof *kept);
  kept[0] = found;
  ++found->plan->users;
  return found->plan;
}

PyObject* plan_cache_info(PyObject* module, PyObject* none) {
  (void)module;
  (void)none;
  return Py_BuildValue("{s:K,s:K,s:i,s:i}", "hits", hits, "misses", misses, "size", count, "limit", KEPT);
}

PyObject* plan_cache_clear(PyObject* module, PyObject* none) {
  (void)module;
  (void)none;
  while (count > 0) {
    entry* last = kept[--count];
    drop_plan(last->plan);
    PyMem_Free(last);
  }
  hits = misses = 0;
  return Py_NewRef(Py_None);
}
