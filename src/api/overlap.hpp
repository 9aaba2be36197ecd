// src/api/overlap.hpp: the extent of a strided view in memory, and whether two views share a byte.
#pragma once

#include <cstddef>

#include "falchion/falchion.hpp"

namespace falchion {

/// True when no element of the view lies further than 2^60 bytes from its data pointer.
bool fits_address_space(const Tensor& x);

/// The axis along which it reaches furthest.
std::size_t longest_axis(const Tensor& x);

/// Whether the two views share a byte. Exact for every layout in practice (interleaved slices of one buffer do not
/// overlap); for layouts whose search would be too long, the answer is true. Both must fit the address space.
bool overlap(const Tensor& a, const Tensor& b);

/// The same elements at the same addresses. An axis of one element has no stride, whatever it says.
bool same_view(const Tensor& a, const Tensor& b);

/// Whether two different elements of the view share memory. Its strides must be above 0 where its extent is above 1.
bool aliases_itself(const Tensor& x);

}  // namespace falchion
