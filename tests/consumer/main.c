/* tests/consumer/main.c: a user's program around the README's C example (readme.c, cut out of README.md). */
#include <falchion/falchion.h>
#include <stdio.h>
#include <stdlib.h>

fal_status attend(void* q, void* k, void* v, void* o);

int main(void) {
  enum { count = 1024 * 8 * 128 };
  uint16_t* x = malloc(4 * count * sizeof *x); /* bf16 */
  int i;
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
