// src/sm90/attention_forward/decode_bytes.cuh: the forward variants of kind decode_bytes on Hopper: kind decode over k
// and v of 8 bits, e4m3 or i8.
#pragma once

#include <cutlass/float8.h>

#include <cstdint>

#include "sm90/attention_forward/decode/kernel.cuh"

namespace falchion::sm90 {

template <class Element, int kD>
constexpr gpu::AttentionKernel attention_forward_decode_bytes() {
  const auto launch = [](const AttentionArgs& a, void* stream) -> int {
    return a.type_k == Number::i8 ? launch_any_rows<Element, std::int8_t, kD>(a, stream)
                                  : launch_any_rows<Element, cutlass::float_e4m3_t, kD>(a, stream);
  };
  return {launch, nullptr, nullptr, attention_decode_facts(VariantKind::decode_bytes, kD)};
}

}  // namespace falchion::sm90
