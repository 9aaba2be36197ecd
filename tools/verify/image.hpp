// tools/verify/image.hpp: all memory of one problem in one block, with poison between and around its operands. So one
// copy transfers it to a device, and one comparison detects every forbidden write.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "falchion/falchion.hpp"
#include "problem.hpp"
#include "problem/buffer.hpp"

namespace falchion::tools::storm {

/// A byte pattern that is a NaN in f32, f16 and bf16, and that no arithmetic of the library produces.
inline constexpr std::uint8_t kPoison[2] = {0xA5, 0x7F};

class Image {
 public:
  /// An operand: its view without an address, and the offset of its element (0, 0, 0, 0) from the block's start.
  struct Place {
    Tensor view{};
    std::size_t offset = 0;
    bool there = false, empty = false;  // empty: no element, so a null pointer and no strides
    Tensor on(const std::byte* base) const {
      Tensor out = view;
      if (there && !empty) out.data = const_cast<std::byte*>(base) + offset;
      return out;
    }
  };

  Place add(const std::string& name, DType dtype, const std::array<std::int64_t, 4>& shape, const Storage& storage);
  /// Adds plain numbers, such as lengths and slopes. Returns their offset.
  std::size_t add_array(const std::string& name, std::size_t bytes);

  /// Makes the block, all poison, after the last add.
  void allocate();
  std::byte* data() const { return memory_.data(); }
  std::size_t size() const { return size_; }
  /// The tensors in the order in which they were added.
  const std::vector<std::pair<std::string, Place>>& operands() const { return operands_; }
  const Place* find(const std::string& name) const;  // null: there is none
  /// The offset of plain numbers that were added under this name; size() if there are none.
  std::size_t find_array(const std::string& name) const;

  /// Restores an element in a copy of the block to its value here.
  void restore(std::byte* copy, const Place& place, std::int64_t i, std::int64_t j, std::int64_t k,
               std::int64_t l) const;
  /// Whether the element in the copy has the same bits as here.
  bool same(const std::byte* copy, const Place& place, std::int64_t i, std::int64_t j, std::int64_t k,
            std::int64_t l) const;
  /// Describes where the copy first differs from the other block of this size; empty if nowhere. The memory of the
  /// operand `except` is skipped.
  std::string difference(const std::byte* copy, const std::byte* other, const std::string& except = "") const;

 private:
  struct Region {
    std::string name;
    std::size_t begin, end;
  };
  std::size_t place_region(const std::string& name, std::size_t bytes, std::size_t start);

  static constexpr std::size_t kGuard = 512;  // bytes between two operands, at least
  std::vector<Region> regions_;
  std::vector<std::pair<std::string, Place>> operands_;
  std::size_t size_ = 0;
  Buffer memory_;
};

/// Memory on a 4096-byte boundary with a guard behind it, filled with one byte.
class GuardedBuffer {
 public:
  /// Allocates at least this many bytes. The old contents are lost.
  void resize(std::size_t bytes);
  void fill(std::uint8_t byte);
  bool guard_is_whole() const;
  std::byte* data() const { return start_; }
  std::size_t size() const { return bytes_; }

 private:
  static constexpr std::size_t kGuard = 512;
  std::vector<std::byte> memory_;
  std::byte* start_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint8_t byte_ = 0;
};

}  // namespace falchion::tools::storm
