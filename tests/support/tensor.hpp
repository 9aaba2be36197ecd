// tests/support/tensor.hpp: tensors that own their memory, in several layouts, with poison wherever no run should read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/size.hpp"
#include "falchion/falchion.hpp"
#include "plan/text.hpp"
#include "policy/dtype.hpp"
#include "support/random.hpp"

namespace falchion::testing {

using Shape = std::array<std::int64_t, 4>;

/// dense lies as (b, s, h, d), and heads_first as (b, h, s, d). gaps is dense with 8 spare elements after each row and
/// 3 spare rows of heads. odd has an odd number of spare elements and a start that is aligned only to its element. In
/// reversed axis 1 runs backwards (a negative stride; for inputs only). In transposed the last two axes change places.
/// In across axis 1 is the innermost: rows lie side by side.
enum class Layout { dense, heads_first, gaps, odd, reversed, transposed, across };

/// What an output holds before a run: signalling NaNs that no arithmetic and no conversion of the library produces.
inline constexpr std::uint32_t kPoison32 = 0x7FA5A5A5u;
inline constexpr std::uint16_t kPoisonBf16 = 0x7FA5u, kPoisonF16 = 0x7DA5u;

/// A copy is another view of the same memory.
class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(DType dtype, Shape shape, Layout layout = Layout::dense) { allocate(dtype, shape, layout); }

  /// A copy in its own memory, which lies in the same way.
  HostTensor like() const { return HostTensor(view_.dtype, view_.shape, layout_); }

  const Tensor& view() const { return view_; }
  const Shape& shape() const { return view_.shape; }
  std::int64_t offset(std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l) const {
    return i * view_.stride[0] + j * view_.stride[1] + k * view_.stride[2] + l * view_.stride[3];
  }
  float get(std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l) const {
    const std::int64_t at = offset(i, j, k, l);
    switch (view_.dtype) {
      case DType::f32: return static_cast<const float*>(view_.data)[at];
      case DType::f16: return f32_from_f16(static_cast<const std::uint16_t*>(view_.data)[at]);
      case DType::bf16: return f32_from_bf16(static_cast<const std::uint16_t*>(view_.data)[at]);
      case DType::e4m3: return f32_from_e4m3(static_cast<const std::uint8_t*>(view_.data)[at]);
      case DType::i8: return static_cast<const std::int8_t*>(view_.data)[at];
      case DType::i32: return static_cast<float>(static_cast<const std::int32_t*>(view_.data)[at]);
      default: return static_cast<const std::uint8_t*>(view_.data)[at];
    }
  }
  void set(std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l, float x) { put(offset(i, j, k, l), x); }

  template <class F>
  void for_each(const F& f) const {
    const Shape& n = view_.shape;
    for (std::int64_t i = 0; i < n[0]; ++i)
      for (std::int64_t j = 0; j < n[1]; ++j)
        for (std::int64_t k = 0; k < n[2]; ++k)
          for (std::int64_t l = 0; l < n[3]; ++l) f(i, j, k, l);
  }
  /// i8: of deviation 40, so that its numbers have more than a few values, and a few are at its limits.
  void fill_normal(std::uint64_t seed) {
    std::uint64_t n = 0;
    const float factor = view_.dtype == DType::i8 ? 40.F : 1.F;
    for_each([&](auto i, auto j, auto k, auto l) { set(i, j, k, l, factor * random_normal(seed, n++)); });
  }
  /// Makes poison of every element, also in the gaps.
  void fill_poison() {
    for (std::int64_t at = 0; at < elements_; ++at) put_poison(first() + at * size_of(view_.dtype));
  }
  bool is_poison(std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l) const {
    return poisoned(static_cast<const std::byte*>(view_.data) + offset(i, j, k, l) * size_of(view_.dtype));
  }
  /// The whole allocation: the view, its gaps and what lies behind the last row.
  std::byte* memory() const { return elements_ > 0 ? first() : nullptr; }
  std::size_t memory_bytes() const { return static_cast<std::size_t>(elements_ * size_of(view_.dtype)); }
  /// The elements of the whole allocation that are not poison, which are those that a run wrote, in the view or
  /// (wrongly) beside it.
  std::int64_t written() const {
    std::int64_t count = 0;
    for (std::int64_t at = 0; at < elements_; ++at) count += poisoned(first() + at * size_of(view_.dtype)) ? 0 : 1;
    return count;
  }

 private:
  void allocate(DType dtype, Shape n, Layout layout) {
    layout_ = layout;
    view_ = layout == Layout::heads_first ? Tensor::heads_first(nullptr, dtype, n) : Tensor::dense(nullptr, dtype, n);
    if (layout == Layout::transposed) {
      view_.stride[2] = 1;
      view_.stride[3] = n[2];
    }
    if (layout == Layout::across) view_.stride = {n[1] * n[2] * n[3], 1, n[1] * n[3], n[1]};
    const std::int64_t spare = layout == Layout::gaps ? 8 : layout == Layout::odd ? 3 : 0;
    if (spare > 0) view_.stride = {(n[2] * (n[3] + spare) + 3) * n[1], n[2] * (n[3] + spare) + 3, n[3] + spare, 1};
    elements_ = 1 + spare;
    for (int axis = 0; axis < 4; ++axis) elements_ += n[axis] > 0 ? (n[axis] - 1) * view_.stride[axis] : 0;
    for (const std::int64_t extent : n) elements_ = extent == 0 ? 0 : elements_;
    const std::int64_t bytes = elements_ * size_of(dtype);
    memory_ = std::make_shared<std::vector<std::uint64_t>>(static_cast<std::size_t>(bytes / 64 + 3) * 8);
    const auto base = reinterpret_cast<std::uintptr_t>(memory_->data());
    start_ = static_cast<std::int64_t>((64 - base % 64) % 64) + (layout == Layout::odd ? size_of(dtype) : 0);
    view_.data = first();
    if (dtype != DType::boolean) fill_poison();  // The gaps of an input are NaN.
    if (layout == Layout::reversed) {            // Key s - 1 lies first, so the stride is negative.
      view_.data = first() + (n[1] - 1) * view_.stride[1] * size_of(dtype);
      view_.stride[1] = -view_.stride[1];
    }
  }
  std::byte* first() const { return reinterpret_cast<std::byte*>(memory_->data()) + start_; }
  void put(std::int64_t at, float x) {
    switch (view_.dtype) {
      case DType::f32: static_cast<float*>(view_.data)[at] = x; break;
      case DType::f16: static_cast<std::uint16_t*>(view_.data)[at] = f16_from_f32(x); break;
      case DType::bf16: static_cast<std::uint16_t*>(view_.data)[at] = bf16_from_f32(x); break;
      case DType::e4m3: static_cast<std::uint8_t*>(view_.data)[at] = e4m3_from_f32(x); break;
      case DType::i8: static_cast<std::int8_t*>(view_.data)[at] = i8_from_f32(x); break;
      case DType::i32: static_cast<std::int32_t*>(view_.data)[at] = static_cast<std::int32_t>(x); break;
      default: static_cast<std::uint8_t*>(view_.data)[at] = static_cast<std::uint8_t>(x);
    }
  }
  void put_poison(std::byte* at) const {
    const std::uint16_t half = view_.dtype == DType::f16 ? kPoisonF16 : kPoisonBf16;
    if (size_of(view_.dtype) == 4)
      std::memcpy(at, &kPoison32, 4);
    else if (view_.dtype == DType::e4m3)
      *at = std::byte{0x7F};  // a NaN
    else
      std::memcpy(at, &half, static_cast<std::size_t>(size_of(view_.dtype)));
  }
  bool poisoned(const std::byte* at) const {
    const std::uint16_t half = view_.dtype == DType::f16 ? kPoisonF16 : kPoisonBf16;
    return size_of(view_.dtype) == 4 ? std::memcmp(at, &kPoison32, 4) == 0 : std::memcmp(at, &half, 2) == 0;
  }

  std::shared_ptr<std::vector<std::uint64_t>> memory_;
  std::int64_t start_ = 0, elements_ = 0;
  Layout layout_ = Layout::dense;
  Tensor view_;
};

}  // namespace falchion::testing
