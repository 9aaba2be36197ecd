/* falchion.h: the C twin of falchion.hpp, with the same names and the same meaning in plain C99. Only this header
 * promises a stable ABI: numbers are written out, and a struct that may grow begins with its size (sizeof in the
 * caller), so that old callers keep working. Such a struct is ready for use when it is filled with zeroes and `size` is
 * set; a problem still needs its dtype and its sizes. Nothing throws or exits.
 *
 * Strides are in elements, sizes are in bytes, and logarithms are natural. docs/contract.md says what every edge case
 * does. */
#ifndef FALCHION_FALCHION_H
#define FALCHION_FALCHION_H

#include <stddef.h>
#include <stdint.h>

#include "falchion/version.h" /* FAL_VERSION_MAJOR, FAL_VERSION_MINOR, FAL_VERSION_PATCH */

#if defined(_WIN32)
  #define FAL_API
#else
  #define FAL_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
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
  FAL_E4M3 = 5, /* of GEMMs */
  FAL_E5M2 = 6, /* it has no kernel yet */
  FAL_I8 = 7,   /* of GEMMs, and so is FAL_I32 */
  FAL_I32 = 8
};
enum { FAL_BEST = 0, FAL_REF = 1, FAL_CPU = 2, FAL_SM80 = 3, FAL_SM90 = 4 }; /* backend */
enum { FAL_FORWARD = 0, FAL_BACKWARD = 1 };                                  /* pass */
enum { FAL_TEXT = 0, FAL_JSON = 1 };                                         /* format (keys: docs/explain.md) */
enum { FAL_ALIGN_UNSET = 0, FAL_BOTTOM_RIGHT = 1, FAL_TOP_LEFT = 2 };        /* band.align */
enum { FAL_IDENTITY = 0, FAL_ELU_PLUS_ONE = 1 };                             /* feature_map */
enum { FAL_DECAY_NONE = 0, FAL_DECAY_HEAD = 1, FAL_DECAY_TOKEN = 2 };        /* decay */
enum { FAL_GRADS_ROUNDED = 0, FAL_GRADS_F32 = 1, FAL_GRADS_ACCUMULATE = 2 }; /* grads */
enum {
  FAL_ACTIVATION_NONE = 0,
  FAL_RELU = 1,
  FAL_GELU_TANH = 2,
  FAL_GELU_ERF = 3,
  FAL_SILU = 4,
  FAL_SWIGLU = 5                                                                /* b has 2 n rows, the gates first */
};                                                                              /* activation */
enum { FAL_SCALING_NONE = 0, FAL_SCALING_TENSOR = 1, FAL_SCALING_ROW_COL = 2 }; /* scaling */
enum { FAL_LAYER_NORM = 0, FAL_RMS_NORM = 1 };                                  /* kind */
enum { FAL_UNBOUNDED = -1 };                                                    /* band.left, band.right */

/* A view of the caller's memory; it owns nothing. The axes of q, k, v and o are (b, s, h, d), those of bias, mask and
 * probabilities are (b, h_q, s_q, s_k), and those of lse and row_max are (b, h_q, s_q, 1). A tensor of zeroes is
 * absent. fal_tensor, fal_band and fal_rng lie by value inside other structs, so their layout never changes. */
typedef struct fal_tensor {
  void* data;
  int32_t dtype;
  int32_t reserved; /* 0 */
  int64_t shape[4], stride[4];
} fal_tensor;

/* Query i sees key j <=> -left <= j - (i + shift) <= right, where shift is s_k - s_q (bottom_right) or 0 (top_left).
 * A band of zeroes is the full band. A causal one is {FAL_UNBOUNDED, 0, FAL_BOTTOM_RIGHT}. A bounded side needs align.
 */
typedef struct fal_band {
  int64_t left, right; /* each FAL_UNBOUNDED or >= 0 */
  int32_t align;
  int32_t reserved; /* 0 */
} fal_band;

/* Which random numbers the dropout of one run draws. `at` is null or points to two numbers in the backend's memory. The
 * run reads them and adds them to seed and offset, so that one plan, or one captured graph, serves every step. */
typedef struct fal_rng {
  uint64_t seed, offset;
  const uint64_t* at;
  uint64_t reserved; /* 0 */
} fal_rng;

/* Exact softmax attention, O = softmax(S) V with S = softcap(scale q.k) + alibi + bias. Then mask and band select which
 * scores count. */
typedef struct fal_attention {
  size_t size;                       /* sizeof(fal_attention) */
  int32_t dtype;                     /* the type of q: FAL_F32, FAL_F16 or FAL_BF16 */
  int32_t dtype_k, dtype_v, dtype_o; /* only FAL_AS_Q is built today */
  int64_t b, s_q, s_k;               /* packed: b sequences; packed or used: s is the longest length allowed */
  int64_t h_q, h_k;                  /* h_q / h_k query heads share each K/V head */
  int64_t d_qk, d_v;                 /* any numbers from 1 to 256, independent of each other */
  fal_band band;
  float scale;       /* 0 asks for 1/sqrt(d_qk) */
  float softcap;     /* 0 is off */
  float dropout;     /* the share p in [0, 1] of probabilities that are dropped */
  uint32_t reserved; /* 0 */
  /* Which optional operands the run will have; each is 0 or 1. */
  uint8_t packed, used_q, used_k, first_k, alibi, bias, mask, lse, row_max, probabilities;
  /* Only for FAL_BACKWARD; falchion.hpp says more. any_order: faster, but the bits differ from run to run. grads:
   * FAL_GRADS_ROUNDED, ... frozen: 1 no grad_q, 2 no grad_k and grad_v, 3 none of the three. */
  uint8_t any_order, grads, zero_unused, grad_lse, grad_bias, grad_alibi, frozen;
  uint8_t reserved2[7]; /* 0 */
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
} fal_operands;

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
  /* Each is 0 or 1. The last three say which optional operands the run will have. */
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

/* A matrix product with what follows it: Z = alpha A B^T + beta C + bias, D = activation(Z) + R. */
typedef struct fal_gemm {
  size_t size;     /* sizeof(fal_gemm) */
  int32_t dtype;   /* the type of a: FAL_F32, FAL_F16, FAL_BF16, FAL_E4M3 or FAL_I8 */
  int32_t dtype_b; /* FAL_AS_Q: as a; only that is built today */
  int32_t dtype_c; /* FAL_AS_Q: as d; or FAL_F32 or the type of a */
  int32_t dtype_d; /* FAL_AS_Q: as a; or FAL_F32 or the type of a; falchion.hpp says it of 8-bit types */
  int64_t batch, m, n, k;
  float alpha, beta;                /* finite; of a struct of zeroes alpha is 0, so that there is no product */
  int32_t activation;               /* FAL_ACTIVATION_NONE, FAL_RELU, ... */
  uint8_t bias_n, bias_m, residual; /* each is 0 or 1 */
  uint8_t scaling;                  /* of an 8-bit a and b: FAL_SCALING_NONE, FAL_SCALING_TENSOR, ... */
  uint8_t reserved[24];             /* 0 */
} fal_gemm;

/* The tensors of one run. Axes may have any strides; falchion.hpp says more. */
typedef struct fal_gemm_operands {
  size_t size;               /* sizeof(fal_gemm_operands) */
  fal_tensor a, b;           /* inputs: (batch, m, k2, k1), (batch or 1, n, k2, k1) */
  fal_tensor c;              /* input: as d, where beta is not 0 */
  fal_tensor d;              /* output: (batch, m, n2, n1) */
  fal_tensor residual;       /* input: as d */
  fal_tensor bias_n, bias_m; /* inputs: (1, 1, 1, rows of b), (batch or 1, m, 1, 1) */
  /* Inputs of f32: (batch or 1, m or 1, 1, 1), (batch or 1, rows of b or 1, 1, 1); FAL_SCALING_TENSOR: without rows. */
  fal_tensor scale_a, scale_b;
} fal_gemm_operands;

/* Layer norm or RMSNorm of rows of d numbers: with v = x + residual, Y = (v - mean) rstd weight + bias. */
typedef struct fal_norm {
  size_t size;            /* sizeof(fal_norm) */
  int32_t dtype;          /* the type of x: FAL_F32, FAL_F16 or FAL_BF16 */
  int32_t dtype_y;        /* FAL_AS_Q: as x; or FAL_F32, FAL_F16 or FAL_BF16 */
  int32_t dtype_residual; /* of residual and residual_out, likewise */
  int32_t kind;           /* FAL_LAYER_NORM, FAL_RMS_NORM */
  int64_t rows, d;        /* rows: the product of the first three extents of x */
  float eps;              /* finite and >= 0; of a struct of zeroes it is 0 */
  uint8_t zero_centered;  /* the factor is 1 + weight */
  /* Which optional operands the run will have; each is 0 or 1. */
  uint8_t weight, bias, residual, residual_out, mean, rstd;
  uint8_t reserved[21]; /* 0 */
} fal_norm;

/* The tensors of one run. Axes may have any strides; falchion.hpp says more. */
typedef struct fal_norm_operands {
  size_t size;             /* sizeof(fal_norm_operands) */
  fal_tensor x;            /* input: (b, s, h, d) */
  fal_tensor residual;     /* input: as x */
  fal_tensor weight, bias; /* inputs: as x, where each of the first three extents may be 1 */
  fal_tensor y;            /* output: as x */
  fal_tensor residual_out; /* output: as x */
  fal_tensor mean, rstd;   /* outputs: (b, s, h, 1) f32 */
} fal_norm_operands;

/* The caller's own thread pool, for an engine that has one. parallel_for must call task(context, i) once for each i in
 * [0, n) and return when all are done. */
typedef struct fal_executor {
  size_t size; /* sizeof(fal_executor) */
  void (*parallel_for)(void* self, int n, void (*task)(void* context, int i), void* context);
  void* self;
  int32_t threads;  /* how many may run at once, >= 1 */
  int32_t reserved; /* 0 */
} fal_executor;

/* What to plan for. Where a function takes a target, null means the best that there is. */
typedef struct fal_target {
  size_t size; /* sizeof(fal_target) */
  int32_t backend;
  int32_t threads;       /* cpu: how many threads; 0 means all that the process may use */
  int32_t sm;            /* gpu: plan for this architecture (80, 90) even if it is not here; 0: the one present */
  int32_t segments;      /* linear attention: how many parts each sequence is cut into; 0 lets the plan decide */
  const char* cpu_level; /* cpu: plan for this instruction set ("amx", "avx512", ...) or fail; null: the fastest */
  const fal_executor* executor; /* cpu: the pool to run on; null: OpenMP, or the library's own threads */
  int32_t device;               /* gpu, with use_device: the device's CUDA number; a run makes it current, and
                                 * afterwards makes the caller's device current again */
  uint8_t use_device;           /* 1: `device` counts; 0: the device that is current when the plan is made */
  uint8_t trust_pointers;       /* 1: the caller vouches that each pointer lies where the backend can use it */
  uint8_t reserved[10];         /* 0 */
} fal_target;

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
    0, 0, 0, 0, 0, 0, 0,                                  /* any_order ... frozen */              \
    {0}                                                   /* reserved2 */                         \
  }
/* clang-format on */
FAL_API fal_attention fal_attention_init(void);

/* A dense tensor whose last axis is contiguous, in the order of its axes. */
FAL_API fal_tensor fal_tensor_dense(void* data, int32_t dtype, int64_t b, int64_t s, int64_t h, int64_t d);
/* A view with the same axes (b, s, h, d), over memory that lies as (b, h, s, d), which is PyTorch's order. */
FAL_API fal_tensor fal_tensor_heads_first(void* data, int32_t dtype, int64_t b, int64_t s, int64_t h, int64_t d);

/* A decided way to run one problem: choose once, run often, from any thread. Two runs at the same time need two
 * workspaces. Errors of fal_plan_make: FAL_INVALID (a bad argument), FAL_UNSUPPORTED (no kernel for it), FAL_DEVICE.
 * Errors of fal_plan_run: FAL_INVALID (a tensor that does not fit the plan), FAL_WORKSPACE, FAL_DEVICE. */
typedef struct fal_plan fal_plan;
FAL_API fal_status fal_plan_make(const fal_attention* problem, int32_t pass, const fal_target* target, fal_plan** out);
FAL_API void fal_plan_free(fal_plan* plan);              /* null is fine */
FAL_API size_t fal_plan_workspace(const fal_plan* plan); /* bytes that fal_plan_run needs, 64-byte aligned */
FAL_API int32_t fal_plan_backend(const fal_plan* plan);  /* the one that was taken: FAL_REF, ...; null: FAL_BEST */
/* fal_plan_describe gives the decision in one line, fal_plan_explain the whole story in many lines or in one JSON
 * object. Each text is made when any thread first asks for it, and it lives as long as the plan. Like every text below,
 * it is null where it cannot be made (an unknown format, no memory), and fal_why() then says why. */
FAL_API const char* fal_plan_describe(const fal_plan* plan);
FAL_API const char* fal_plan_explain(const fal_plan* plan, int32_t format);
FAL_API fal_status fal_plan_run(const fal_plan* plan, const fal_operands* operands, void* workspace,
                                size_t workspace_bytes, void* stream);

/* What fal_plan_make would decide and why, also when it refuses. The text lives until this thread's next call. */
FAL_API const char* fal_explain(const fal_attention* problem, int32_t pass, const fal_target* target, int32_t format);

/* The one-call form takes sizes and flags from the operands, makes a plan and keeps it, owns the workspace, and runs.
 * FAL_BEST stays where q lies: on a GPU for a GPU's or managed memory, on the CPU for the host's, pinned or not.
 * `options` (null: none) gives what tensors cannot say: band, scale, softcap and dropout. With packed lengths it must
 * also give b (0 means unset and is refused).
 *
 * The pass is backward where any grad_ tensor is given (it has memory, or a shape that is not all 0), and forward
 * otherwise. In the backward pass grad_q is frozen where it is not given, and grad_k and grad_v are where neither is.
 * `options` also gives any_order, grads, zero_unused and frozen. */
FAL_API fal_status fal_attention_run(const fal_operands* operands, const fal_attention* options,
                                     const fal_target* target, void* stream);

/* Linear attention has its own functions to make and to run a plan; the functions above free, describe and explain
 * it. */
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
FAL_API fal_status fal_linear_plan_make(const fal_linear_attention* problem, int32_t pass, const fal_target* target,
                                        fal_plan** out);
FAL_API fal_status fal_linear_plan_run(const fal_plan* plan, const fal_linear_operands* operands, void* workspace,
                                       size_t workspace_bytes, void* stream);
FAL_API const char* fal_linear_explain(const fal_linear_attention* problem, int32_t pass, const fal_target* target,
                                       int32_t format);
/* The one-call form. The pass is backward where any grad_ tensor is given (it has memory, or a shape that is not all
 * 0), and forward otherwise. */
FAL_API fal_status fal_linear_attention_run(const fal_linear_operands* operands, const fal_linear_attention* options,
                                            const fal_target* target, void* stream);
FAL_API fal_status fal_linear_validate_lengths(const fal_linear_attention* problem,
                                               const fal_linear_operands* operands);

/* A GEMM has its own functions too. There is no pass. */
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
FAL_API fal_status fal_gemm_plan_make(const fal_gemm* problem, const fal_target* target, fal_plan** out);
FAL_API fal_status fal_gemm_plan_run(const fal_plan* plan, const fal_gemm_operands* operands, void* workspace,
                                     size_t workspace_bytes, void* stream);
FAL_API const char* fal_gemm_explain(const fal_gemm* problem, const fal_target* target, int32_t format);
/* The one-call form. */
FAL_API fal_status fal_gemm_run(const fal_gemm_operands* operands, const fal_gemm* options, const fal_target* target,
                                void* stream);

/* A norm has functions of its own as well. */
/* clang-format off */
#define FAL_NORM_INIT                                   \
  {                                                     \
    sizeof(fal_norm),                                   \
    FAL_BF16, 0, 0,     /* the types */                 \
    FAL_LAYER_NORM,     /* kind */                      \
    0, 0,               /* rows, d */                   \
    1e-5F, 0,           /* eps, zero_centered */        \
    0, 0, 0, 0, 0, 0,   /* weight ... rstd */           \
    {0}                 /* reserved */                  \
  }
/* clang-format on */
FAL_API fal_norm fal_norm_init(void);
FAL_API fal_status fal_norm_plan_make(const fal_norm* problem, const fal_target* target, fal_plan** out);
FAL_API fal_status fal_norm_plan_run(const fal_plan* plan, const fal_norm_operands* operands, void* workspace,
                                     size_t workspace_bytes, void* stream);
FAL_API const char* fal_norm_explain(const fal_norm* problem, const fal_target* target, int32_t format);
/* The one-call form. */
FAL_API fal_status fal_norm_run(const fal_norm_operands* operands, const fal_norm* options, const fal_target* target,
                                void* stream);

/* Frees the workspaces that the one-call forms keep for this thread. Its next call allocates again. */
FAL_API void fal_release_workspaces(void);

/* Merges two partial results over disjoint sets of keys, each an o (b, s_q, h_q, d_v) and an lse (b, h_q, s_q, 1) in
 * the host's memory. The merge is commutative. */
FAL_API fal_status fal_merge(const fal_tensor* o_a, const fal_tensor* lse_a, const fal_tensor* o_b,
                             const fal_tensor* lse_b, const fal_tensor* o, const fal_tensor* lse);

/* Reads the lengths, also from a GPU's memory, and reports what kernels would only clamp. */
FAL_API fal_status fal_validate_lengths(const fal_attention* problem, const fal_operands* operands);

FAL_API const char* fal_why(void);        /* this thread's last failure in words; "" after a success */
FAL_API const char* fal_version(void);    /* "0.1.0" */
FAL_API const char* fal_build_info(void); /* lives until this thread's next call of it */

#ifdef __cplusplus
}
#endif

#endif /* FALCHION_FALCHION_H */
