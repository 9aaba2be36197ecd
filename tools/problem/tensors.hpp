// tools/problem/tensors.hpp: tensors that own their memory, random ones, and single elements as double.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "falchion/falchion.hpp"
#include "problem/buffer.hpp"

namespace falchion::tools {

using Shape = std::array<std::int64_t, 4>;

struct HostTensor {
  Buffer memory;
  Tensor view{};
  std::shared_ptr<const void> owner;  // owns the bytes when they belong to a file; memory is empty then
};

/// How the memory lies; the view's axes are (b, s, h, d) either way. bhsd is PyTorch's order.
enum class Layout { bshd, bhsd };

HostTensor make_tensor(DType dtype, const Shape& shape, Layout layout = Layout::bshd);
/// A tensor whose elements are all NaN (0xFF bytes are NaN in f32, f16 and bf16), so that an element that was not
/// written is noticed.
HostTensor make_poisoned(DType dtype, const Shape& shape, Layout layout = Layout::bshd);
/// Normal numbers of mean 0 and deviation 1. The same seed gives the same numbers, rounded to dtype.
HostTensor make_random(DType dtype, const Shape& shape, std::uint64_t seed, Layout layout = Layout::bshd);
/// The same numbers in another type, dense.
HostTensor convert(const Tensor& from, DType to);

std::int64_t element_count(const Shape& shape);
double load_element(const Tensor& tensor, std::int64_t i0, std::int64_t i1, std::int64_t i2, std::int64_t i3);
void store_element(const Tensor& tensor, std::int64_t i0, std::int64_t i1, std::int64_t i2, std::int64_t i3, double x);
/// Calls visit(i0, i1, i2, i3) for each index.
void for_each_index(const Shape& shape,
                    const std::function<void(std::int64_t, std::int64_t, std::int64_t, std::int64_t)>& visit);

}  // namespace falchion::tools
