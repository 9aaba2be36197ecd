// src/gpu/blocks/sm90_messages.cuh: messages of 16 bytes from one CTA to others through global memory. The 16 bytes are
// written and read in one access, so a reader that sees the first word sees them all. So they need no flag and no fence
// before it, each of which would cost a round trip to the L2. docs/design/linear_attention.md, "Few heads on Hopper",
// has measurements.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "base/host_device.hpp"

namespace falchion::sm90 {

/// The first word of an empty place. No message begins with it, because it is a signalling NaN, which no arithmetic
/// yields.
inline constexpr std::uint32_t kNoMessage = 0x7FA5A5A5;
FALCHION_DEVICE float4 no_message() { return make_float4(__uint_as_float(kNoMessage), 0, 0, 0); }
template <class Message>  // float4, or the first words of one
FALCHION_DEVICE bool is_message(const Message& x) {
  return __float_as_uint(x.x) != kNoMessage;
}

/// Writes a message.
FALCHION_DEVICE void tell(float4* to, const float4& x) {
  asm volatile(
      "{\n"
      ".reg .b128 all;\n"
      ".reg .b64 low, high;\n"
      "mov.b64 low, {%1, %2};\n"
      "mov.b64 high, {%3, %4};\n"
      "mov.b128 all, {low, high};\n"
      "st.relaxed.gpu.global.b128 [%0], all;\n"
      "}\n" ::"l"(__cvta_generic_to_global(to)),
      "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
      : "memory");
}
/// Reads the current contents: a message, or no message (see is_message).
FALCHION_DEVICE float4 hear(const float4* from) {
  float4 x;
  asm volatile(
      "{\n"
      ".reg .b128 all;\n"
      ".reg .b64 low, high;\n"
      "ld.relaxed.gpu.global.b128 all, [%4];\n"
      "mov.b128 {low, high}, all;\n"
      "mov.b64 {%0, %1}, low;\n"
      "mov.b64 {%2, %3}, high;\n"
      "}\n"
      : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
      : "l"(__cvta_generic_to_global(from))
      : "memory");
  return x;
}

/// Says by a number that what this thread, or others before a barrier, have written is there.
FALCHION_DEVICE void tell_number(std::uint64_t* to, std::uint64_t number) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(number) : "memory");
}
/// Waits for that number, and sets it to 0, because a CUDA graph that runs again has the same one.
FALCHION_DEVICE void take_number(std::uint64_t* from, std::uint64_t number) {
  std::uint64_t there = 0;
  do {
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(there) : "l"(from) : "memory");
  } while (there != number);
  *from = 0;
}

}  // namespace falchion::sm90
