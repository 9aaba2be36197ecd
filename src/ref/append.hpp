// src/ref/append.hpp: the definition of what a run with append writes into a KV cache.
#pragma once

#include "falchion/falchion.hpp"

namespace falchion::ref {

/// Writes k_new, rotated in double and rounded once, and v_new into k and v, before attention reads them. problem and
/// operands must be valid. It allocates nothing, throws nothing and runs on one thread.
void append(const Attention& problem, const Operands& operands) noexcept;

}  // namespace falchion::ref
