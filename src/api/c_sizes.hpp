// src/api/c_sizes.hpp: sizes of the C API's structs in their first release, the least that a caller can have. They
// never change; a struct grows after the field that was last then. tests/headers_test.sh compiles this for 32 bits too.
#pragma once

#include <stddef.h>

#include "falchion/falchion.h"

namespace falchion {

#define FALCHION_END_OF(type, field) (offsetof(type, field) + sizeof(type::field))

template <class T>
inline constexpr size_t kFirstSize = 0;
template <>
inline constexpr size_t kFirstSize<fal_attention> = FALCHION_END_OF(fal_attention, v_scale);
template <>
inline constexpr size_t kFirstSize<fal_operands> = FALCHION_END_OF(fal_operands, rng);
template <>
inline constexpr size_t kFirstSize<fal_executor> = FALCHION_END_OF(fal_executor, reserved);
template <>
inline constexpr size_t kFirstSize<fal_target> = FALCHION_END_OF(fal_target, reserved);
template <>
inline constexpr size_t kFirstSize<fal_linear_attention> = FALCHION_END_OF(fal_linear_attention, reserved);
template <>
inline constexpr size_t kFirstSize<fal_linear_operands> = FALCHION_END_OF(fal_linear_operands, grad_initial_z);
template <>
inline constexpr size_t kFirstSize<fal_gemm> = FALCHION_END_OF(fal_gemm, reserved);
template <>
inline constexpr size_t kFirstSize<fal_gemm_operands> = FALCHION_END_OF(fal_gemm_operands, bias_m);
template <>
inline constexpr size_t kFirstSize<fal_norm> = FALCHION_END_OF(fal_norm, reserved);
template <>
inline constexpr size_t kFirstSize<fal_norm_operands> = FALCHION_END_OF(fal_norm_operands, rstd);
template <>
inline constexpr size_t kFirstSize<fal_quantise> = FALCHION_END_OF(fal_quantise, reserved);
template <>
inline constexpr size_t kFirstSize<fal_quantise_operands> = FALCHION_END_OF(fal_quantise_operands, y);

#undef FALCHION_END_OF

static_assert(kFirstSize<fal_attention> <= sizeof(fal_attention) && kFirstSize<fal_operands> <= sizeof(fal_operands) &&
                  kFirstSize<fal_executor> <= sizeof(fal_executor) && kFirstSize<fal_target> <= sizeof(fal_target) &&
                  kFirstSize<fal_linear_attention> <= sizeof(fal_linear_attention) &&
                  kFirstSize<fal_linear_operands> <= sizeof(fal_linear_operands) &&
                  kFirstSize<fal_gemm> <= sizeof(fal_gemm) &&
                  kFirstSize<fal_gemm_operands> <= sizeof(fal_gemm_operands) &&
                  kFirstSize<fal_norm> <= sizeof(fal_norm) &&
                  kFirstSize<fal_norm_operands> <= sizeof(fal_norm_operands) &&
                  kFirstSize<fal_quantise> <= sizeof(fal_quantise) &&
                  kFirstSize<fal_quantise_operands> <= sizeof(fal_quantise_operands),
              "a first size is over the struct's: no caller could give it");
// Pointers and size_t of 8 bytes: the numbers themselves. On 32 bits there has been no release whose numbers could be
// kept; the fields before the end of each first struct must still be those.
static_assert(sizeof(void*) == 8 || sizeof(void*) == 4, "falchion.h is for addresses of 32 or 64 bits");
static_assert(sizeof(void*) != 8 ||
                  (kFirstSize<fal_attention> == 144 && kFirstSize<fal_operands> == 880 &&
                   kFirstSize<fal_executor> == 32 && kFirstSize<fal_target> == 56 &&
                   kFirstSize<fal_linear_attention> == 104 && kFirstSize<fal_linear_operands> == 1456 &&
                   kFirstSize<fal_gemm> == 96 && kFirstSize<fal_gemm_operands> == 568 && kFirstSize<fal_norm> == 72 &&
                   kFirstSize<fal_norm_operands> == 648 && kFirstSize<fal_quantise> == 88 &&
                   kFirstSize<fal_quantise_operands> == 328),
              "a field of a first struct moved: append fields, and leave those before them alone");
static_assert(sizeof(fal_tensor) == (sizeof(void*) == 8 || alignof(int64_t) == 8 ? 80 : 76) && sizeof(fal_band) == 24 &&
                  sizeof(fal_rng) == (sizeof(void*) == 8 || alignof(int64_t) == 8 ? 32 : 28) &&
                  sizeof(fal_origin) == 40,
              "fal_tensor, fal_band, fal_rng and fal_origin lie inside other structs and never change");

}  // namespace falchion
