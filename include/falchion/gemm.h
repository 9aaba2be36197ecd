/* falchion/gemm.h: a matrix product with what follows it: the problem and the tensors of a run. */
#ifndef FALCHION_GEMM_H
#define FALCHION_GEMM_H

#include <stddef.h>
#include <stdint.h>

#include "falchion/tensor.h"

/* The values of activation. */
enum {
  FAL_ACTIVATION_NONE = 0,
  FAL_RELU = 1,
  FAL_GELU_TANH = 2,
  FAL_GELU_ERF = 3,
  FAL_SILU = 4,
  FAL_SWIGLU = 5 /* b has 2 n rows, the gates first */
};
/* The values of scaling: no scales, one for each tensor, one for each row of a and of b, or of e4m3 one for each row of
 * a and 128 of k, and for each block of 128 rows of b and 128 of k. */
enum { FAL_SCALING_NONE = 0, FAL_SCALING_TENSOR = 1, FAL_SCALING_ROW_COL = 2, FAL_SCALING_BLOCK128 = 3 };

/* A matrix product with what follows it: Z = alpha s_a s_b A B^T + beta C + bias, D = activation(Z) + R. The scales s_a
 * and s_b are 1 unless a and b have 8 bits and scaling says that there are some. */
typedef struct fal_gemm {
  size_t size;     /* sizeof(fal_gemm) */
  int32_t dtype;   /* the type of a: FAL_F32, FAL_F16, FAL_BF16, FAL_E4M3 or FAL_I8 */
  int32_t dtype_b; /* FAL_AS_Q: as a; only that is built today */
  int32_t dtype_c; /* FAL_AS_Q: as d; or FAL_F32, or unless a has 8 bits the type of a */
  /* FAL_AS_Q: as a; or FAL_F32 or the type of a. Where a has 8 bits it must be named: FAL_F32, FAL_F16 or FAL_BF16, or
   * of FAL_I8 also FAL_I32. */
  int32_t dtype_d;
  int64_t batch, m, n, k;
  float alpha, beta;                /* finite; of a struct of zeroes alpha is 0, so that there is no product */
  int32_t activation;               /* FAL_ACTIVATION_NONE, FAL_RELU, ... */
  uint8_t bias_n, bias_m, residual; /* each is 0 or 1, else refused */
  uint8_t scaling;                  /* of an 8-bit a and b: FAL_SCALING_NONE, FAL_SCALING_TENSOR, ... */
  uint8_t reserved[24];             /* 0 */
} fal_gemm;

/* The tensors of one run. Axes may have any strides; gemm.hpp says more. */
typedef struct fal_gemm_operands {
  size_t size;               /* sizeof(fal_gemm_operands) */
  fal_tensor a, b;           /* inputs: (batch, m, k2, k1), (batch or 1, n, k2, k1) */
  fal_tensor c;              /* input: as d, where beta is not 0 */
  fal_tensor d;              /* output: (batch, m, n2, n1) */
  fal_tensor residual;       /* input: as d */
  fal_tensor bias_n, bias_m; /* inputs: (1, 1, 1, rows of b), (batch or 1, m, 1, 1) */
  /* Inputs, f32: (batch or 1, 1, 1, 1) each, or with FAL_SCALING_ROW_COL (batch or 1, m or 1, 1, 1) and (batch or 1,
   * rows of b or 1, 1, 1), or with FAL_SCALING_BLOCK128 (batch or 1, m, ceil(k / 128), 1) and (batch or 1,
   * ceil(rows of b / 128), ceil(k / 128), 1). */
  fal_tensor scale_a, scale_b;
} fal_gemm_operands;

/* clang-format off */
#define FAL_GEMM_INIT                                 \
  {                                                   \
    sizeof(fal_gemm),                                 \
    FAL_BF16, 0, 0, 0,  /* the types */               \
    1, 0, 0, 0,         /* batch, m, n, k */          \
    1, 0, 0,            /* alpha, beta, activation */ \
    0, 0, 0, 0,         /* bias_n ... scaling */      \
    {0}                 /* reserved */                \
  }
/* clang-format on */
FAL_API fal_gemm fal_gemm_init(void);

#endif /* FALCHION_GEMM_H */
