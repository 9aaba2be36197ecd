/* falchion/attention.h: softmax attention: the problem and the tensors of a run. */
#ifndef FALCHION_ATTENTION_H
#define FALCHION_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#include "falchion/tensor.h"

enum { FAL_ALIGN_UNSET = 0, FAL_BOTTOM_RIGHT = 1, FAL_TOP_LEFT = 2, FAL_AT = 3 }; /* band.align */
enum { FAL_GRADS_ROUNDED = 0, FAL_GRADS_F32 = 1, FAL_GRADS_ACCUMULATE = 2 };      /* grads */
enum { FAL_UNBOUNDED = -1 };                                                      /* band.left, band.right */

/* Query i sees key j <=> -left <= j - (i + shift) <= right, where shift is s_k - s_q (bottom_right), 0 (top_left) or
 * offset (at): query 0 stands at key offset, as in a chunk of a prompt or in one step of a ring.
 * A band of zeroes is the full band. A causal one is {FAL_UNBOUNDED, 0, FAL_BOTTOM_RIGHT}. A bounded side needs align.
 */
typedef struct fal_band {
  int64_t left, right; /* each FAL_UNBOUNDED or >= 0 */
  int32_t align;
  int32_t offset; /* with FAL_AT, from -2^30 to 2^30; else 0 */
} fal_band;

/* Which random numbers the dropout of one run draws. `at` is null or points to two numbers in the backend's memory. The
 * run reads them and adds them to seed and offset, so that one plan, or one captured graph, serves every step. */
typedef struct fal_rng {
  uint64_t seed, offset;
  const uint64_t* at;
  uint64_t reserved; /* 0 */
} fal_rng;

/* Where a run lies in a larger problem, of whose dropout mask it draws its part: element (b, h, i, j) of the run is
 * element (b + origin.b, h + origin.h, i + origin.i, j + origin.j) there. h_q: the query heads of the larger problem;
 * 0: as many as in the run. Each is 0 or more, and j is a multiple of 4. */
typedef struct fal_origin {
  int64_t b, h, i, j, h_q;
} fal_origin;

/* Exact softmax attention, O = softmax(S) V with S = softcap(scale q.k) + alibi + bias. Then mask and band select which
 * scores count. */
typedef struct fal_attention {
  size_t size;                       /* sizeof(fal_attention) */
  int32_t dtype;                     /* the type of q: FAL_F32, FAL_F16, FAL_BF16, or forward FAL_E4M3, FAL_I8 */
  int32_t dtype_k, dtype_v, dtype_o; /* FAL_AS_Q; of a cache k and v may both be FAL_E4M3 or FAL_I8. If dtype is FAL_I8,
                                        dtype_v is FAL_E4M3, FAL_BF16 or FAL_F16; attention.hpp says more */
  int64_t b, s_q, s_k;               /* packed: b sequences; packed or used: s is the longest length allowed */
  int64_t h_q, h_k;                  /* h_q / h_k query heads share each K/V head */
  int64_t d_qk, d_v;                 /* any numbers from 1 to 256, independent of each other */
  fal_band band;
  float scale;       /* 0 asks for 1/sqrt(d_qk) */
  float softcap;     /* 0 is off */
  float dropout;     /* the share p in [0, 1] of probabilities that are dropped */
  uint32_t reserved; /* 0 */
  /* Which optional operands the run will have. Each flag is 0 or 1, and other numbers are refused. */
  uint8_t packed, used_q, used_k, first_k, alibi, bias, mask, lse, row_max, probabilities;
  /* Only for FAL_BACKWARD; attention.hpp says more. any_order: faster, but the bits differ from run to run. grads:
   * FAL_GRADS_ROUNDED, ... frozen: 1 no grad_q, 2 no grad_k and grad_v, 3 none of the three. */
  uint8_t any_order, grads, zero_unused, grad_lse, grad_bias, grad_alibi, frozen;
  uint8_t cache;        /* k and v are a KV cache: packed cuts q and o alone, and used_k is required */
  uint8_t append;       /* a sequence's last keys are k_new and v_new, which the run writes into the cache */
  uint8_t rotary_pairs; /* with rotary_dim: column 2 i turns with 2 i + 1; else i with i + rotary_dim / 2 */
  uint8_t sinks, grad_sinks;
  uint8_t k_scale, v_scale;  /* with 8 bits: numbers of k and v have scales */
  int64_t page_size;         /* 0: a cache is (b, s_k, h_k, d); else (pages, page_size, h_k, d) with a page_table */
  int64_t rotary_dim;        /* columns of q and k_new that the table `rotary` turns; 0: none */
  int64_t split_keys;        /* parts of the keys begin at its multiples; 0: the plan decides */
  int64_t k_scale_rows;      /* q of 8 bits: keys that share a scale of k, a multiple of 128; 0: all */
  uint8_t q_scale;           /* q of 8 bits: its numbers have scales */
  uint8_t reserved_bytes[7]; /* 0 */
} fal_attention;

/* The tensors of one run. All memory must lie where the backend can use it: a GPU's memory for its backends, the host's
 * for ref and cpu; pinned and managed memory serve both. */
typedef struct fal_operands {
  size_t size; /* sizeof(fal_operands) */
  fal_tensor q, k, v, o;
  fal_tensor lse, row_max, probabilities;     /* outputs */
  fal_tensor bias, mask;                      /* inputs */
  fal_tensor alibi;                           /* input: slopes (b or 1, 1, h_q, 1) f32 */
  const int32_t *cu_seqlens_q, *cu_seqlens_k; /* (b + 1), starts at 0, sorted, ends at the total */
  const int32_t *used_q, *used_k;             /* (b) */
  const int32_t* first_k; /* (b): left padding; keys are rows [first_k, length of k); columns of bias stay rows of k */
  fal_rng rng;            /* used with dropout */
  /* Only for FAL_BACKWARD, in which o and lse are inputs. */
  fal_tensor grad_o;                 /* input: as o, any strides, 0 too */
  fal_tensor grad_lse;               /* input: as lse, f32 */
  fal_tensor grad_q, grad_k, grad_v; /* outputs: as q, k, v; f32 unless grads is FAL_GRADS_ROUNDED */
  fal_tensor grad_bias;              /* output: (b, h_q, s_q, s_k) f32; an axis of extent 1 is summed over */
  fal_tensor grad_alibi;             /* output: (b or 1, 1, h_q, 1) f32 */
  fal_origin origin;                 /* used with dropout, in both passes */
  fal_tensor page_table;             /* input: (b, columns, 1, 1) FAL_I32, or (1, total, 1, 1) with page_starts */
  const int32_t* page_starts;        /* (b + 1): columns [page_starts[i], page_starts[i + 1]) are sequence i's */
  fal_tensor k_new, v_new;           /* inputs with append: rows as q has them, h_k heads; k and v are written too */
  fal_tensor rotary;                 /* input: (1, positions, 2, rotary_dim / 2) f32, cosines, then sines */
  fal_tensor sinks;                  /* input: (b or 1, 1, h_q, 1) f32 */
  fal_tensor grad_sinks;             /* output, only for FAL_BACKWARD: as sinks */
  fal_tensor k_scale, v_scale;       /* inputs: axes as k but d is 1, f32; stride 0 or extent 1 where shared */
  fal_tensor q_scale;                /* input: axes as q but d is 1, f32; stride 0 or extent 1 where shared */
} fal_operands;

/* The same defaults as in C++: bf16, h_q = h_k = 1, b = 0 (unset), full band. */
/* clang-format off */
#define FAL_ATTENTION_INIT                                                                        \
  {                                                                                               \
    sizeof(fal_attention),                                                                        \
    FAL_BF16, 0, 0, 0,                                    /* the types */                         \
    0, 0, 0,                                              /* b, s_q, s_k */                       \
    1, 1, 0, 0,                                           /* h_q, h_k, d_qk, d_v */               \
    {FAL_UNBOUNDED, FAL_UNBOUNDED, FAL_ALIGN_UNSET, 0},   /* band */                              \
    0, 0, 0, 0,                                           /* scale, softcap, dropout, reserved */ \
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0,                         /* packed ... probabilities */          \
    0, 0, 0, 0, 0, 0, 0, 0,                               /* any_order ... cache */               \
    0, 0, 0, 0, 0, 0,                                     /* append ... v_scale */                \
    0, 0, 0, 0,                                           /* page_size ... k_scale_rows */        \
    0, {0, 0, 0, 0, 0, 0, 0}                              /* q_scale */                           \
  }
/* clang-format on */
FAL_API fal_attention fal_attention_init(void);

#endif /* FALCHION_ATTENTION_H */
