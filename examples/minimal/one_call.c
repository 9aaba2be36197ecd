/* examples/minimal/one_call.c: causal attention over arrays of the host, in one call. */
#include <falchion/falchion.h>
#include <stdio.h>

enum { TOKENS = 4, HEADS = 2, DIM = 8, COUNT = TOKENS * HEADS * DIM };

static fal_tensor view(float* data) { return fal_tensor_dense(data, FAL_F32, 1, TOKENS, HEADS, DIM); }

int main(void) {
  static float q[COUNT], k[COUNT], v[COUNT], o[COUNT]; /* (b 1, s, h, d) */
  fal_operands tensors = {.size = sizeof tensors};
  fal_attention options = FAL_ATTENTION_INIT;
  int i;
  for (i = 0; i < COUNT; ++i) {
    q[i] = k[i] = 0.5F;                /* all keys are alike, */
    v[i] = (float)(i / (HEADS * DIM)); /* and a token's values are its number */
  }
  tensors.q = view(q);
  tensors.k = view(k);
  tensors.v = view(v);
  tensors.o = view(o);
  options.band.right = 0; /* a token sees itself and what is before it */
  options.band.align = FAL_BOTTOM_RIGHT;
  if (fal_attention_run(&tensors, &options, NULL, NULL) != FAL_OK) {
    fprintf(stderr, "refused: %s\n", fal_why());
    return 1;
  }
  for (i = 0; i < TOKENS; ++i) { /* so token i gets the mean of 0 ... i */
    const float found = o[i * HEADS * DIM];
    printf("token %d: %.2f\n", i, found);
    if (found < 0.5F * (float)i - 1e-5F || found > 0.5F * (float)i + 1e-5F) return 1;
  }
  return 0;
}
