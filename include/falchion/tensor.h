/* falchion/tensor.h: what every other header speaks of: the types of elements, the status of a call, fal_tensor. */
#ifndef FALCHION_TENSOR_H
#define FALCHION_TENSOR_H

#include <stdint.h>

/* A function of the library: it has C's linkage, and programs see it. */
#if defined(_WIN32)
  #define FAL_VISIBLE
#else
  #define FAL_VISIBLE __attribute__((visibility("default")))
#endif
#ifdef __cplusplus
  #define FAL_API extern "C" FAL_VISIBLE
#else
  #define FAL_API FAL_VISIBLE
#endif

/* What every call returns. fal_why() says it in words. */
typedef enum fal_status {
  FAL_OK = 0,
  FAL_INVALID = 1,
  FAL_UNSUPPORTED = 2,
  FAL_WORKSPACE = 3,
  FAL_DEVICE = 4
} fal_status;

/* The values of the int32_t fields that the comments name. The first list is for dtype, where 0 means "as q" in a
 * problem and "not set" in a tensor. */
enum {
  FAL_AS_Q = 0,
  FAL_F32 = 1,
  FAL_F16 = 2,
  FAL_BF16 = 3,
  FAL_BOOL = 4,
  FAL_E4M3 = 5, /* of a GEMM's a and b */
  FAL_E5M2 = 6, /* it has no kernel yet */
  FAL_I8 = 7,   /* of a GEMM's a and b */
  FAL_I32 = 8   /* of a GEMM's d, where a and b are FAL_I8 */
};

/* A view of the caller's memory; it owns nothing. The axes of q, k, v and o are (b, s, h, d), those of bias, mask and
 * probabilities are (b, h_q, s_q, s_k), and those of lse and row_max are (b, h_q, s_q, 1). A tensor of zeroes is
 * absent. fal_tensor, fal_band, fal_rng and fal_origin lie inside other structs, so their layout never changes. */
typedef struct fal_tensor {
  void* data;
  int32_t dtype;
  int32_t reserved; /* 0 */
  int64_t shape[4], stride[4];
} fal_tensor;

/* A dense tensor whose last axis is contiguous, in the order of its axes. */
FAL_API fal_tensor fal_tensor_dense(void* data, int32_t dtype, int64_t b, int64_t s, int64_t h, int64_t d);
/* A view with the same axes (b, s, h, d), over memory that lies as (b, h, s, d), which is PyTorch's order. */
FAL_API fal_tensor fal_tensor_heads_first(void* data, int32_t dtype, int64_t b, int64_t s, int64_t h, int64_t d);

#endif /* FALCHION_TENSOR_H */
