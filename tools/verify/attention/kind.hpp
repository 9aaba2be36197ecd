// tools/verify/attention/kind.hpp: common to the storms' entries of both passes of softmax attention.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "base/fields.hpp"
#include "verify/kind.hpp"

namespace falchion::tools::storm {

/// The names of the operands of a pass.
template <Pass pass>
inline constexpr auto kOperandsOf = [] {
  constexpr auto mine = [](const OperandField& of) { return of.in(pass) != OperandField::neither; };
  std::array<std::string_view, std::ranges::count_if(kOperandFields, mine)> out;
  std::size_t n = 0;
  for (const OperandField& of : kOperandFields)
    if (mine(of)) out[n++] = of.name;
  return out;
}();

void tidy_attention(Problem* problem);
void require_attention(const Problem& problem);
bool attention_is_not_built_yet(const Problem& problem);

}  // namespace falchion::tools::storm
