// src/cpu/blocks/arena.hpp: hands out slices of one block of memory. With a null base it only counts bytes, so the same
// lines of code compute the size of a workspace and cut it up.
#pragma once

#include "cpu/blocks/level.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

class Arena {
 public:
  explicit Arena(std::byte* base) : base_(base) {}

  template <class T>
  FALCHION_INLINE T* take(std::int64_t count) {
    std::byte* p = base_ == nullptr ? nullptr : base_ + used_;
    used_ += static_cast<std::size_t>(round_up(count * static_cast<std::int64_t>(sizeof(T)), 64));
    return reinterpret_cast<T*>(p);
  }
  FALCHION_INLINE std::size_t used() const { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

}  // namespace falchion::cpu::FALCHION_LEVEL
