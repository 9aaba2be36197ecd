// src/policy/dropout.hpp: which probabilities are dropped. It depends on Philox4x32-10 (Salmon et al., SC 2011) of
// (seed, offset, b, h, i, j) alone, so CPU, sm80, sm90 and all tilings agree to the bit.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"

namespace falchion {

/// The position of a run in a larger problem, in the units of Philox's counter. A sum beyond 32 bits wraps round, like
/// the numbers themselves.
struct DropoutOrigin {
  std::uint32_t heads = 0;            // the query heads of one sequence of the larger problem
  std::uint32_t row_of_heads = 0;     // b * heads + h of the run's first head
  std::uint32_t query = 0, keys = 0;  // its first query; its first key / 4
};

struct Philox {
  std::uint32_t key[2];

  struct Block {
    std::uint32_t word[4];
  };

  FALCHION_HD Block operator()(std::uint32_t c0, std::uint32_t c1, std::uint32_t c2, std::uint32_t c3) const {
    std::uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t a = std::uint64_t{0xD2511F53u} * c0, b = std::uint64_t{0xCD9E8D57u} * c2;
      c0 = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ k0;
      c1 = static_cast<std::uint32_t>(b);
      c2 = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ k1;
      c3 = static_cast<std::uint32_t>(a);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
  }
};

/// One block of Philox serves four neighbouring keys. Its counter is (j / 4, i, b * h_q + h, offset), all counted from
/// the origin of the larger problem, and its key is the seed, with the high 32 bits of the offset mixed in, so that all
/// 64 bits of both matter. Word j % 4 belongs to key j.
struct DropoutMask {
  Philox philox;
  std::uint32_t offset_low;
  std::uint64_t threshold;  // a key is kept when word >= threshold, which is p 2^32 and so 2^32 for p = 1
  float keep_scale;         // 1 / (1 - p), 0 for p = 1
  DropoutOrigin origin;

  static FALCHION_HD DropoutMask make(float p, std::uint64_t seed, std::uint64_t offset,
                                      const DropoutOrigin& origin = {}) {
    const std::uint32_t high = static_cast<std::uint32_t>(offset >> 32);
    return {{{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32) ^ high * 0x9E3779B9u}},
            static_cast<std::uint32_t>(offset),
            static_cast<std::uint64_t>(static_cast<double>(p) * 4294967296.0 + 0.5),
            p < 1 ? 1 / (1 - p) : 0,
            origin};
  }
  /// The four words for keys 4 * (j / 4) to 4 * (j / 4) + 3 of row (b, h, i).
  FALCHION_HD Philox::Block words(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return philox(static_cast<std::uint32_t>(j / 4) + origin.keys, static_cast<std::uint32_t>(i) + origin.query,
                  static_cast<std::uint32_t>(b) * origin.heads + static_cast<std::uint32_t>(h) + origin.row_of_heads,
                  offset_low);
  }
  FALCHION_HD bool keep(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return words(b, h, i, j).word[j % 4] >= threshold;
  }
};

}  // namespace falchion
