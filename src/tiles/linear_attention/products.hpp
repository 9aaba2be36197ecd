// src/tiles/linear_attention/products.hpp: the kinds of tiles of linear attention.
#pragma once

namespace falchion {

/// The size of the numbers in the products of a variant.
enum class Products { bits16, bits32 };

}  // namespace falchion
