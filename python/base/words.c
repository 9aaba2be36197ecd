/* base/words.c: the engine's reasons in the words of Python. The engine speaks of its own structs: "band.left = -7",
 * "o.dtype = f16". Who calls from Python knows window[0], out, and float16, and counts the axes of the own array. */
#include <ctype.h>
#include <string.h>

#include "fal.h"

/* Whole words of the engine, and where they stand for the word of Python: in the backward pass o is an argument of that
 * name, and a plan of shapes has dtype_v. */
enum { ANYWHERE, OF_ARRAYS, IN_FORWARD, IN_GEMM, IN_NORM, IN_QUANTISE };
static const struct {
  const char *engine, *python;
  int where;
} words[] = {{"band.left", "window[0]", ANYWHERE},
             {"band.right", "window[1]", ANYWHERE},
             {"band.align", "align", ANYWHERE},
             {"band.offset", "align", ANYWHERE},
#define FALCHION_FIELD(kind, key, member, ...) {#member, #key, ANYWHERE}, /* "score.scale" */
#include "../../src/base/fields.def"
             {"dtype_k", "the type of k", OF_ARRAYS},
             {"dtype_v", "the type of v", OF_ARRAYS},
             {"dtype_o", "the type of out", OF_ARRAYS},
             {"rng.at", "seed", ANYWHERE},
             {"rng.seed", "seed", ANYWHERE},
             {"rng.offset", "offset", ANYWHERE},
             {"rng.origin.b", "origin[0]", ANYWHERE},
             {"rng.origin.h", "origin[1]", ANYWHERE},
             {"rng.origin.i", "origin[2]", ANYWHERE},
             {"rng.origin.j", "origin[3]", ANYWHERE},
             {"rng.origin.h_q", "origin[4]", ANYWHERE},
             {"o", "out", IN_FORWARD},
             {"final_state", "state_out", IN_FORWARD},
             {"final_z", "state_out[1]", IN_FORWARD},
             {"grad_final_state", "grad_state", ANYWHERE},
             {"grad_final_z", "grad_state[1]", ANYWHERE},
             {"d", "out", IN_GEMM},
             {"bias_n", "bias", IN_GEMM},
             {"dtype_c", "the type of c", IN_GEMM},
             {"dtype_d", "the type of out", IN_GEMM},
             {"as_q", "that of out", IN_GEMM},
             {"y", "out", IN_NORM},
             {"dtype_y", "the type of out", IN_NORM},
             {"y", "out", IN_QUANTISE},
             {"dtype_y", "dtype", IN_QUANTISE}};

static int is_where(const call* call, int where) {
  if (where == ANYWHERE) return 1;
  if (call == NULL) return 0;
  if (where == OF_ARRAYS) return 1;
  if (where == IN_GEMM) return call->kind == GEMM;
  if (where == IN_NORM) return call->kind == NORM;
  if (where == IN_QUANTISE) return call->kind == QUANTISE;
  return call->pass == FAL_FORWARD && (call->kind == ATTENTION || call->kind == LINEAR);
}

static const struct {
  const char *engine, *python;
} types[] = {{"f32", "float32"},    {"f16", "float16"}, {"bf16", "bfloat16"}, {"boolean", "bool"},
             {"as_q", "that of q"}, {"i32", "int32"},   {"i8", "int8"},       {"e4m3", "float8_e4m3fn"}};

static int is(const char* word, size_t length, const char* other) {
  return strlen(other) == length && memcmp(word, other, length) == 0;
}

static int ends_with(const char* text, const char* end) {
  const size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

static const char* python_type(const char* word, size_t length) {
  for (size_t i = 0; i < sizeof types / sizeof types[0]; ++i)
    if (is(word, length, types[i].engine)) return types[i].python;
  return NULL;
}

static int has_8bit_queries(const call* call) {
  const int32_t dtype = call->problem.attention.dtype;
  return call->kind == ATTENTION && (dtype == FAL_I8 || dtype == FAL_E4M3);
}

/* Python's word for a word of the engine, or null where it is the same. `before` is the text so far. */
static const char* python_word(const call* call, const char* before, const char* word, size_t length) {
  if (ends_with(before, ".dtype = ") || ends_with(before, "problem's is ")) return python_type(word, length);
  if (ends_with(before, "over ") && call != NULL && call->packed) { /* the longest sequence that a plan is for */
    if (is(word, length, "s_q")) return "max_q";
    if (is(word, length, "s_k")) return "max_k";
    if (is(word, length, "s")) return "max_s";
  }
  for (size_t i = 0; i < sizeof words / sizeof words[0]; ++i) {
    if (!is(word, length, words[i].engine) || !is_where(call, words[i].where)) continue;
    /* "with this o": here it is no argument. */
    if (words[i].where == IN_FORWARD && *before != '\0' && !ends_with(before, "overlaps ")) continue;
    return words[i].python;
  }
  return call != NULL && (call->kind >= GEMM || has_8bit_queries(call)) ? python_type(word, length) : NULL;
}

/* One of the engine's `axes`, of which the array has the last ones. One that it lacks is counted from the end, as
 * Python counts: of (h, d) the engine's axis 2 of (b, s, h, d) is [0], and its axis 0 is [-4]. */
static int from_last(const array* a, int axes, int axis) {
  const int lacks = axes - a->rank;
  return axis < lacks ? axis - axes : axis - lacks;
}

static int axis_of_gemm(const call* call, const array* a, int axis) {
  const int is_scale = strncmp(a->name, "scale_", 6) == 0;
  if (strcmp(a->name, "bias") == 0) return from_last(a, 4, axis);
  if (is_scale && call->problem.gemm.scaling == FAL_SCALING_BLOCK128) return from_last(a, 3, axis);
  if (is_scale || strcmp(a->name, "bias_m") == 0) return from_last(a, 2, axis);
  if (a->rank == 4) return axis;
  return from_last(a, 3, axis < 2 ? axis : 2); /* (batch, rows, columns) or (rows, columns) */
}

/* The engine's four axes of an array are (b, s, h, d), (b, h, s, 1) of an LSE, and so on. Which is it of the array as
 * the caller has it? */
enum { NO_AXIS = 4 }; /* the caller's array has none like it */
static int axis_of(const call* call, const array* a, int axis) {
  const char* name = strncmp(a->name, "grad_", 5) == 0 ? a->name + 5 : a->name;
  const int is_lse = strncmp(name, "lse", 3) == 0;
  if (call->kind == GEMM) return axis_of_gemm(call, a, axis);
  if (call->kind == NORM) return from_last(a, 4, axis);
  if (call->kind == QUANTISE) return strcmp(name, "mean") == 0 && axis > 1 ? axis - 1 : axis;
  if (strcmp(name, "alibi") == 0 || (strcmp(name, "decay") == 0 && a->rank == 1))
    return axis == 2 ? a->rank - 1 : axis == 0 && a->rank == 2 ? 0 : NO_AXIS;
  if (strcmp(name, "bias") == 0 || strcmp(name, "mask") == 0) return from_last(a, 4, axis);
  if (strstr(name, "state") != NULL || strstr(name, "z") != NULL) return axis;
  if (strcmp(name, "rotary") == 0 && a->rank == 3) return from_last(a, 4, axis);
  if (strcmp(name, "rotary") == 0) return axis == 1 ? 0 : axis == 3 ? 1 : NO_AXIS;
  if (strstr(name, "_scale") != NULL) return axis == 3 ? NO_AXIS : from_last(a, 3, axis);
  if (strcmp(name, "page_table") == 0) return a->rank == 2 ? axis : axis == 1 ? 0 : NO_AXIS;
  if (call->heads_first && !is_lse && (axis == 1 || axis == 2)) axis = 3 - axis;
  if (!call->packed || a->rank == 4) return axis; /* beside packed queries a cache has all four */
  return axis == 0 ? NO_AXIS : axis - 1;
}

static const array* array_named(const call* call, const char* name) {
  for (int i = 0; call != NULL && i < call->count; ++i)
    if (strcmp(call->arrays[i].name, name) == 0) return &call->arrays[i];
  return NULL;
}

static void append(char* out, size_t size, const char* text, size_t length) {
  const size_t used = strlen(out);
  if (length >= size - used) length = size - used - 1;
  memcpy(out + used, text, length);
  out[used + length] = '\0';
}

/* "[1]" after "k.shape" in the caller's own count. Returns how much was read of `at`. */
static size_t append_axis(const call* call, const array* a, const char* at, char* out, size_t size) {
  char text[16];
  int axis;
  if (a == NULL || at[0] != '[' || !isdigit((unsigned char)at[1]) || at[2] != ']') return 0;
  axis = axis_of(call, a, at[1] - '0');
  if (axis >= a->rank) return 0;
  PyOS_snprintf(text, sizeof text, "[%d]", axis);
  append(out, size, text, strlen(text));
  return 3;
}

void in_words_of_python(const char* why, const call* call, char* out, size_t size) {
  out[0] = '\0';
  while (*why != '\0') {
    char name[40];
    size_t length = 0, stem;
    const char* word;
    while (isalnum((unsigned char)why[length]) || why[length] == '_' ||
           (length > 0 && why[length] == '.' && isalpha((unsigned char)why[length + 1])))
      ++length;
    if (length == 0) {
      append(out, size, why++, 1);
      continue;
    }
    if (is(why, length, "Attention") && ends_with(out, "set ") && why[length] == ':') { /* "set Attention::lse" */
      out[strlen(out) - strlen("set ")] = '\0';
      for (why += length; *why == ':';) ++why;
      PyOS_snprintf(name, sizeof name, "%s%.20s=True", strcmp(why, "lse") == 0 ? "return_" : "", why);
      append(out, size, "make the Plan with ", strlen("make the Plan with "));
      append(out, size, name, strlen(name));
      return;
    }
    word = python_word(call, out, why, length);
    for (stem = 0; stem < length && why[stem] != '.';) ++stem;
    if (word != NULL) { /* the whole word */
      append(out, size, word, strlen(word));
    } else { /* or what stands before its dot: "o" of "o.shape" */
      word = stem < length ? python_word(call, out, why, stem) : NULL;
      PyOS_snprintf(name, sizeof name, "%.*s", (int)(word != NULL ? strlen(word) : stem), word != NULL ? word : why);
      if (word != NULL)
        append(out, size, word, strlen(word));
      else
        append(out, size, why, stem);
      append(out, size, why + stem, length - stem);
      if (ends_with(out, ".shape") || ends_with(out, ".stride"))
        length += append_axis(call, array_named(call, name), why + length, out, size);
    }
    why += length;
  }
}
