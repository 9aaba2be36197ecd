/* falchion/linear_attention.h: causal linear attention: the problem and the tensors of a run. */
#ifndef FALCHION_LINEAR_ATTENTION_H
#define FALCHION_LINEAR_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#include "falchion/tensor.h"

enum { FAL_IDENTITY = 0, FAL_ELU_PLUS_ONE = 1 };                      /* feature_map */
enum { FAL_DECAY_NONE = 0, FAL_DECAY_HEAD = 1, FAL_DECAY_TOKEN = 2 }; /* decay */

/* Causal linear attention, a recurrence over tokens j: S_j = e^(g_j) S_(j-1) + phi(k_j) v_j^T and
 * o_j = scale phi(q_j)^T S_j. With `normalise` o_j is divided by scale phi(q_j) z_j + eps, where
 * z_j = e^(g_j) z_(j-1) + phi(k_j). */
typedef struct fal_linear_attention {
  size_t size;                       /* sizeof(fal_linear_attention) */
  int32_t dtype;                     /* the type of q: FAL_F32, FAL_F16 or FAL_BF16; states and decay are f32 */
  int32_t dtype_k, dtype_v, dtype_o; /* only FAL_AS_Q is built today */
  int64_t b, s;                      /* packed: b sequences, and s is the longest length allowed */
  int64_t h_qk, h_v;                 /* h_v / h_qk value heads share each head of q and k */
  int64_t d_qk, d_v;                 /* any numbers from 1 to 256, independent of each other */
  float scale;                       /* 0 asks for 1/sqrt(d_qk) */
  float eps;                         /* used with normalise; finite and >= 0 */
  int32_t feature_map;               /* FAL_IDENTITY, FAL_ELU_PLUS_ONE */
  int32_t decay;                     /* FAL_DECAY_NONE, FAL_DECAY_HEAD, FAL_DECAY_TOKEN */
  /* Each is 0 or 1, and other numbers are refused. The last three say which optional operands the run will have. */
  uint8_t normalise, reverse, packed, initial_state, final_state;
  uint8_t reserved[11]; /* 0 */
} fal_linear_attention;

/* The tensors of one run. The grad_ tensors are only for FAL_BACKWARD. */
typedef struct fal_linear_operands {
  size_t size; /* sizeof(fal_linear_operands) */
  fal_tensor q, k, v, o;
  fal_tensor decay;                      /* g, f32: (b, s, h_v, 1); with FAL_DECAY_HEAD (1, 1, h_v, 1) */
  fal_tensor initial_state, final_state; /* (b, h_v, d_qk, d_v) f32; one view for both updates it in place */
  fal_tensor initial_z, final_z;         /* (b, h_v, d_qk, 1) f32, with normalise */
  const int32_t* cu_seqlens;             /* (b + 1), starts at 0, sorted, ends at the total */
  fal_tensor grad_o, grad_final_state, grad_final_z;                                 /* inputs */
  fal_tensor grad_q, grad_k, grad_v, grad_decay, grad_initial_state, grad_initial_z; /* outputs */
} fal_linear_operands;

/* clang-format off */
#define FAL_LINEAR_ATTENTION_INIT                       \
  {                                                     \
    sizeof(fal_linear_attention),                       \
    FAL_BF16, 0, 0, 0,  /* the types */                 \
    0, 0,               /* b, s */                      \
    1, 1, 0, 0,         /* h_qk, h_v, d_qk, d_v */      \
    0, 1e-6F,           /* scale, eps */                \
    0, 0,               /* feature_map, decay */        \
    0, 0, 0, 0, 0,      /* normalise ... final_state */ \
    {0}                 /* reserved */                  \
  }
/* clang-format on */
FAL_API fal_linear_attention fal_linear_attention_init(void);

#endif /* FALCHION_LINEAR_ATTENTION_H */
