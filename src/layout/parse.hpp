// src/layout/parse.hpp: exactly what CuTe prints, read back. Grammar: docs/layouts.md.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "layout/algebra.hpp"

namespace falchion::layout {

/// Names that an expression may use in place of a layout.
using Names = std::map<std::string, Composed, std::less<>>;

/// "Sw<3,3,3> o _0 o (_8,_64):(_64,_1)", "smem_ptr[16b](unset) o ...", "(4,8)" (LayoutLeft), "(4,8):R". Literals are
/// dynamic unless they have an underscore or are Int<8>, as CuTe prints them; as_static: all of them are static. Throws
/// Error with the position of what it could not read. At most 4096 characters, depth 32, |integers| below 2^40.
Composed parse_layout(std::string_view text, const Names& names = {}, bool as_static = false);
IntTuple parse_int_tuple(std::string_view text, bool as_static = false);  ///< a shape, or a coordinate with underscores
Tiler parse_tiler(std::string_view text, bool as_static = false);

}  // namespace falchion::layout
