// tools/verify/image.cpp: see image.hpp.
#include "image.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/size.hpp"
#include "plan/text.hpp"
#include "storage.hpp"

namespace falchion::tools::storm {
namespace {

constexpr std::size_t round_up(std::size_t x, std::size_t to) { return (x + to - 1) / to * to; }

std::size_t offset_of(const Image::Place& place, std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l) {
  const auto& stride = place.view.stride;
  const auto& n = place.view.shape;
  const auto step = [&](std::size_t axis, std::int64_t at) { return n[axis] <= 1 ? 0 : at * stride[axis]; };
  const std::int64_t at = step(0, i) + step(1, j) + step(2, k) + step(3, l);
  return static_cast<std::size_t>(static_cast<std::int64_t>(place.offset) + at * size_of(place.view.dtype));
}

}  // namespace

std::size_t Image::place_region(const std::string& name, std::size_t bytes, std::size_t start) {
  const std::size_t begin = round_up(size_ + kGuard, 256) + start;
  regions_.push_back({name, begin, begin + bytes});
  size_ = begin + bytes;
  return begin;
}

Image::Place Image::add(const std::string& name, DType dtype, const std::array<std::int64_t, 4>& shape,
                        const Storage& storage) {
  const Strides strides = strides_of(storage, shape);
  const auto bytes = static_cast<std::size_t>(size_of(dtype));
  const std::size_t begin = place_region(name, static_cast<std::size_t>(strides.count) * bytes,
                                         static_cast<std::size_t>(storage.start) * bytes);
  Place out;
  out.view = {nullptr, dtype, shape, strides.stride};
  out.offset = begin + static_cast<std::size_t>(strides.first) * bytes;
  out.there = true;
  out.empty = strides.count == 0;
  if (out.empty) out.view.stride = {};  // as if the caller had nothing to tell of it
  operands_.emplace_back(name, out);
  return out;
}

const Image::Place* Image::find(const std::string& name) const {
  for (const auto& [known, place] : operands_)
    if (known == name) return &place;
  return nullptr;
}

std::size_t Image::find_array(const std::string& name) const {
  for (const Region& region : regions_)
    if (region.name == name && region.begin < region.end) return region.begin;
  return size_;
}

std::size_t Image::add_array(const std::string& name, std::size_t bytes) { return place_region(name, bytes, 0); }

void Image::allocate() {
  size_ = round_up(size_ + kGuard, 256);
  memory_ = Buffer(size_);
  for (std::size_t i = 0; i < size_; ++i) memory_.data()[i] = std::byte{kPoison[i % 2]};
}

void Image::restore(std::byte* copy, const Place& place, std::int64_t i, std::int64_t j, std::int64_t k,
                    std::int64_t l) const {
  const std::size_t at = offset_of(place, i, j, k, l);
  std::memcpy(copy + at, data() + at, static_cast<std::size_t>(size_of(place.view.dtype)));
}

bool Image::same(const std::byte* copy, const Place& place, std::int64_t i, std::int64_t j, std::int64_t k,
                 std::int64_t l) const {
  const std::size_t at = offset_of(place, i, j, k, l);
  return std::memcmp(copy + at, data() + at, static_cast<std::size_t>(size_of(place.view.dtype))) == 0;
}

std::string Image::difference(const std::byte* copy, const std::byte* other, const std::string& except) const {
  const auto first_from = [&](std::size_t begin) {
    if (std::memcmp(copy + begin, other + begin, size_ - begin) == 0) return size_;
    return static_cast<std::size_t>(std::mismatch(copy + begin, copy + size_, other + begin).first - copy);
  };
  std::size_t at = first_from(0);
  for (const Region& region : regions_) {
    if (region.name == except && at >= region.begin && at < region.end) at = first_from(region.end);
    if (at == size_) return "";
    if (at < region.begin) return fmt::format("{} bytes before {}", region.begin - at, region.name);
    if (at < region.end) return fmt::format("byte {} of {}", at - region.begin, region.name);
  }
  return fmt::format("{} bytes behind {}", at - regions_.back().end, regions_.back().name);
}

void GuardedBuffer::resize(std::size_t bytes) {
  constexpr std::size_t page = 4096;
  if (memory_.size() < bytes + page + kGuard) memory_.resize(bytes + bytes / 2 + page + kGuard);
  const auto base = reinterpret_cast<std::uintptr_t>(memory_.data());
  start_ = memory_.data() + (page - base % page) % page;
  bytes_ = bytes;
}

void GuardedBuffer::fill(std::uint8_t byte) {
  byte_ = byte;
  std::memset(start_, byte, bytes_ + kGuard);
}

bool GuardedBuffer::guard_is_whole() const {
  return std::all_of(start_ + bytes_, start_ + bytes_ + kGuard, [&](std::byte x) { return x == std::byte{byte_}; });
}

}  // namespace falchion::tools::storm
