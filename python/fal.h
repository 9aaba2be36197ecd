/* fal.h: what the files of the extension module falchion._fal share. It is C99 on CPython's limited API, so that one
 * binary serves every CPython from 3.11 on. A call goes through these steps, in this order, whatever the operation:
 *
 *   bind the arguments (arguments/) -> read the arrays (arrays/) -> the options (call/options.c, options_arrays.c)
 *   -> make what the caller does not give (call/outputs.c) -> find or make the plan (call/plans.c) -> run it
 * (call/run.c)
 *
 * functions/ has the functions of the module, which take these steps; base/ has the exceptions and the names of types.
 * A file calls only files of its own folder and of those that come before it below (tests/circles_test.py).
 *
 * A function that can fail returns 0 or a null pointer and has then set a Python exception, as CPython's own do. All of
 * this runs under the GIL, which is given up around fal_plan_run alone; so what is static here needs no lock. */
#ifndef FALCHION_PYTHON_FAL_H_
#define FALCHION_PYTHON_FAL_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <falchion/falchion.h>

#include <dlpack/dlpack.h>

/* --- same_library.c --- */
int check_same_library(void);

/* --- base/errors.c --- */
struct call;
struct array;
int add_errors(PyObject* module);
int is_error_of_ours(void); /* Is the exception that is set a falchion.Error? */
/* Raises the class of this status with this thread's fal_why() in Python's words, and a note of the call's arrays. */
void raise_why(fal_status status, const struct call* call);
/* Raises the class of this status with a text of our own. The formats are PyUnicode_FromFormat's. */
void raise_text(fal_status status, const struct call* call, const char* format, ...);
PyObject* text_of(const char* text); /* the engine's, or the exception where it is null */
/* --- base/words.c --- */
void in_words_of_python(const char* why, const struct call* call, char* out, size_t size);
/* --- base/dtypes.c --- */
enum { TYPE_I64 = 100, TYPE_U64, TYPE_U8, TYPE_OTHER }; /* array.dtype besides FAL_F32 ... FAL_I32 */
int element_size(int dtype);
const char* dtype_name(const struct array* array); /* what a message calls the type */
const char* type_name(int dtype);                  /* the same of a type with a number here; else null */

/* --- arrays/libraries.c: which library an array is of, remembered for each type --- */
enum { BY_TABLE = 1, BY_BUFFER, BY_DLPACK, BY_CUDA_INTERFACE };
typedef struct library {
  int by;                       /* how its arrays are read; 0: this type is no array */
  const DLPackExchangeAPI* api; /* BY_TABLE */
  PyObject* name;               /* "torch", "numpy", "cupy": the top of the type's module; interned */
  PyObject* empty;      /* its function `empty(shape, dtype)`, or null: it makes arrays by another way or not at all */
  PyObject* empty_like; /* its function empty_like, or null */
  PyObject* float32;    /* its name of the type of LSE, or null */
  PyObject* uint8;      /* its name of the type of a workspace, or null */
  int has_new_empty;    /* its arrays have the method new_empty, as torch's do */
  int has_mask;         /* its arrays have elements that do not count, as those of numpy.ma */
} library;
int library_of(PyObject* object, library* out);
int knows_stream_of(const library* from); /* Can the library be asked for the stream that it works on? */
PyObject* look_up(PyObject* module_name, const char* path); /* module.a.b.c, or null with an exception */

/* --- arrays/arrays.c --- */
enum { WHOLE_AXES = 4 };
/* What a call knows of one array that the caller gave or that it made. The axes are the caller's. */
typedef struct array {
  const char* name; /* of the argument */
  library from;
  void* data;
  int64_t shape[WHOLE_AXES], stride[WHOLE_AXES]; /* strides in elements */
  int rank;
  int dtype;
  char other_type[24]; /* TYPE_OTHER: what the library calls the type */
  int on_gpu;
  int32_t device; /* on_gpu: its CUDA number */
  int read_only;
  void* stream; /* BY_CUDA_INTERFACE: the one that the array is written on, or null where it does not say */
  int has_buffer;
  Py_buffer buffer; /* held while has_buffer */
  PyObject* kept;   /* what has to live as long as `data` is used, or null */
} array;
/* Reads an object into *out; release_array ends that. `writes`: the call writes into it. `stream`: the one that the
 * caller names for the run, or null. */
int read_array(const char* name, PyObject* object, int writes, void* stream, array* out);
void release_array(array* array);
int has_no_mask(const char* name, PyObject* object, const library* from); /* 0 with an exception */
int can_be_written(const library* from);             /* JAX's arrays never change, though DLPack does not say so */
int read_dltensor(const DLTensor* from, array* out); /* dlpack.c */
int read_by_dlpack(PyObject* object, void* stream, array* out); /* dlpack.c */
int read_by_buffer(PyObject* object, int writes, array* out);   /* buffer.c */
int read_by_cuda_interface(PyObject* object, array* out);       /* cuda.c */
int knows_gpu_of_numba(const library* from, int32_t* device);   /* cuda.c */
/* Of strides, which may be anything. One that is too large wraps round: no array has two numbers so far apart. */
int64_t times(int64_t a, int64_t b);
/* Two axes as one. Of shapes that no array has it is a number that the engine refuses: a negative one, or INT64_MAX. */
int64_t extent_of_both(int64_t a, int64_t b);

/* --- arguments/arguments.c --- */
enum { MOST_ARGUMENTS = 64 };
typedef struct signature {
  const char* function;
  const char* const* names; /* ends with null */
  int required, positional; /* how many must be given; how many may be given by position */
  int count;                /* filled in by ready_signature, like the rest */
  PyObject* interned[MOST_ARGUMENTS];
} signature;
int ready_signature(signature* signature);
/* Fills values[i], borrowed, for each name; null where the argument is not given or None. The first takes what
 * METH_FASTCALL hands over, the second a tuple and a dictionary. */
int bind(const signature* signature, PyObject* const* args, Py_ssize_t count, PyObject* names, PyObject** values);
int bind_tuple(const signature* signature, PyObject* args, PyObject* keywords, PyObject** values);
/* --- arguments/foreign_names.c --- */
/* TypeError: the function has no such argument; and what one of that name in other libraries is called here. */
void raise_no_argument(const char* function, PyObject* name, PyObject* parameters);
PyObject* no_argument(PyObject* module, PyObject* args);

/* --- arguments/numbers.c: numbers and words of arguments. `name` stands in the messages. --- */
int to_int64(const char* name, PyObject* object, int64_t* out);
int to_uint64(const char* name, PyObject* object, uint64_t* out);
int to_float(const char* name, PyObject* object, float* out);
int to_flag(const char* name, PyObject* object, uint8_t* out);
/* 1 or 0 of True and False, of the whole numbers 1 and 0, and of what has no axes and is a bool; -1 with an exception.
 */
enum { NO_TRUTH = 2 };
int truth_of(PyObject* object);
int is_bool(PyObject* object); /* of Python, or an array without axes */
PyObject* as_number(PyObject* module, PyObject* args);
PyObject* as_whole(PyObject* module, PyObject* args);
PyObject* as_flag(PyObject* module, PyObject* args);
int is_list(PyObject* object); /* Is it a list or a tuple? */
/* Which of `words` (ends with null) a string is: its index in *out. */
int to_word(const char* name, PyObject* object, const char* const* words, int* out);
enum { FLOATS = 3, GEMM_RESULTS, GEMM_TYPES = 6 }; /* how many of the names of types read_dtype takes */
int read_dtype(const char* name, PyObject* dtype, int count,
               int32_t* out); /* "float16", numpy.float16, torch.float16 */
int read_extents(const char* name, PyObject* shape,
                 array* out); /* a tuple or list; rank is 5 where it is more than 4 */

/* --- call/call.c: one call of one operation --- */
/* The options that every function of attention takes, those of the forward pass and those of gradients, in the order of
 * call/options.def. */
enum {
#define OPTION(name) OPTION_##name,
#include "call/options.def"
  OPTIONS
};
enum {
#define FORWARD(name) FORWARD_##name,
#include "call/options.def"
  FORWARDS
};
enum {
#define GRADIENT(name) GRADIENT_##name,
#include "call/options.def"
  GRADIENTS
};

enum { MOST_PARTS = 32 }; /* of merge */
enum { MOST_ARRAYS = 2 * MOST_PARTS + 2 };
enum { ATTENTION, LINEAR, GEMM, NORM, QUANTISE };
/* A problem and its operands, of whichever kind. Each struct begins with its size. */
typedef union problem {
  size_t size;
  fal_attention attention;
  fal_linear_attention linear;
  fal_gemm gemm;
  fal_norm norm;
  fal_quantise quantise;
} problem;
typedef union operands {
  size_t size;
  fal_operands attention;
  fal_linear_operands linear;
  fal_gemm_operands gemm;
  fal_norm_operands norm;
  fal_quantise_operands quantise;
} operands;
enum { NOT_ASKED, RECORDS_NOT, RECORDS };
/* What explain(...) asks of a call: of which type shapes are, and which target; and what it gets, (text, JSON). */
typedef struct explanation {
  int32_t dtype;
  PyObject *target, *texts;
} explanation;
typedef struct call {
  const char* function;
  int kind; /* ATTENTION, ...: which problem and operands count */
  int32_t pass;
  fal_target target;
  problem problem;
  operands operands;
  int heads_first; /* layout="bhsd" */
  int packed;
  int recording;       /* does torch record gradients now? */
  const array* leader; /* the first array, which says the library and the device of all */
  PyObject* leader_object;
  PyObject* entered[2]; /* the array library's device and stream, current for this call; each may be null */
  void* stream;
  int names_stream;   /* stream=: the caller knows what has to wait for what */
  explanation* story; /* the call is not run but explained; or null */
  int count;
  const fal_plan* fixed; /* the plan of a Plan object, which goes before the cache, or null */
  array arrays[MOST_ARRAYS];
} call;
void begin(call* call, const char* function, int kind, int32_t pass);
void end(call* call); /* releases what the call holds; keeps an exception that is set */
/* Takes an array into the call, and sees that it is of the leader's library and device. */
array* take(call* call, const char* name, PyObject* object, int writes);
/* Takes a shape in the place of an array, dense and without memory. FAL_AS_Q: of the type that explain was given. */
array* take_shape(call* call, const char* name, PyObject* shape, int dtype);
/* Takes q, k, v, o and their gradients: 4 axes in the call's layout, or packed 3. As the engine's (b, s, h, d). */
int take_bshd(call* call, const char* name, PyObject* object, int writes, fal_tensor* out);
int take_lse(call* call, const char* name, PyObject* object, int writes, fal_tensor* out);
/* Takes an array of int32 with one axis, which lies without gaps. On the host it may be a list, or whole numbers of any
 * type. */
int take_lengths(call* call, const char* name, PyObject* object, const int32_t** out, int64_t* length);
/* The longest of packed sequences, as the caller says it or, where the host has the lengths, as they do if that is
 * more. Where a GPU has the lengths it is their mean, which is all that a plan of a GPU needs. */
int read_longest(const call* call, const char* name, PyObject* given, int64_t b, const int32_t* starts, int64_t total,
                 int64_t* out);
int has_float_type(const array* a);
int is_8bit(int32_t dtype);
int view_bshd(const call* call, const array* from, fal_tensor* out);
/* q: as view_bshd, but in the forward pass it may have 8 bits. k and v: those of a cache may have 8 bits and always
 * have four axes, and beside q of 8 bits, which the problem knows by then, they may have 8 bits too. */
int view_queries(const call* call, const array* from, fal_tensor* out);
int view_keys(const call* call, const array* from, fal_tensor* out);
int view_lse(const call* call, const array* from, fal_tensor* out);

/* --- call/stream.c --- */
int name_stream(call* call, PyObject* stream);     /* before arrays are taken: those of some libraries wait for it */
int follow_stream(call* call, const array* array); /* the run goes to the stream that its arrays are written on */
int read_stream(call* call, PyObject* stream);     /* before anything is allocated on a GPU */
int enter_device(call* call);                      /* then; for calls without a plan, which knows its device */
void leave_stream(call* call);

/* --- call/options.c, options_arrays.c --- */
int read_layout(call* call, PyObject* layout); /* before arrays are taken */
int read_target(call* call, PyObject* backend_name, PyObject* thread_count);
/* "ref", "cpu", a GPU's architecture, or an instruction set of CPUs, whose name *level keeps alive. Nothing of it has
 * to be in this machine, except that the plan can only run there. */
int read_target_name(call* call, PyObject* target, PyObject** level);
int read_band(call* call, PyObject* const* options, int same_lengths); /* causal, window, align */
int read_numbers_and_flags(call* call, PyObject* const* options);      /* scale and its like */
int raise_no_seed(const call* call);                                   /* A run with dropout needs a seed. */
int read_option_arrays(call* call, PyObject* const* options);          /* tensors, seed and offset, lengths */
/* Takes an array that may be missing into the member `name` of fal_operands, and says so in the problem's flag. */
int take_operand(call* call, const char* name, PyObject* object, uint8_t* flag, fal_tensor* out);
int most_axes(const char* name);   /* how many axes such an array may have; the least is 1 */
int add_options(PyObject* module); /* _options, _forwards, _gradients, _operands: ((kind or shape, name), ...) */
/* --- call/cache.c: `forwards` are options by FORWARD_..., or null where the pass has none --- */
int says_cache(call* call, PyObject* const* forwards);    /* after q, before k and v are taken */
int read_forwards(call* call, PyObject* const* forwards); /* once it is known how many sequences there are */
/* --- */
/* Used ones or first keys: may a sequence have rows that nobody uses? */
int has_lengths(const fal_attention* problem);
/* Is the type one that the engine knows at all? `wanted` stands in the message. */
int has_engine_type(const array* a, const char* wanted);
int view_last(const array* from, fal_tensor* out); /* the last of four axes as all four: those missing have extent 1 */

/* --- call/outputs.c --- */
enum { AS_IT_COMES, ZEROES, MINUS_INFINITY };
/* Makes an array of the leader's library on its device, dense in the order of its axes, and of the leader's type where
 * `dtype` is FAL_AS_Q. `argument`: which one the caller may give instead, or null. Returns a new reference. */
PyObject* make_array(call* call, const char* name, const char* argument, int rank, const int64_t* shape, int dtype,
                     int fill, array** out);
/* Gives the caller's `given` (a new reference), or makes one as (b, s, h, d) in the call's layout. */
PyObject* output_bshd(call* call, const char* name, PyObject* given, const int64_t* bshd, int dtype, int fill,
                      fal_tensor* out);
PyObject* output_lse(call* call, const char* name, PyObject* given, int fill, fal_tensor* out);

/* --- call/plans.c, run.c --- */
typedef struct kept_plan {
  fal_plan* plan;
  int users; /* the cache is one of them, and each run that goes on; the last one frees it */
} kept_plan;
kept_plan* plan_for(call* call); /* the caller is one of its users: drop_plan ends that */
void drop_plan(kept_plan* plan);
PyObject* plan_cache_info(PyObject* module, PyObject* none);
PyObject* plan_cache_clear(PyObject* module, PyObject* none);
int run_plan(call* call, const fal_plan* plan);
int run(call* call); /* plan_for and run_plan; a call with a story is explained instead */
PyObject* release_workspaces(PyObject* module, PyObject* none);

/* --- functions/: the functions of the module --- */
#define FUNCTION(name) PyObject* name(PyObject* module, PyObject* const* args, Py_ssize_t count, PyObject* names)
FUNCTION(py_attention);
FUNCTION(py_attention_backward);
FUNCTION(py_varlen);
FUNCTION(py_varlen_backward);
FUNCTION(py_linear_attention);
FUNCTION(py_linear_attention_backward);
FUNCTION(py_gemm);
FUNCTION(py_layer_norm);
FUNCTION(py_rms_norm);
FUNCTION(py_layer_norm_backward);
FUNCTION(py_rms_norm_backward);
FUNCTION(py_quantise);
PyObject* call_gemm(explanation* story, PyObject* const* args, Py_ssize_t count, PyObject* names);
PyObject* call_layer_norm(explanation* story, PyObject* const* args, Py_ssize_t count, PyObject* names);
PyObject* call_rms_norm(explanation* story, PyObject* const* args, Py_ssize_t count, PyObject* names);
FUNCTION(explain_call);
FUNCTION(py_merge);
FUNCTION(py_validate_lengths);
PyObject* torch_are_ordinary(PyObject* module, PyObject* const* args, Py_ssize_t count);
FUNCTION(torch_attention);
/* What both passes of a norm read in the same way (norm.c): the last of the axes (b, s, h, d). */
int view_numbers(const array* a, fal_tensor* out);
const array* take_rows(call* call, const char* name, PyObject* object, int writes, fal_tensor* out);
/* What both passes read in the same way (attention.c). */
/* q, k and v, and what `forwards`, which may be null, says of a cache. */
int take_qkv(call* call, PyObject* const* qkv, PyObject* const* forwards);
int32_t dtype_of_o(const fal_operands* operands); /* of an O that is made, by q and v */
int take_packed(call* call, PyObject* cu_q, PyObject* cu_k, PyObject* max_q, PyObject* max_k);
/* All inputs of the forward pass, and the options. `lengths` is cu_seqlens_q, cu_seqlens_k, max_q, max_k, or null. */
int take_inputs(call* call, PyObject* const* qkv, PyObject* const* lengths, PyObject* const* options,
                PyObject* const* forwards);
PyObject* run_forward(call* call, int wants_lse, PyObject* out, PyObject* lse); /* the steps after the options */
/* What the backward pass takes besides q, k, v and the options; all but the first three may be null
 * (attention_backward.c). */
typedef struct backward_arrays {
  PyObject *grad_o, *o, *lse, *grads;
  PyObject* const* gradients; /* by GRADIENT_..., of which the arrays are taken */
} backward_arrays;
PyObject* run_backward(call* call, const backward_arrays* arrays);
int ready_attention(void);
int ready_attention_backward(void);
int ready_linear(void);
int ready_gemm(void);
int ready_norm(void);
int ready_norm_backward(void);
int ready_quantise(void);
int ready_merge(void);
int ready_torch(void);

/* --- functions/plan_arguments.c, plan_type.c --- */
typedef struct plan_arguments {
  fal_attention problem;
  int32_t pass;
  fal_target target;
  PyObject* cpu_level; /* keeps target.cpu_level alive, or null */
  int heads_first;
} plan_arguments;
int read_plan_arguments(PyObject* args, PyObject* keywords, plan_arguments* out);
int ready_plan_arguments(void);
int add_plan_type(PyObject* module);
PyObject* explain_text(PyObject* module, PyObject* args, PyObject* keywords);

#endif /* FALCHION_PYTHON_FAL_H_ */
