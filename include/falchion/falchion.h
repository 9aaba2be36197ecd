/* falchion.h: the C twin of falchion.hpp, with the same names and the same meaning in plain C99: plans and calls here,
 * problems and operands in the headers that it includes. Only these headers promise a stable ABI: numbers are written
 * out, and a struct that may grow begins with its size (sizeof in the caller), so that old callers keep working. Such a
 * struct is ready for use when it is filled with zeroes and `size` is set; a problem still needs its dtype and its
 * sizes. Nothing throws or exits.
 *
 * Strides are in elements, sizes are in bytes, and logarithms are natural. docs/contract.md says what every edge case
 * does. */
#ifndef FALCHION_FALCHION_H
#define FALCHION_FALCHION_H

#include <stddef.h>
#include <stdint.h>

#include "falchion/attention.h"
#include "falchion/gemm.h"
#include "falchion/linear_attention.h"
#include "falchion/norm.h"
#include "falchion/quantise.h"
#include "falchion/target.h"
#include "falchion/tensor.h"
#include "falchion/version.h" /* FAL_VERSION_MAJOR, FAL_VERSION_MINOR, FAL_VERSION_PATCH */

enum { FAL_FORWARD = 0, FAL_BACKWARD = 1 }; /* pass */
enum { FAL_TEXT = 0, FAL_JSON = 1 };        /* format (keys: docs/explain.md) */

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
 * FAL_BEST stays where the operands lie: on a GPU for a GPU's or managed memory, on the CPU for the host's, pinned or
 * not. Lengths on the host must lie in their sequences.
 * `options` (null: none) gives what tensors cannot say: the band, numbers such as the scale, what becomes of
 * gradients. With packed lengths it must also give b (0 means unset and is refused).
 *
 * An operand is there where it is given (it has memory, or a shape or strides that are not all 0) and where `options`
 * asks for it. The pass is backward where any grad_ tensor is given, and forward otherwise. In the backward pass grad_q
 * is frozen where it is not given, and grad_k and grad_v are where neither is; `options` may freeze more. */
FAL_API fal_status fal_attention_run(const fal_operands* operands, const fal_attention* options,
                                     const fal_target* target, void* stream);

/* Linear attention has its own functions to make and to run a plan; the functions above free, describe and explain
 * it. */
FAL_API fal_status fal_linear_plan_make(const fal_linear_attention* problem, int32_t pass, const fal_target* target,
                                        fal_plan** out);
FAL_API fal_status fal_linear_plan_run(const fal_plan* plan, const fal_linear_operands* operands, void* workspace,
                                       size_t workspace_bytes, void* stream);
FAL_API const char* fal_linear_explain(const fal_linear_attention* problem, int32_t pass, const fal_target* target,
                                       int32_t format);
/* The one-call form. The pass is backward where any grad_ tensor is given, and forward otherwise. */
FAL_API fal_status fal_linear_attention_run(const fal_linear_operands* operands, const fal_linear_attention* options,
                                            const fal_target* target, void* stream);
FAL_API fal_status fal_linear_validate_lengths(const fal_linear_attention* problem,
                                               const fal_linear_operands* operands);

/* A GEMM has its own functions too. There is no pass. */
FAL_API fal_status fal_gemm_plan_make(const fal_gemm* problem, const fal_target* target, fal_plan** out);
FAL_API fal_status fal_gemm_plan_run(const fal_plan* plan, const fal_gemm_operands* operands, void* workspace,
                                     size_t workspace_bytes, void* stream);
FAL_API const char* fal_gemm_explain(const fal_gemm* problem, const fal_target* target, int32_t format);
/* The one-call form. */
FAL_API fal_status fal_gemm_run(const fal_gemm_operands* operands, const fal_gemm* options, const fal_target* target,
                                void* stream);

/* A norm has functions of its own as well. Its backward pass is planned and explained by two more. */
FAL_API fal_status fal_norm_plan_make(const fal_norm* problem, const fal_target* target, fal_plan** out);
FAL_API fal_status fal_norm_backward_plan_make(const fal_norm* problem, const fal_target* target, fal_plan** out);
FAL_API fal_status fal_norm_plan_run(const fal_plan* plan, const fal_norm_operands* operands, void* workspace,
                                     size_t workspace_bytes, void* stream);
FAL_API const char* fal_norm_explain(const fal_norm* problem, const fal_target* target, int32_t format);
FAL_API const char* fal_norm_backward_explain(const fal_norm* problem, const fal_target* target, int32_t format);
/* The one-call form. The pass is backward where any grad_ tensor is given. There grad_x and grad_weight are frozen
 * where they are not given. */
FAL_API fal_status fal_norm_run(const fal_norm_operands* operands, const fal_norm* options, const fal_target* target,
                                void* stream);

/* And Quantise has. */
FAL_API fal_status fal_quantise_plan_make(const fal_quantise* problem, const fal_target* target, fal_plan** out);
FAL_API fal_status fal_quantise_plan_run(const fal_plan* plan, const fal_quantise_operands* operands, void* workspace,
                                         size_t workspace_bytes, void* stream);
FAL_API const char* fal_quantise_explain(const fal_quantise* problem, const fal_target* target, int32_t format);
/* The one-call form. */
FAL_API fal_status fal_quantise_run(const fal_quantise_operands* operands, const fal_quantise* options,
                                    const fal_target* target, void* stream);

/* Frees the workspaces that the one-call forms keep for this thread. Its next call allocates again. */
FAL_API void fal_release_workspaces(void);

/* Merges partial results over disjoint sets of keys, 1 to 32 of them, each an o (b, s_q, h_q, d_v) and an lse
 * (b, h_q, s_q, 1). o_parts and lse_parts point to `parts` tensors each. All tensors lie in a GPU's memory, where the
 * merge is enqueued on the stream, or all in the host's, where the stream is not used and all is done at the return.
 * fal_merge merges two, on a GPU on the default stream; it is commutative. */
FAL_API fal_status fal_merge_parts(const fal_tensor* o_parts, const fal_tensor* lse_parts, size_t parts,
                                   const fal_tensor* o, const fal_tensor* lse, void* stream);
FAL_API fal_status fal_merge(const fal_tensor* o_a, const fal_tensor* lse_a, const fal_tensor* o_b,
                             const fal_tensor* lse_b, const fal_tensor* o, const fal_tensor* lse);

/* Reads the lengths, also from a GPU's memory, and reports what kernels would only clamp. */
FAL_API fal_status fal_validate_lengths(const fal_attention* problem, const fal_operands* operands);

FAL_API const char* fal_why(void);        /* this thread's last failure in words; "" after a success */
FAL_API const char* fal_version(void);    /* "0.1.0" */
FAL_API const char* fal_build_info(void); /* lives until this thread's next call of it */

#endif /* FALCHION_FALCHION_H */
