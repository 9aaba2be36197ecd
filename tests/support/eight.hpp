// tests/support/eight.hpp: an instance whose q has 8 bits: that of a case, rounded, with scales.
#pragma once

#include <cstdint>
#include <string>

#include "support/instance.hpp"

namespace falchion::testing {

/// The types of q and k, of v and of o.
struct EightTypes {
  DType q, v, o;
};
inline constexpr EightTypes kEightTypes[] = {{DType::e4m3, DType::e4m3, DType::bf16},
                                             {DType::i8, DType::e4m3, DType::bf16},
                                             {DType::i8, DType::bf16, DType::bf16},
                                             {DType::i8, DType::f16, DType::f16},
                                             {DType::e4m3, DType::e4m3, DType::f16}};
std::string name(const EightTypes& x);

/// Who shares a scale. no: there are none. token: each query of a head has its own, and each block of 128 keys.
enum class Shares : std::uint8_t { no, tensor, head, token };
inline constexpr Shares kAllShares[] = {Shares::no, Shares::tensor, Shares::head, Shares::token};

/// The case with these types: codes of q, k and v are those of normal numbers, and what belongs to no sequence is NaN
/// in e4m3 and in scales, -128 in i8. Scales are such that scores are about as large as those of the case.
Instance make_eight(const Case& row, const EightTypes& types, Shares shares, std::uint64_t seed = 1);

/// Where the scale of key j of sequence b lies: its index along axis 1 of k_scale.
std::int64_t block_of_key(const Instance& x, std::int64_t b, std::int64_t j);

}  // namespace falchion::testing
