/* tests/python/sdk_consumer/main.c: a program of a user who has the Python package. One query sees two keys, whose
 * values are both 1.5, so the result is 1.5. */
#include <falchion/falchion.h>
#include <stdio.h>

int main(void) {
  float q = 1, k[2] = {1, 2}, v[2] = {1.5F, 1.5F}, o = -1;
  fal_attention options = FAL_ATTENTION_INIT;
  fal_operands tensors = {.size = sizeof tensors};
  tensors.q = fal_tensor_dense(&q, FAL_F32, 1, 1, 1, 1);
  tensors.k = fal_tensor_dense(k, FAL_F32, 1, 2, 1, 1);
  tensors.v = fal_tensor_dense(v, FAL_F32, 1, 2, 1, 1);
  tensors.o = fal_tensor_dense(&o, FAL_F32, 1, 1, 1, 1);
  if (fal_attention_run(&tensors, &options, NULL, NULL) != FAL_OK) {
    printf("refused: %s\n", fal_why());
    return 1;
  }
  printf("falchion %s: o = %g\n", fal_version(), o);
  return 0;
}
