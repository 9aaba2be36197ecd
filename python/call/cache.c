/* call/cache.c: a KV cache, and scales of 8 bits. A cache's arrays say what it is: a table that there are pages and how
 * large one is, new keys that they are appended, and angles how many columns turn. Scales say it too, but where q has 8
 * bits and there is none. */
#include "fal.h"

enum { MOST_KEYS = 1 << 30 };

int says_cache(call* call, PyObject* const* forwards) {
  fal_attention* problem = &call->problem.attention;
  if (forwards == NULL) return 1;
#define FLAG_FORWARD(name) \
  if (!to_flag(#name, forwards[FORWARD_##name], &problem->name)) return 0;
#include "options.def"
#define TENSOR_FORWARD(name) \
  if (forwards[FORWARD_##name] != NULL) problem->cache = 1;
#include "options.def"
#define SCALE_FORWARD(name) problem->name = forwards[FORWARD_##name] != NULL;
#include "options.def"
  if ((problem->k_scale || problem->v_scale) && !is_8bit(problem->dtype)) problem->cache = 1;
  problem->append = forwards[FORWARD_k_new] != NULL || forwards[FORWARD_v_new] != NULL;
  return 1;
}

static int take_starts(call* call, const char* name, PyObject* object, const int32_t** out) {
  const int64_t b = call->problem.attention.b;
  int64_t count = 0;
  if (object == NULL) return 1;
  if (!take_lengths(call, name, object, out, &count)) return 0;
  if (count == b + 1) return 1;
  raise_text(FAL_INVALID, call, "%s has %lld numbers: it must have b + 1, and b = %lld", name, (long long)count,
             (long long)b);
  return 0;
}

/* A sequence has as many keys as there is room for; of pages a caller with packed queries may say fewer, by max_k. */
static void set_keys(fal_attention* problem, const fal_operands* operands, int has_pages) {
  const int64_t size = operands->k.shape[1];
  int64_t room = size;
  if (has_pages) {
    const int64_t columns = operands->page_table.shape[1];
    problem->page_size = size;
    room = size > 0 && columns > MOST_KEYS / size ? MOST_KEYS : columns * size;
  }
  if (problem->s_k == 0 || problem->s_k > room || !has_pages) problem->s_k = room;
}

int read_forwards(call* call, PyObject* const* forwards) {
  fal_attention* problem = &call->problem.attention;
  fal_operands* operands = &call->operands.attention;
  uint8_t given = 0;
  if (forwards == NULL) return 1;
#define COUNT_FORWARD(name) \
  if (forwards[FORWARD_##name] != NULL && !to_int64(#name, forwards[FORWARD_##name], &problem->name)) return 0;
#define TENSOR_FORWARD(name) \
  if (!take_operand(call, #name, forwards[FORWARD_##name], &given, &operands->name)) return 0;
#define SCALE_FORWARD TENSOR_FORWARD
#define STARTS_FORWARD(name) \
  if (!take_starts(call, #name, forwards[FORWARD_##name], &operands->name)) return 0;
#include "options.def"
  if (forwards[FORWARD_rotary] != NULL) problem->rotary_dim = 2 * operands->rotary.shape[3];
  if (problem->cache) set_keys(problem, operands, forwards[FORWARD_page_table] != NULL);
  return 1;
}
