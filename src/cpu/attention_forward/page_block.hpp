// src/cpu/attention_forward/page_block.hpp: where the keys of a block lie in the pages of a cache. Decode finds it once
// for all heads and rows, because it reads each key many times and a page is a division and a look at the table.
#pragma once

#include "args/cpu_attention_args.hpp"
#include "cpu/blocks/rows.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

template <int kKeys>
struct PageBlock {
  std::int64_t first;               // the block's first key
  std::int64_t k[kKeys], v[kKeys];  // from the data of K and V to the key's row, of head 0
  std::uint8_t exists[kKeys];       // 0 for a key in a page that is not there, and past the sequence
  bool has_holes;

  void find(const AttentionArgs& a, const Sequence& s, std::int64_t key0) {
    first = key0;
    has_holes = false;
    for (int key = 0; key < kKeys; ++key) {
      const bool inside = key0 + key < s.k_len;
      const KeyPlace place = inside ? s.keys.at(key0 + key) : KeyPlace{-1, 0};
      exists[key] = place.exists();
      if (!place.exists()) {
        has_holes |= inside;
        continue;
      }
      k[key] = place.batch * a.k.stride[0] + place.row * a.k.stride[1];
      v[key] = place.batch * a.v.stride[0] + place.row * a.v.stride[1];
    }
  }
};

}  // namespace falchion::cpu::FALCHION_LEVEL
