// src/args/view.hpp: a tensor's address and strides, as every kernel sees them. It is plain data for the reason that
// args/attention_call.hpp gives.
#pragma once

#include <cstdint>

namespace falchion {

/// A tensor with four axes, those of the operation that it belongs to.
struct View {
  void* data = nullptr;         // null: the tensor is absent
  std::int64_t stride[4] = {};  // in elements
};

}  // namespace falchion
