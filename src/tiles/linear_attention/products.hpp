// src/tiles/linear_attention/products.hpp: the kinds of tiles of linear attention.
#pragma once

namespace falchion {

/// How large the numbers are that the products of a variant take.
enum class Products { bits16, bits32 };

}  // namespace falchion
