// python/xla/buffers.hpp: XLA's buffers as Falchion's tensors. A custom call says in its attributes "operands" and
// "results" what each of its buffers is, as in "q k v used_k"; an operation has a table of the names that it knows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "falchion/falchion.h"
#include "xla/ffi/api/ffi.h"

namespace falchion::xla_ffi {

/// Which axes a buffer has. XLA's buffers are dense, the last axis is contiguous.
enum class Axes {
  rows,        // (b, s, h, d), or (b, h, s, d) where heads come first; packed: without b
  by_token,    // as rows, without d
  statistics,  // (b, h, s); packed: (h, s)
  scores,      // (b, h_q, s_q, s_k); an axis of an input that has one element stands for all of that axis
  slopes,      // (h) or (b, h)
  whole,       // four axes, as the operation has them
  state,       // (b, h, d_qk, d_v)
  state_z,     // (b, h, d_qk)
  lengths,     // (b), int32
  starts,      // (b + 1), int32: where packed sequences start, and where the last one ends
  rng,         // two 64-bit numbers, as two uint64 or four uint32 (the low half first)
};

/// A buffer before it is known what it is.
struct Buffer {
  void* data;
  xla::ffi::DataType dtype;
  std::span<const std::int64_t> dims;
};

/// FAL_AS_Q (0) for a type that Falchion has no name for.
std::int32_t dtype_of(xla::ffi::DataType dtype);

/// Makes the view of a buffer. Returns what is wrong with it, or "".
std::string view(std::string_view name, const Buffer& buffer, Axes axes, bool heads_first, fal_tensor* out);

/// Checks a buffer of lengths or of numbers for dropout. Returns what is wrong with it, or "".
std::string check_array(std::string_view name, const Buffer& buffer, Axes axes);

/// Checks that a list of lengths or starts has an entry for each of b sequences. Returns what is wrong with it, or "".
std::string check_count(std::string_view name, const Buffer& buffer, Axes axes, std::int64_t b);

/// Takes the next name off a list like "q k v".
std::string_view next_name(std::string_view* list);

}  // namespace falchion::xla_ffi
