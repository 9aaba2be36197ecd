/* falchion/norm.h: layer norm and RMSNorm: the problem and the tensors of a run. */
#ifndef FALCHION_NORM_H
#define FALCHION_NORM_H

#include <stddef.h>
#include <stdint.h>

#include "falchion/tensor.h"

enum { FAL_LAYER_NORM = 0, FAL_RMS_NORM = 1 }; /* kind */

/* Layer norm or RMSNorm of rows of d numbers: with v = x + residual, Y = (v - mean) rstd weight + bias. The backward
 * pass takes v as x, which is residual_out where there was a residual; norm.hpp has the formulas. */
typedef struct fal_norm {
  size_t size;            /* sizeof(fal_norm) */
  int32_t dtype;          /* the type of x and grad_x: FAL_F32, FAL_F16 or FAL_BF16 */
  int32_t dtype_y;        /* of y and grad_y; FAL_AS_Q: as x; or FAL_F32, FAL_F16 or FAL_BF16 */
  int32_t dtype_residual; /* of residual, residual_out and grad_residual_out, likewise */
  int32_t kind;           /* FAL_LAYER_NORM, FAL_RMS_NORM */
  int64_t rows, d;        /* rows: the product of the first three extents of x */
  float eps;              /* finite and >= 0; of a struct of zeroes it is 0 */
  uint8_t zero_centered;  /* the factor is 1 + weight; 0 or 1, as those below */
  /* Which optional operands the run will have. Each flag is 0 or 1, and other numbers are refused. */
  uint8_t weight, bias, residual, residual_out, mean, rstd;
  uint8_t frozen;       /* backward: 1 no grad_x, 2 no grad_weight, 3 none of both */
  uint8_t reserved[20]; /* 0 */
} fal_norm;

/* The tensors of one run. Axes may have any strides; norm.hpp says more. */
typedef struct fal_norm_operands {
  size_t size;             /* sizeof(fal_norm_operands) */
  fal_tensor x;            /* input: (b, s, h, d) */
  fal_tensor residual;     /* input: as x */
  fal_tensor weight, bias; /* inputs: as x, where each of the first three extents may be 1 */
  fal_tensor y;            /* output: as x */
  fal_tensor residual_out; /* output: as x */
  fal_tensor mean, rstd;   /* outputs: (b, s, h, 1) f32 */
  /* The backward pass alone: */
  fal_tensor grad_y, grad_residual_out; /* inputs: as x */
  fal_tensor grad_x;                    /* output: as x */
  fal_tensor grad_weight, grad_bias;    /* outputs: as weight and bias */
} fal_norm_operands;

/* clang-format off */
#define FAL_NORM_INIT                                   \
  {                                                     \
    sizeof(fal_norm),                                   \
    FAL_BF16, 0, 0,     /* the types */                 \
    FAL_LAYER_NORM,     /* kind */                      \
    0, 0,               /* rows, d */                   \
    1e-5F, 0,           /* eps, zero_centered */        \
    0, 0, 0, 0, 0, 0, 0, /* weight ... frozen */        \
    {0}                 /* reserved */                  \
  }
/* clang-format on */
FAL_API fal_norm fal_norm_init(void);

#endif /* FALCHION_NORM_H */
