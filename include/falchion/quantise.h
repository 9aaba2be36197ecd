/* falchion/quantise.h: 8-bit numbers with scales from wider ones: the problem and the tensors of a run. */
#ifndef FALCHION_QUANTISE_H
#define FALCHION_QUANTISE_H

#include <stddef.h>
#include <stdint.h>

#include "falchion/tensor.h"

/* x becomes y of 8 bits, so that y * scale is about (x - mean) rotated; quantise.hpp says more. */
typedef struct fal_quantise {
  size_t size;     /* sizeof(fal_quantise) */
  int32_t dtype;   /* the type of x: FAL_F32, FAL_F16 or FAL_BF16 */
  int32_t dtype_y; /* of y: FAL_E4M3 or FAL_I8 */
  int64_t b, s, h, d;
  int64_t rows;          /* tokens of a head that share a scale; 0: all of them */
  uint8_t scale_given;   /* scale is an input; 0 or 1, as those below */
  uint8_t powers_of_two; /* scales that are not given are powers of two */
  uint8_t smooth;        /* subtract one vector a head: the mean of its tokens, which is written */
  uint8_t mean_given;    /* or mean, which is an input */
  uint8_t rotate;        /* multiply rows by an orthonormal Hadamard matrix */
  uint8_t reserved[27];  /* 0 */
} fal_quantise;

/* The tensors of one run. Axes may have any strides; quantise.hpp says more. */
typedef struct fal_quantise_operands {
  size_t size;      /* sizeof(fal_quantise_operands) */
  fal_tensor x;     /* input: (b, s, h, d) */
  fal_tensor mean;  /* output, or input: (b, 1, h, d) f32 */
  fal_tensor scale; /* output, or input: (b, ceil(s / rows), h, 1) f32 */
  fal_tensor y;     /* output: as x */
} fal_quantise_operands;

/* clang-format off */
#define FAL_QUANTISE_INIT                               \
  {                                                     \
    sizeof(fal_quantise),                               \
    FAL_BF16, FAL_E4M3, /* the types */                 \
    0, 0, 0, 0, 1,      /* b, s, h, d, rows */          \
    0, 0, 0, 0, 0,      /* scale_given ... rotate */    \
    {0}                 /* reserved */                  \
  }
/* clang-format on */
FAL_API fal_quantise fal_quantise_init(void);

#endif /* FALCHION_QUANTISE_H */
