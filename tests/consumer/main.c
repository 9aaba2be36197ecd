/* tests/consumer/main.c: a user's program around the README's C examples (readme.c, cut out of README.md). */
#include <falchion/falchion.h>
#include <stdio.h>
#include <stdlib.h>

fal_status attend(void* q, void* k, void* v, void* o);
fal_status decode(fal_operands x, int32_t* used, int tokens, void (*model)(const fal_operands* x, int token));

static int32_t used = 0;

/* A model whose keys are all alike, and whose values are the number of the token. */
static void count_tokens(const fal_operands* x, int token) {
  int i;
  for (i = 0; i < 2 * 64; ++i) {
    ((float*)x->k_new.data)[i] = 0.5F;
    ((float*)x->v_new.data)[i] = (float)token;
  }
  ++used;
}

/* After n tokens each element of O is the mean of 0 ... n - 1. */
static int check_decode(void) {
  static float q[8 * 64], o[8 * 64], k[3 * 16 * 2 * 64], v[3 * 16 * 2 * 64];
  static float k_new[2 * 64], v_new[2 * 64];
  static int32_t pages[] = {2, 0, -1};
  fal_operands x = {.size = sizeof x, .q = fal_tensor_dense(q, FAL_F32, 1, 1, 8, 64)};
  int i;
  x.o = x.q;
  x.o.data = o;
  x.k = x.v = fal_tensor_dense(k, FAL_F32, 3, 16, 2, 64);
  x.v.data = v;
  x.k_new = x.v_new = fal_tensor_dense(k_new, FAL_F32, 1, 1, 2, 64);
  x.v_new.data = v_new;
  x.page_table = fal_tensor_dense(pages, FAL_I32, 1, 3, 1, 1);
  if (decode(x, &used, 20, count_tokens) != FAL_OK) {
    printf("refused: %s\n", fal_why());
    return 1;
  }
  for (i = 0; i < 8 * 64; ++i) {
    if (used == 20 && o[i] > 9.4999F && o[i] < 9.5001F) continue;
    printf("expected 9.5 after 20 tokens, got %g after %d\n", (double)o[i], (int)used);
    return 1;
  }
  return 0;
}

int main(void) {
  enum { count = 1024 * 8 * 128 };
  uint16_t* x = malloc(4 * count * sizeof *x); /* bf16 */
  int i;
  if (check_decode() != 0) return 1;
  for (i = 0; i < count; ++i) {
    x[i] = 0x3F00;
    x[i + count] = 0x3E80;
    x[i + 2 * count] = 0x3FC0;
    x[i + 3 * count] = 0xFFFF;
  }
  if (attend(x, x + count, x + 2 * count, x + 3 * count) != FAL_OK) {
    printf("refused: %s\n", fal_why());
    return 1;
  }
  for (i = 3 * count; i < 4 * count; ++i) /* a weighted mean of 1.5s */
    if (x[i] != 0x3FC0) return printf("expected 1.5, got bits %04x\n", x[i]), 1;
  free(x);
  printf("falchion %s: ok\n", fal_version());
  return 0;
}
