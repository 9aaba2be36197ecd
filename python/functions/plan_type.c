/* functions/plan_type.c: the type _fal.Plan, a plan that the caller keeps: made from shapes, asked what it decided, run
 * on arrays. falchion.Plan is made from it in Python, where the texts get their form for notebooks. */
#include <string.h>

#include "docstrings.inc"
#include "fal.h"

typedef struct plan_object {
  PyObject_HEAD fal_plan* plan; /* null until __init__ is done */
  plan_arguments made_from;
} plan_object;

/* What a run of a plan takes besides its arrays of rows: the lengths of packed sequences, and those of the options that
 * are arrays or that a plan does not depend on. */
static const int options_of_run[] = {
#define TENSOR_OPTION(name) OPTION_##name,
#define LENGTHS_OPTION(name) OPTION_##name,
#define RUN_OPTION(name) OPTION_##name,
#include "../call/options.def"
};
enum { COUNT_OF_RUN = sizeof options_of_run / sizeof options_of_run[0] };
enum { CU_Q, CU_K, OPTIONS_OF_RUN, RUN_ARGUMENTS = OPTIONS_OF_RUN + COUNT_OF_RUN };

static const int forwards_of_run[] = {
#define TENSOR_FORWARD(name) FORWARD_##name,
#define SCALE_FORWARD(name) FORWARD_##name,
#define STARTS_FORWARD(name) FORWARD_##name,
#include "../call/options.def"
};
enum { FORWARDS_OF_RUN = sizeof forwards_of_run / sizeof forwards_of_run[0] };
enum { Q, K, V, FORWARD_RUN, FIRST_FORWARD = FORWARD_RUN + RUN_ARGUMENTS };
enum { OUT = FIRST_FORWARD + FORWARDS_OF_RUN, LSE_OUT };
static const char* const forward_names[] = {"q",   "k",   "v", "cu_seqlens_q", "cu_seqlens_k",
#define TENSOR_OPTION(name) #name,
#define LENGTHS_OPTION(name) #name,
#define RUN_OPTION(name) #name,
#include "../call/options.def"
#define TENSOR_FORWARD(name) #name,
#define SCALE_FORWARD(name) #name,
#define STARTS_FORWARD(name) #name,
#include "../call/options.def"
                                            "out", "lse", NULL};
static signature forward_signature = {"Plan", forward_names, 3, 3, 0, {NULL}};

static const int gradients_of_run[] = {
#define TENSOR_GRADIENT(name) GRADIENT_##name,
#include "../call/options.def"
};
enum { GRADIENTS_OF_RUN = sizeof gradients_of_run / sizeof gradients_of_run[0] };
enum { GRAD_O, BACK_Q, BACK_K, BACK_V, O, LSE, BACKWARD_RUN };
enum { FIRST_GRADIENT = BACKWARD_RUN + RUN_ARGUMENTS, GRADS = FIRST_GRADIENT + GRADIENTS_OF_RUN };
static const char* const backward_names[] = {"grad_o", "q", "k", "v", "o", "lse", "cu_seqlens_q", "cu_seqlens_k",
#define TENSOR_OPTION(name) #name,
#define LENGTHS_OPTION(name) #name,
#define RUN_OPTION(name) #name,
#include "../call/options.def"
#define TENSOR_GRADIENT(name) #name,
#include "../call/options.def"
                                             "grads",  NULL};
static signature backward_signature = {"Plan", backward_names, 6, 6, 0, {NULL}};

static int plan_init(PyObject* self, PyObject* args, PyObject* keywords) {
  plan_object* plan = (plan_object*)self;
  plan_arguments from;
  fal_plan* made = NULL;
  memset(&from, 0, sizeof from);
  if (plan->plan == NULL && read_plan_arguments(args, keywords, &from)) {
    const fal_status status = fal_plan_make(&from.problem, from.pass, &from.target, &made);
    if (status != FAL_OK) raise_why(status, NULL);
  }
  /* To read the arguments may run code of theirs, which may call __init__ of the same object: the first one counts. */
  if (plan->plan == NULL && made != NULL) {
    plan->plan = made;
    plan->made_from = from;
    return 0;
  }
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a Plan is made once and never changes");
  fal_plan_free(made);
  Py_XDECREF(from.cpu_level);
  return -1;
}

static void plan_dealloc(PyObject* self) {
  plan_object* plan = (plan_object*)self;
  PyTypeObject* type = Py_TYPE(self);
  freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);
  fal_plan_free(plan->plan);
  Py_XDECREF(plan->made_from.cpu_level);
  free_object(self);
  Py_DECREF((PyObject*)type);
}

static int is_made(const plan_object* plan) {
  if (plan->plan == NULL)
    PyErr_SetString(PyExc_RuntimeError, "this Plan was not made: its __init__ has not run or failed");
  return plan->plan != NULL;
}

static PyObject* plan_describe(PyObject* self, PyObject* none) {
  plan_object* plan = (plan_object*)self;
  (void)none;
  return is_made(plan) ? text_of(fal_plan_describe(plan->plan)) : NULL;
}

/* (text, JSON) */
static PyObject* plan_explain_text(PyObject* self, PyObject* none) {
  plan_object* plan = (plan_object*)self;
  PyObject *text, *json, *result = NULL;
  (void)none;
  if (!is_made(plan)) return NULL;
  text = text_of(fal_plan_explain(plan->plan, FAL_TEXT));
  json = text != NULL ? text_of(fal_plan_explain(plan->plan, FAL_JSON)) : NULL;
  if (json != NULL) result = PyTuple_Pack(2, text, json);
  Py_XDECREF(json);
  Py_XDECREF(text);
  return result;
}

PyObject* explain_text(PyObject* module, PyObject* args, PyObject* keywords) {
  plan_arguments from;
  PyObject *text = NULL, *json = NULL, *result = NULL;
  (void)module;
  if (read_plan_arguments(args, keywords, &from)) {
    text = text_of(fal_explain(&from.problem, from.pass, &from.target, FAL_TEXT));
    json = text != NULL ? text_of(fal_explain(&from.problem, from.pass, &from.target, FAL_JSON)) : NULL;
  }
  if (json != NULL) result = PyTuple_Pack(2, text, json);
  Py_XDECREF(json);
  Py_XDECREF(text);
  Py_XDECREF(from.cpu_level);
  return result;
}

static PyObject* plan_workspace_bytes(PyObject* self, void* none) {
  plan_object* plan = (plan_object*)self;
  (void)none;
  return is_made(plan) ? PyLong_FromSize_t(fal_plan_workspace(plan->plan)) : NULL;
}

static PyObject* plan_backend(PyObject* self, void* none) {
  static const char* const names[] = {"best", "ref", "cpu", "sm80", "sm90"};
  plan_object* plan = (plan_object*)self;
  (void)none;
  return is_made(plan) ? PyUnicode_FromString(names[fal_plan_backend(plan->plan)]) : NULL;
}

/* A plan is its problem and its target, and a copy is made from them anew, in this process or in another one:
 * (copyreg.__newobj__, (type,), state). The state has the bytes of both structs, so it is of this version alone. */
static PyObject* plan_reduce(PyObject* self, PyObject* none) {
  const plan_arguments* from = &((plan_object*)self)->made_from;
  PyObject *module, *make, *result = NULL;
  fal_target target;
  (void)none;
  if (!is_made((plan_object*)self)) return NULL;
  target = from->target;
  target.cpu_level = NULL;
  target.executor = NULL;
  module = PyImport_ImportModule("copyreg");
  make = module != NULL ? PyObject_GetAttrString(module, "__newobj__") : NULL;
  if (make != NULL)
    result = Py_BuildValue("O(O)(siiOy#y#)", make, (PyObject*)Py_TYPE(self), fal_version(), (int)from->pass,
                           from->heads_first, from->cpu_level != NULL ? from->cpu_level : Py_None,
                           (const char*)&from->problem, (Py_ssize_t)sizeof from->problem, (const char*)&target,
                           (Py_ssize_t)sizeof target);
  Py_XDECREF(make);
  Py_XDECREF(module);
  return result;
}

static PyObject* plan_setstate(PyObject* self, PyObject* state) {
  plan_object* plan = (plan_object*)self;
  const char *version, *problem, *target;
  Py_ssize_t problem_size, target_size;
  plan_arguments from;
  PyObject* level;
  fal_plan* made = NULL;
  fal_status status;
  int pass;
  memset(&from, 0, sizeof from);
  if (!PyTuple_Check(state) || !PyArg_ParseTuple(state, "siiOy#y#", &version, &pass, &from.heads_first, &level,
                                                 &problem, &problem_size, &target, &target_size))
    return plan->plan == NULL && !PyErr_Occurred()
               ? PyErr_Format(PyExc_TypeError, "the state of a Plan is a tuple, as its __reduce__ gives it")
               : NULL;
  if (plan->plan != NULL) return PyErr_Format(PyExc_TypeError, "a Plan is made once and never changes");
  if (strcmp(version, fal_version()) != 0 || problem_size != (Py_ssize_t)sizeof from.problem ||
      target_size != (Py_ssize_t)sizeof from.target) {
    raise_text(FAL_INVALID, NULL, "this Plan was pickled by version %s of Falchion, and this is %s: make it anew",
               version, fal_version());
    return NULL;
  }
  memcpy(&from.problem, problem, sizeof from.problem);
  memcpy(&from.target, target, sizeof from.target);
  from.pass = pass;
  from.target.executor = NULL;
  from.target.cpu_level = NULL;
  if (level != Py_None) {
    from.target.cpu_level = PyBytes_AsString(level);
    if (from.target.cpu_level == NULL) return NULL;
    from.cpu_level = Py_NewRef(level);
  }
  status = fal_plan_make(&from.problem, from.pass, &from.target, &made);
  if (status != FAL_OK) {
    Py_XDECREF(from.cpu_level);
    raise_why(status, NULL);
    return NULL;
  }
  plan->plan = made;
  plan->made_from = from;
  return Py_NewRef(Py_None);
}

/* The engine reads as many lengths as the plan has sequences, and the arrays of this run may have fewer or more. */
static int has_planned_count(const call* call, const plan_object* plan) {
  const int64_t given = call->problem.attention.b;
  const int64_t planned = plan->made_from.problem.b;
  if (given == planned) return 1;
  raise_text(FAL_INVALID, call, "cu_seqlens_q is of %lld sequences, but the plan is of %lld", (long long)given,
             (long long)planned);
  return 0;
}

/* What was planned has to be given; what was not planned the engine refuses by itself. */
static int has_planned(const call* call, uint8_t planned, const char* name, PyObject* given) {
  if (!planned || given != NULL) return 1;
  raise_text(FAL_INVALID, call, "%s is not given, but the plan was made with one", name);
  return 0;
}

/* What a run brings, by OPTION_... */
static void options_of(PyObject* const* run, PyObject** options) {
  memset(options, 0, OPTIONS * sizeof *options);
  for (int i = 0; i < COUNT_OF_RUN; ++i) options[options_of_run[i]] = run[OPTIONS_OF_RUN + i];
}

/* Reads what a run brings besides q, k and v. The band is the plan's, for the alignment counts nowhere else. */
static int take_run(call* call, const plan_object* plan, PyObject* const* run, PyObject* const* options,
                    PyObject* const* forwards) {
  const fal_attention* made_from = &plan->made_from.problem;
  call->problem.attention.band = made_from->band;
#define TENSOR_OPTION(name) \
  if (!has_planned(call, made_from->name, #name, options[OPTION_##name])) return 0;
#define LENGTHS_OPTION TENSOR_OPTION
#include "../call/options.def"
  if (made_from->dropout != 0 && options[OPTION_seed] == NULL) return raise_no_seed(call);
  if (call->packed && run[CU_Q] == NULL) {
    PyErr_SetString(PyExc_TypeError, "this plan is one of packed sequences: a run needs cu_seqlens_q");
    return 0;
  }
  if (!call->packed && (run[CU_Q] != NULL || run[CU_K] != NULL)) {
    PyErr_SetString(PyExc_TypeError, "cu_seqlens_q is given, but this plan is not one of packed sequences");
    return 0;
  }
  if (call->packed && (!take_packed(call, run[CU_Q], run[CU_K], NULL, NULL) || !has_planned_count(call, plan)))
    return 0;
  if (made_from->cache) call->problem.attention.s_k = made_from->s_k;
  return read_forwards(call, forwards) && read_option_arrays(call, options) &&
         read_stream(call, options[OPTION_stream]);
}

static PyObject* plan_run_forward(const plan_object* plan, call* call, PyObject* const* values) {
  PyObject *options[OPTIONS], *forwards[FORWARDS] = {NULL};
  fal_attention* problem = &call->problem.attention;
  options_of(values + FORWARD_RUN, options);
  for (int i = 0; i < FORWARDS_OF_RUN; ++i) forwards[forwards_of_run[i]] = values[FIRST_FORWARD + i];
#define SCALE_FORWARD(name) \
  if (!has_planned(call, plan->made_from.problem.name, #name, forwards[FORWARD_##name])) return NULL;
#include "../call/options.def"
  problem->cache = plan->made_from.problem.cache;
  problem->append = plan->made_from.problem.append;
#define SCALE_FORWARD(name) problem->name = plan->made_from.problem.name;
#define COUNT_FORWARD SCALE_FORWARD
#include "../call/options.def"
  if (!name_stream(call, options[OPTION_stream]) || !take_qkv(call, values + Q, NULL) ||
      !take_run(call, plan, values + FORWARD_RUN, options, forwards))
    return NULL;
  return run_forward(call, plan->made_from.problem.lse, values[OUT], values[LSE_OUT]);
}

static PyObject* plan_run_backward(const plan_object* plan, call* call, PyObject* const* values) {
  const fal_attention* made_from = &plan->made_from.problem;
  fal_attention* problem = &call->problem.attention;
  PyObject *options[OPTIONS], *gradients[GRADIENTS] = {NULL};
  const backward_arrays arrays = {values[GRAD_O], values[O], values[LSE], values[GRADS], gradients};
  options_of(values + BACKWARD_RUN, options);
  for (int i = 0; i < GRADIENTS_OF_RUN; ++i) gradients[gradients_of_run[i]] = values[FIRST_GRADIENT + i];
  if (!name_stream(call, options[OPTION_stream]) || !take_qkv(call, values + BACK_Q, NULL) ||
      !take_run(call, plan, values + BACKWARD_RUN, options, NULL))
    return NULL;
#define TENSOR_GRADIENT(name) \
  if (!has_planned(call, made_from->name, #name, gradients[GRADIENT_##name])) return NULL;
#define FLAG_GRADIENT(name) problem->name = made_from->name;
#include "../call/options.def"
  problem->grads = made_from->grads;
  problem->frozen = made_from->frozen;
  return run_backward(call, &arrays);
}

static PyObject* plan_call(PyObject* self, PyObject* args, PyObject* keywords) {
  plan_object* plan = (plan_object*)self;
  PyObject *values[MOST_ARGUMENTS], *result;
  call call;
  int backward;
  if (!is_made(plan)) return NULL;
  backward = plan->made_from.pass == FAL_BACKWARD;
  if (!bind_tuple(backward ? &backward_signature : &forward_signature, args, keywords, values)) return NULL;
  begin(&call, "Plan", ATTENTION, plan->made_from.pass);
  call.fixed = plan->plan;
  call.heads_first = plan->made_from.heads_first;
  call.packed = plan->made_from.problem.packed;
  result = backward ? plan_run_backward(plan, &call, values) : plan_run_forward(plan, &call, values);
  end(&call);
  return result;
}

static PyMethodDef methods[] = {{"describe", plan_describe, METH_NOARGS, "The decision in one line."},
                                {"__reduce__", plan_reduce, METH_NOARGS, "How a plan is copied: made anew."},
                                {"__setstate__", plan_setstate, METH_O, "Makes a copy."},
                                {"_explain_text", plan_explain_text, METH_NOARGS, "The whole story: (text, JSON)."},
                                {NULL, NULL, 0, NULL}};

static PyGetSetDef properties[] = {
    {"workspace_bytes", plan_workspace_bytes, NULL, "How many bytes of workspace a run needs.", NULL},
    {"backend", plan_backend, NULL, "The backend that was taken: \"ref\", \"cpu\", \"sm80\" or \"sm90\".", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_init, (void*)plan_init},
                              {Py_tp_dealloc, (void*)plan_dealloc},
                              {Py_tp_call, (void*)plan_call},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, properties},
                              {Py_tp_doc, (void*)DOC_Plan},
                              {0, NULL}};
static PyType_Spec spec = {"falchion._fal.Plan", sizeof(plan_object), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                           slots};

int add_plan_type(PyObject* module) {
  PyObject* type = PyType_FromSpec(&spec);
  int ok = type != NULL && ready_signature(&forward_signature) && ready_signature(&backward_signature) &&
           ready_plan_arguments() && PyModule_AddObjectRef(module, "Plan", type) == 0;
  Py_XDECREF(type);
  return ok;
}
