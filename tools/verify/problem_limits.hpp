// tools/verify/problem_limits.hpp: the limits of the values in a problem's text. So any text after --problem is either
// a problem that can be made, or it is refused with the key's name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "problem.hpp"

namespace falchion::tools::storm {

/// Throws UsageError with the key, its value and the limit.
void require_sound(const Problem& problem);

// The single checks. Each throws UsageError.
using Words = std::span<const std::string_view>;
inline constexpr std::int64_t kInt32 = std::numeric_limits<std::int32_t>::max();
inline constexpr std::int64_t kAllAxes = 15;  // all four axes, with one bit for each
void require_between(const std::string& key, std::int64_t x, std::int64_t least, std::int64_t most);
void require_word(const char* key, const std::string& word, Words words);
/// `wanted`: the problem has this list, with one number for each sequence.
void require_list(const char* key, const Lengths& list, bool wanted, std::int64_t b, std::int64_t least);
/// Packed rows are counted in 32 bits, including those outside of all sequences.
void require_total(const char* key, const Lengths& lengths, std::int64_t spare);
/// Requires that an operand of these extents has so few elements that its strides stay within 64 bits.
void require_elements(const char* what, std::initializer_list<std::int64_t> extents);

}  // namespace falchion::tools::storm
