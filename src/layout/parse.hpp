// src/layout/parse.hpp: reads exactly what CuTe prints. docs/layouts.md has the grammar.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "layout/algebra.hpp"

namespace falchion::layout {

/// Names that an expression may use in place of a layout.
using Names = std::map<std::string, Composed, std::less<>>;

/// Reads a text such as "Sw<3,3,3> o _0 o (_8,_64):(_64,_1)", "smem_ptr[16b](unset) o ...", "(4,8)" (LayoutLeft) or
/// "(4,8):R". Literals are dynamic unless they have an underscore or are Int<8>, as CuTe prints them; with as_static
/// all of them are static. It throws an Error with the position of what it cannot read. The text may have at most 4096
/// characters, a depth of 32, and integers whose magnitude is below 2^40.
Composed parse_layout(std::string_view text, const Names& names = {}, bool as_static = false);
IntTuple parse_int_tuple(std::string_view text, bool as_static = false);  ///< a shape, or a coordinate with underscores
Tiler parse_tiler(std::string_view text, bool as_static = false);

}  // namespace falchion::layout
