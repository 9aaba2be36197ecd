// src/api/overlap.hpp: where a strided view lies in memory, and whether two views share a byte.
#pragma once

#include <cstddef>

#include "falchion/falchion.hpp"

namespace falchion {

/// True when no element of the view lies further than 2^60 bytes from its data pointer.
bool fits_address_space(const Tensor& x);

/// The axis along which it reaches furthest.
std::size_t longest_axis(const Tensor& x);

/// Do the two views share a byte? Exact for every layout that occurs (interleaved slices of one buffer do not overlap);
/// for layouts so tangled that the search would be long, the answer is "yes". Both fit the address space.
bool overlap(const Tensor& a, const Tensor& b);

/// The same elements at the same addresses. An axis of one element has no stride, whatever it says.
bool same_view(const Tensor& a, const Tensor& b);

/// Do two different elements of the view share memory? All its strides are above 0 where its extent is above 1.
bool aliases_itself(const Tensor& x);

}  // namespace falchion
