/// c_api_fuzz.hpp: what the fuzzers of the C API share: they make numbers from bytes, structs with any bytes in them,
/// and memory that is exactly as large as a view claims, so that the address sanitizer sees every step beyond it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "falchion/falchion.h"
#include "io_fuzz.hpp"

namespace falchion::fuzz {

using io::require;

/// Reads the input from the first byte to the last. Behind its end there are zeros.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  std::uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  bool flag() { return (byte() & 1) != 0; }
  std::int64_t below(int n) { return byte() % n; }
  std::uint64_t word() {
    std::uint64_t x = 0;
    for (int i = 0; i < 8; ++i) x = x << 8 | byte();
    return x;
  }
  /// Returns a number that is mostly small, and sometimes one at which arithmetic overflows.
  std::int64_t number() {
    constexpr std::int64_t ends[] = {INT64_MIN,
                                     INT64_MAX,
                                     INT64_MIN + 1,
                                     INT32_MAX,
                                     INT32_MIN,
                                     std::int64_t{1} << 31,
                                     std::int64_t{1} << 32,
                                     (std::int64_t{1} << 32) + 2,
                                     -1,
                                     std::int64_t{1} << 30,
                                     std::int64_t{1} << 62,
                                     std::int64_t{1} << 48};
    const std::uint8_t x = byte();
    if (x < 220) return x - 8;
    return x < 250 ? ends[x % 12] : static_cast<std::int64_t>(word());
  }
  float real() {
    constexpr float values[] = {0, 1, -1, 0.5F, 1e30F, -1e30F, 1e-40F, 30};
    const std::uint8_t x = byte();
    if (x < 200) return values[x % 8];
    const auto bits = static_cast<std::uint32_t>(word());
    float out = 0;
    std::memcpy(&out, &bits, sizeof out);
    return out;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

/// A struct of the C API at the start of as much memory as its `size` may claim.
template <class T>
class Roomy {
 public:
  Roomy() : memory_(1, Block{}) { *get() = T{}; }
  T* get() { return &memory_.front().value; }
  T* operator->() { return get(); }
  /// Replaces a few bytes of [begin, end) by any others.
  void scramble(Input* in, std::size_t begin, std::size_t end) {
    auto* bytes = reinterpret_cast<unsigned char*>(get());
    for (std::int64_t n = in->below(4); n > 0; --n) {
      const std::size_t high = in->byte(), low = in->byte();
      bytes[begin + (high * 256 + low) % (end - begin)] = in->byte();
    }
  }
  /// Says that the struct has only its first `size` bytes, and changes bytes behind them.
  void cut(Input* in, std::uint32_t size) {
    get()->size = size;
    scramble(in, size, sizeof(T));
  }

 private:
  struct Block {
    T value;
    unsigned char rest[65536];
  };
  std::vector<Block> memory_;
};

/// The memory of all operands of one input.
class Memory {
 public:
  /// Gives a view its memory. The numbers there are small, so that a problem whose operands may be read may also be
  /// computed. Returns false if the view claims more memory than there is.
  bool place(Input* in, fal_tensor* x) {
    x->data = nullptr;
    __int128 low = 0, high = 1;
    for (int axis = 0; axis < 4; ++axis) {
      if (x->shape[axis] <= 0) return true;  // Nothing of it may be read, so null will do.
      const __int128 last = static_cast<__int128>(x->shape[axis] - 1) * x->stride[axis];
      (last < 0 ? low : high) += last;
      if (high - low > 1 << 16) return false;
    }
    const bool has_4 = x->dtype == FAL_F32 || x->dtype == FAL_I32, has_2 = x->dtype == FAL_F16 || x->dtype == FAL_BF16;
    const int bytes = has_4 ? 4 : has_2 ? 2 : 1;
    const int skew = in->byte() > 250 ? 1 : 0;  // A skew of 1 means that the tensor is not aligned to its element.
    const auto size = static_cast<std::size_t>(high - low) * static_cast<std::size_t>(bytes);
    auto* memory = take(size + static_cast<std::size_t>(skew));
    for (std::size_t i = 0; i < size; ++i)
      memory[i + static_cast<std::size_t>(skew)] = i % 2 == 1 ? 0x3C : static_cast<unsigned char>(i);
    x->data = memory + skew + static_cast<std::ptrdiff_t>(-low) * bytes;
    return true;
  }
  /// Makes `count` lengths: sorted sums of small numbers, or any numbers.
  const std::int32_t* lengths(Input* in, std::int64_t count, bool sums) {
    if (count <= 0 || count > 1000) return nullptr;
    auto* out = reinterpret_cast<std::int32_t*>(take(static_cast<std::size_t>(count) * 4));
    const bool any = in->below(8) == 7;
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = any ? static_cast<std::int32_t>(in->number()) : sums ? sum : static_cast<std::int32_t>(in->below(24));
      if (!any && sums) sum += static_cast<std::int32_t>(in->below(8));
    }
    return out;
  }
  /// Fills a table with pages, of `count`, and with numbers that are none. The table was placed.
  static void number_pages(Input* in, const fal_tensor& table, std::int64_t count) {
    if (table.data == nullptr || table.dtype != FAL_I32) return;
    for (std::int64_t i = 0; i < table.shape[0]; ++i)
      for (std::int64_t j = 0; j < table.shape[1]; ++j) {
        const std::int32_t page =
            static_cast<std::int32_t>(in->below(8) == 7 || count == 0 ? in->number() : in->byte() % count);
        std::memcpy(static_cast<std::int32_t*>(table.data) + i * table.stride[0] + j * table.stride[1], &page,
                    sizeof page);
      }
  }
  /// Makes a seed and an offset.
  const std::uint64_t* rng(Input* in) {
    auto* out = reinterpret_cast<std::uint64_t*>(take(2 * sizeof(std::uint64_t)));
    out[0] = in->word();
    out[1] = in->word();
    return out;
  }
  /// Returns memory that is 64-byte aligned, or null for 0 bytes.
  void* workspace(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    workspace_.reset(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
    return workspace_.get();
  }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  unsigned char* take(std::size_t bytes) {
    all_.emplace_back(std::malloc(bytes));
    return static_cast<unsigned char*>(all_.back().get());
  }
  std::vector<std::unique_ptr<void, Free>> all_;
  std::unique_ptr<void, Free> workspace_;
};

/// Makes a dense tensor (b, s, h, d) and then sets a few of its fields to any number.
inline fal_tensor tensor(Input* in, std::int32_t dtype, std::int64_t b, std::int64_t s, std::int64_t h,
                         std::int64_t d) {
  fal_tensor out{};
  out.dtype = dtype;
  const std::int64_t shape[4] = {b, s, h, d};
  std::uint64_t stride = 1;
  for (int axis = 3; axis >= 0; --axis) {
    out.shape[axis] = shape[axis];
    out.stride[axis] = static_cast<std::int64_t>(stride);
    stride *= static_cast<std::uint64_t>(shape[axis]);  // This may wrap around, because any number will do.
  }
  const std::uint8_t change = in->byte();
  if (change >= 200 && change < 228) out.shape[change % 4] = in->number();
  if (change >= 210 && change < 245) out.stride[change % 4] = in->number();
  if (change == 250) out.dtype = static_cast<std::int32_t>(in->number());
  if (change == 251) out.reserved = static_cast<std::int32_t>(in->number());
  return out;
}

/// An executor that works on the calling thread alone.
inline void parallel_for(void*, int n, void (*task)(void* context, int i), void* context) {
  for (int i = 0; i < n; ++i) task(context, i);
}

/// A target with any bytes in it except for its pointers.
class AnyTarget {
 public:
  explicit AnyTarget(Input* in) {
    target_->size = sizeof(fal_target);
    const std::uint8_t kind = in->byte();
    target_->backend = kind % 8 < 5 ? (kind % 2 == 0 ? FAL_CPU : FAL_REF) : kind % 8 == 5 ? FAL_BEST : kind % 8 - 3;
    target_->threads = static_cast<std::int32_t>(in->below(4));
    target_->segments = static_cast<std::int32_t>(in->below(5));
    if (in->below(4) == 3) target_.scramble(in, 0, sizeof(fal_target));
    const char* levels[] = {nullptr, nullptr, "generic", "avx2", "", "no such level"};
    target_->cpu_level = levels[in->below(6)];
    executor_->size = sizeof(fal_executor);
    executor_->threads = 2;
    if (in->below(4) == 3) executor_.scramble(in, 0, sizeof(fal_executor));
    executor_->parallel_for = in->below(4) == 3 ? nullptr : parallel_for;
    target_->executor = in->flag() ? executor_.get() : nullptr;
    null_ = in->below(8) == 7;
  }
  const fal_target* get() { return null_ ? nullptr : target_.get(); }
  /// Whether the target asks for so few threads that all of them can be started.
  bool is_modest() { return null_ || (target_->threads <= 8 && executor_->threads <= 8); }

 private:
  Roomy<fal_target> target_;
  Roomy<fal_executor> executor_;
  bool null_ = false;
};

/// Checks that a status is one of the enum's, and that a failure says why in printable words.
inline bool is_ok(fal_status status) {
  require(status >= FAL_OK && status <= FAL_DEVICE);
  const char* why = fal_why();
  require((status == FAL_OK) == (why[0] == 0));
  for (const char* c = why; *c != 0; ++c) require(static_cast<unsigned char>(*c) >= 0x20);
  return status == FAL_OK;
}

/// Whether the problem takes at most a fraction of a second.
inline bool is_small(std::initializer_list<std::int64_t> sizes) {
  double product = 1;
  for (const std::int64_t n : sizes) product *= static_cast<double>(std::max<std::int64_t>(n, 1));
  return product < 3e6;
}

}  // namespace falchion::fuzz
