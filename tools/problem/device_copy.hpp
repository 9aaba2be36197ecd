// tools/problem/device_copy.hpp: copies of the host's operands on the device, for the tests and the tools, which make
// their tensors on the host. It is a header alone, because the library itself never copies.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/fields.hpp"
#include "base/size.hpp"
#include "falchion/falchion.hpp"
#include "runtime/runtime.hpp"

namespace falchion::cuda {

/// Device memory that frees itself. It is 256-byte aligned, and every byte is 0xFF (a NaN in f32, f16 and bf16).
class Memory {
 public:
  Memory() = default;
  Memory(Memory&& from) noexcept : data_(std::exchange(from.data_, nullptr)), size_(std::exchange(from.size_, 0)) {}
  Memory& operator=(Memory&& from) noexcept {
    std::swap(data_, from.data_);
    std::swap(size_, from.size_);
    return *this;
  }
  ~Memory() {
    if (data_ != nullptr) release(data_);
  }
  static Status make(std::size_t bytes, Memory* out) {
    Memory memory;
    memory.size_ = bytes;
    if (Status status = allocate(std::max<std::size_t>(bytes, 1), &memory.data_); !status) return status;
    if (Status status = falchion::cuda::fill(memory.data_, 0xFF, bytes); !status) return status;
    *out = std::move(memory);
    return {};
  }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t size() const { return size_; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A range of bytes in the host's memory.
struct Bytes {
  std::byte* data = nullptr;
  std::size_t size = 0;
};

// The operands of each operation: all tensors, those that are outputs, and the arrays with their bytes.
inline std::vector<Tensor*> tensors_of(Operands* x) {
  std::vector<Tensor*> out;
  each_operand({}, Pass::forward, *x, [&](const OperandField&, Tensor& tensor, bool) { out.push_back(&tensor); });
  return out;
}
/// Those of both passes. In the backward pass o and lse are inputs, which come back as they were. New keys are written
/// into k and v.
inline std::vector<Tensor*> outputs_of(Operands* x) {
  std::vector<Tensor*> out;
  each_operand({}, Pass::forward, *x, [&](const OperandField& of, Tensor& tensor, bool) {
    if (of.forward == OperandField::writes || of.backward == OperandField::writes) out.push_back(&tensor);
  });
  if (x->k_new.data != nullptr) out.insert(out.end(), {&x->k, &x->v});
  return out;
}
template <class F>
void for_each_array(const Attention& a, Operands* x, const F& f) {
  const auto b = static_cast<std::size_t>(a.b);
  if (a.dropout > 0 && x->rng.at != nullptr) f(&x->rng.at, 2 * sizeof(std::uint64_t));
  for (const std::int32_t** lengths : {&x->cu_seqlens_q, &x->cu_seqlens_k, &x->page_starts})
    if (*lengths != nullptr) f(lengths, (b + 1) * sizeof(std::int32_t));
#define FALCHION_LENGTHS(key, ...) \
  if (x->key != nullptr) f(&x->key, b * sizeof(std::int32_t));
#include "base/fields.def"
}

inline std::array<Tensor*, 9> outputs_of(LinearOperands* x) {
  return {&x->o,          &x->final_state,        &x->final_z,       &x->grad_q, &x->grad_k, &x->grad_v,
          &x->grad_decay, &x->grad_initial_state, &x->grad_initial_z};
}
inline std::array<Tensor*, 18> tensors_of(LinearOperands* x) {
  std::array<Tensor*, 18> all{
      &x->q,           &x->k, &x->v, &x->decay, &x->initial_state, &x->initial_z, &x->grad_o, &x->grad_final_state,
      &x->grad_final_z};
  const auto outputs = outputs_of(x);
  std::copy(outputs.begin(), outputs.end(), all.begin() + 9);
  return all;
}
template <class F>
void for_each_array(const LinearAttention& a, LinearOperands* x, const F& f) {
  if (x->cu_seqlens != nullptr) f(&x->cu_seqlens, static_cast<std::size_t>(a.b + 1) * sizeof(std::int32_t));
}

inline std::array<Tensor*, 9> tensors_of(GemmOperands* x) {
  return {&x->a, &x->b, &x->c, &x->d, &x->residual, &x->bias_n, &x->bias_m, &x->scale_a, &x->scale_b};
}
inline std::array<Tensor*, 1> outputs_of(GemmOperands* x) { return {&x->d}; }
template <class F>
void for_each_array(const Gemm&, GemmOperands*, const F&) {}

inline std::array<Tensor*, 13> tensors_of(NormOperands* x) {
  return {&x->x,        &x->residual,          &x->weight, &x->bias,
          &x->y,        &x->residual_out,      &x->mean,   &x->rstd,
          &x->grad_y,   &x->grad_residual_out, &x->grad_x, &x->grad_weight,
          &x->grad_bias};
}
inline std::array<Tensor*, 7> outputs_of(NormOperands* x) {
  return {&x->y, &x->residual_out, &x->mean, &x->rstd, &x->grad_x, &x->grad_weight, &x->grad_bias};
}
template <class F>
void for_each_array(const Norm&, NormOperands*, const F&) {}

inline std::array<Tensor*, 4> tensors_of(QuantiseOperands* x) { return {&x->x, &x->mean, &x->scale, &x->y}; }
inline std::array<Tensor*, 3> outputs_of(QuantiseOperands* x) { return {&x->mean, &x->scale, &x->y}; }
template <class F>
void for_each_array(const Quantise&, QuantiseOperands*, const F&) {}

/// The copies of all operands. Within an allocation addresses keep their distance to each other and their remainder by
/// 256, so alignment, strides (negative, 0) and overlaps are the same as on the host. Guard bytes lie around each copy,
/// and download() reports it if a kernel wrote there.
template <class AnyOperands>
class CopyOf {
 public:
  /// `whole` lists allocations that are copied as a whole, with gaps and padding, if a view alone does not have their
  /// end.
  template <class Problem>
  static Status make(const Problem& problem, const AnyOperands& host, const std::vector<Bytes>& whole, CopyOf* out) {
    CopyOf copy;
    copy.host_ = copy.device_ = host;
    for (const Bytes& bytes : whole) copy.add(bytes);
    for (const Tensor* x : tensors_of(&copy.host_)) copy.add(hull(*x));
    for_each_array(problem, &copy.device_, [&](auto* pointer, std::size_t bytes) {
      copy.add({reinterpret_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(*pointer))), bytes});
    });
    copy.merge();
    for (Range& range : copy.ranges_) {
      if (Status status = Memory::make(range.bytes.size + 3 * kGuard, &range.memory); !status) return status;
    }
    for (Tensor* x : tensors_of(&copy.device_)) x->data = copy.on_device_of(x->data);
    for_each_array(problem, &copy.device_, [&](auto* pointer, std::size_t) {
      void* at = copy.on_device_of(const_cast<void*>(static_cast<const void*>(*pointer)));
      *pointer = static_cast<std::remove_reference_t<decltype(*pointer)>>(at);
    });
    if (Status status = copy.upload(); !status) return status;
    *out = std::move(copy);
    return {};
  }

  const AnyOperands& operands() const { return device_; }  // for Plan::run

  /// Copies everything from the host to the device, outputs too, so that their poison is there as well.
  Status upload() {
    for (const Range& range : ranges_) {
      if (range.sparse) continue;
      if (Status status = cuda::copy(place(range), range.bytes.data, range.bytes.size); !status) return status;
    }
    return copy_sparse(tensors_of(&host_), true);
  }
  /// Waits for the device and then copies what holds an output to the host.
  Status download() {
    if (Status status = synchronize(); !status) return status;
    for (const Range& range : ranges_) {
      if (Status status = check_guards(range); !status) return status;
      if (range.sparse || !holds_output(range)) continue;
      if (Status status = cuda::copy(range.bytes.data, place(range), range.bytes.size); !status) return status;
    }
    return copy_sparse(outputs_of(&host_), false);
  }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr std::size_t kSparse = std::size_t{1} << 30;  // larger ranges are copied row by row, not as a whole

  struct Range {
    Bytes bytes;
    bool sparse = false;
    Memory memory{};
  };

  /// The bytes from the first one of a view to its last.
  static Bytes hull(const Tensor& x) {
    if (is_empty(x)) return {static_cast<std::byte*>(x.data), 0};
    std::int64_t low = 0, high = 1;
    for (std::size_t axis = 0; axis < 4; ++axis) {
      const std::int64_t last = (x.shape[axis] - 1) * x.stride[axis];
      (last < 0 ? low : high) += last;
    }
    return {static_cast<std::byte*>(x.data) + low * size_of(x.dtype),
            static_cast<std::size_t>((high - low) * size_of(x.dtype))};
  }

  void add(const Bytes& bytes) {
    if (bytes.data != nullptr) ranges_.push_back({bytes, false, {}});
  }
  /// Merges ranges that share bytes. Of those that begin at one address the longest comes first, so that an empty
  /// tensor there does not get a range of its own, in which range_of() would find the others.
  void merge() {
    std::sort(ranges_.begin(), ranges_.end(), [](const Range& x, const Range& y) {
      return x.bytes.data != y.bytes.data ? x.bytes.data < y.bytes.data : x.bytes.size > y.bytes.size;
    });
    std::vector<Range> out;
    for (Range& range : ranges_) {
      if (!out.empty() && range.bytes.data < out.back().bytes.data + out.back().bytes.size) {
        Bytes& last = out.back().bytes;
        last.size = std::max(last.size, static_cast<std::size_t>(range.bytes.data - last.data) + range.bytes.size);
      } else if (out.empty() || range.bytes.data != out.back().bytes.data || range.bytes.size > 0) {
        out.push_back(std::move(range));
      }
    }
    for (Range& range : out) range.sparse = range.bytes.size > kSparse;
    ranges_ = std::move(out);
  }
  /// Where a range begins on the device: after a guard, and with the same remainder by 256 as on the host.
  static std::byte* place(const Range& range) {
    return range.memory.data() + kGuard + reinterpret_cast<std::uintptr_t>(range.bytes.data) % kGuard;
  }
  const Range* range_of(const void* host) const {
    for (const Range& range : ranges_) {
      const auto* at = static_cast<const std::byte*>(host);
      if (at >= range.bytes.data && at < range.bytes.data + std::max<std::size_t>(range.bytes.size, 1)) return &range;
    }
    return nullptr;
  }
  void* on_device_of(void* host) const {
    const Range* range = host != nullptr ? range_of(host) : nullptr;
    return range == nullptr ? host : place(*range) + (static_cast<std::byte*>(host) - range->bytes.data);
  }
  bool holds_output(const Range& range) {
    for (const Tensor* x : outputs_of(&host_)) {
      if (x->data != nullptr && range_of(x->data) == &range) return true;
    }
    return false;
  }
  static Status check_guards(const Range& range) {
    const auto start = static_cast<std::size_t>(place(range) - range.memory.data());
    const std::size_t end = start + range.bytes.size;
    std::vector<std::byte> front(start), back(range.memory.size() - end);
    if (Status status = cuda::copy(front.data(), range.memory.data(), front.size()); !status) return status;
    if (Status status = cuda::copy(back.data(), range.memory.data() + end, back.size()); !status) return status;
    const auto touched = [](std::byte x) { return x != std::byte{0xFF}; };
    if (std::none_of(front.begin(), front.end(), touched) && std::none_of(back.begin(), back.end(), touched)) return {};
    return {Code::device, "a kernel wrote outside its tensors"};
  }
  /// The rows of the views that lie in sparse ranges.
  template <class List>
  Status copy_sparse(const List& list, bool up) {
    for (const Tensor* x : list) {
      const Range* range = x->data != nullptr && !is_empty(*x) ? range_of(x->data) : nullptr;
      if (range == nullptr || !range->sparse) continue;
      const std::int64_t bytes = size_of(x->dtype);
      for (std::int64_t i = 0; i < x->shape[0]; ++i) {
        for (std::int64_t j = 0; j < x->shape[1]; ++j) {
          for (std::int64_t k = 0; k < x->shape[2]; ++k) {
            const std::int64_t at = (i * x->stride[0] + j * x->stride[1] + k * x->stride[2]) * bytes;
            std::byte* host = static_cast<std::byte*>(x->data) + at;
            std::byte* device = static_cast<std::byte*>(on_device_of(x->data)) + at;
            Status status = up ? cuda::copy(device, host, static_cast<std::size_t>(x->shape[3] * bytes))
                               : cuda::copy(host, device, static_cast<std::size_t>(x->shape[3] * bytes));
            if (!status) return status;
          }
        }
      }
    }
    return {};
  }

  AnyOperands host_, device_;
  std::vector<Range> ranges_;
};

using DeviceCopy = CopyOf<Operands>;

/// Runs a GPU plan on operands in the host's memory: it copies them, runs with a workspace whose bytes are all 0xFF,
/// waits, and copies the outputs back.
template <class Problem, class AnyOperands>
Status run_on_device(const Plan& plan, const Problem& problem, const AnyOperands& host,
                     const std::vector<Bytes>& whole = {}, Stream stream = nullptr) {
  CopyOf<AnyOperands> copy;
  Memory workspace;
  if (Status status = CopyOf<AnyOperands>::make(problem, host, whole, &copy); !status) return status;
  if (Status status = Memory::make(plan.workspace_bytes(), &workspace); !status) return status;
  if (Status status = synchronize(); !status) return status;  // the copies above are not in the caller's stream
  void* memory = workspace.size() > 0 ? workspace.data() : nullptr;
  if (Status status = plan.run(copy.operands(), memory, workspace.size(), stream); !status) return status;
  return copy.download();
}

}  // namespace falchion::cuda
