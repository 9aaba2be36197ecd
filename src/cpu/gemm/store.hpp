// src/cpu/gemm/store.hpp: the epilogue of a GEMM: D = activation(alpha s_a s_b sums + beta C + bias) + R.
#pragma once

#include "cpu/blocks/activation.hpp"
#include "cpu/blocks/arena.hpp"
#include "cpu/gemm/products.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// T: the type of a.
template <class T>
class GemmStore {
  static constexpr bool kScaled = sizeof(typename T::Bits) == 1;  // whether there may be scales

 public:
  GemmStore(const GemmArgs& a, Arena& arena, std::int64_t columns)
      : a_(a),
        swiglu_(a.activation == GemmActivation::swiglu),
        padded_(round_up(columns, kLanes)),
        scaled_(kScaled && a.scale_a.data != nullptr && !a.block_scales),
        bias_(arena.take<float>(padded_ * (swiglu_ ? 2 : 1))),
        scale_(kScaled ? arena.take<float>(padded_ * (swiglu_ ? 2 : 1)) : nullptr) {}

  /// Rows [i, i + rows) and columns [j, j + columns) of batch entry b. up: with swiglu, the sums of the second n rows.
  void run(std::int64_t b, std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t columns, GemmSums sums,
           GemmSums up) {
    load_columns(b, j, columns, 0);
    if (swiglu_) load_columns(b, a_.n + j, columns, padded_);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float of_row = a_.bias_m.data != nullptr ? bias_m(b, i + r) : 0.f;
      const float factor = scaled_ ? a_.alpha * scale(a_.scale_a, b, i + r) : a_.alpha;
      for (std::int64_t c = 0; c < columns; c += kChunk) {
        const Part part{b, i + r, j + c, min(kChunk, columns - c)};
        if (kExactSums<T> && a_.d_i32) {
          store_sums(part, sums.row(r) + c);
          continue;
        }
        affine(part, sums.row(r) + c, c, factor, of_row, z_);
        if (swiglu_) {
          affine(part, up.row(r) + c, padded_ + c, factor, of_row, other_);
          each(part.count, [&](Floats x, Floats y) { return hn::Mul(silu(x), y); });
        } else {
          activate(part.count);
        }
        store_part(part);
      }
    }
  }

 private:
  static constexpr std::int64_t kChunk = 256;  // columns at a time, in buffers on the stack

  /// Columns [j, j + count) of a row of d.
  struct Part {
    std::int64_t b, i, j, count;
  };

  /// Calls f(offset of the first element, columns before it, columns) for each contiguous part along n1.
  template <class F>
  void each_run(const View& x, const Part& part, const F& f) const {
    for (std::int64_t done = 0; done < part.count;) {
      const std::int64_t j = part.j + done, inner = j % a_.n1, run = min(part.count - done, a_.n1 - inner);
      f(part.b * x.stride[0] + part.i * x.stride[1] + j / a_.n1 * x.stride[2] + inner * x.stride[3], done, run);
      done += run;
    }
  }
  template <class From>
  void load_as(const View& x, const Part& part) {
    each_run(x, part, [&](std::int64_t at, std::int64_t done, std::int64_t run) {
      convert_row<From>(static_cast<const typename From::Bits*>(x.data) + at, x.stride[3], run, other_ + done);
    });
  }
  /// Calls f with f32, or with the 16-bit type.
  template <class F>
  auto as_type(bool is_f32, const F& f) const {
    if (is_f32) return f(f32());
    if constexpr (kScaled)
      return a_.half_f16 ? f(f16()) : f(bf16());
    else
      return f(T());
  }
  /// Loads a row of C or R into other_.
  void load_part(const View& x, bool is_f32, const Part& part) {
    as_type(is_f32, [&](auto type) { load_as<decltype(type)>(x, part); });
  }
  template <class To>
  void store_as(const Part& part) const {
    each_run(a_.d, part, [&](std::int64_t at, std::int64_t done, std::int64_t run) {
      auto* out = static_cast<typename To::Bits*>(a_.d.data) + at;
      if (a_.d.stride[3] == 1) return store_row<To>(out, z_ + done, 1.f, run);
      for (std::int64_t c = 0; c < run; ++c) out[c * a_.d.stride[3]] = To::from_float(z_[done + c]);
    });
  }
  void store_part(const Part& part) {
    if (a_.residual.data != nullptr) {
      load_part(a_.residual, a_.d_f32, part);
      each(part.count, [](Floats x, Floats y) { return hn::Add(x, y); });
    }
    as_type(a_.d_f32, [&](auto type) { store_as<decltype(type)>(part); });
  }
  /// Stores sums of i8 unchanged.
  void store_sums(const Part& part, const float* sums) const {
    each_run(a_.d, part, [&](std::int64_t at, std::int64_t done, std::int64_t run) {
      auto* out = static_cast<std::int32_t*>(a_.d.data) + at;
      if (a_.d.stride[3] == 1) {
        std::memcpy(out, sums + done, static_cast<std::size_t>(run) * sizeof *out);
        return;
      }
      for (std::int64_t c = 0; c < run; ++c) std::memcpy(out + c * a_.d.stride[3], sums + done + c, sizeof *out);
    });
  }

  template <class From>
  static float element(const View& x, std::int64_t at) {
    return From::to_float(static_cast<const typename From::Bits*>(x.data)[at]);
  }
  float bias_m(std::int64_t b, std::int64_t i) const {
    const std::int64_t at = b * a_.bias_m.stride[0] + i * a_.bias_m.stride[1];
    return as_type(a_.bias_m_f32, [&](auto type) { return element<decltype(type)>(a_.bias_m, at); });
  }
  static float scale(const View& x, std::int64_t b, std::int64_t row) {
    return element<f32>(x, b * x.stride[0] + row * x.stride[1]);
  }
  /// Loads the biases and scales of rows [j, j + columns) of b to place `to`.
  void load_columns(std::int64_t b, std::int64_t j, std::int64_t columns, std::int64_t to) const {
    const View& x = a_.bias_n;
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t at = (j + c) * x.stride[3];
      const auto load_bias = [&](auto type) { return element<decltype(type)>(x, at); };
      bias_[to + c] = x.data == nullptr ? 0.f : as_type(a_.bias_n_f32, load_bias);
      if (kScaled) scale_[to + c] = scaled_ ? scale(a_.scale_b, b, j + c) : 1.f;
    }
  }

  static FALCHION_INLINE Floats load_sums(const float* sums) {
    return kExactSums<T> ? hn::ConvertTo(kFloats, to_int(load(sums))) : load(sums);
  }
  /// out = factor s_b sums + beta C + bias. column: the place of the first one's bias and scale.
  void affine(const Part& part, const float* sums, std::int64_t column, float factor, float of_row, float* out) {
    const bool has_c = a_.c.data != nullptr;  // never with swiglu, which uses other_ itself
    if (has_c) load_part(a_.c, a_.c_f32, part);
    const Floats alpha = splat(factor), beta = splat(a_.beta), row = splat(of_row);
    for (std::int64_t c = 0; c < part.count; c += kLanes) {
      Floats x = load_sums(sums + c);
      if (kScaled) x = hn::Mul(x, load(scale_ + column + c));
      Floats z = hn::MulAdd(alpha, x, hn::Add(load(bias_ + column + c), row));
      if (has_c) z = hn::MulAdd(beta, load(other_ + c), z);
      store(z, out + c);
    }
  }
  /// z_ = f(z_, other_).
  template <class F>
  FALCHION_INLINE void each(std::int64_t count, const F& f) {
    for (std::int64_t c = 0; c < count; c += kLanes) store(f(load(z_ + c), load(other_ + c)), z_ + c);
  }
  void activate(std::int64_t count) {
    switch (a_.activation) {
      case GemmActivation::relu: return each(count, [](Floats x, Floats) { return relu(x); });
      case GemmActivation::gelu_tanh: return each(count, [](Floats x, Floats) { return gelu_tanh(x); });
      case GemmActivation::gelu_erf: return each(count, [](Floats x, Floats) { return gelu_erf(x); });
      case GemmActivation::silu: return each(count, [](Floats x, Floats) { return silu(x); });
      default: return;
    }
  }

  const GemmArgs& a_;
  const bool swiglu_;
  const std::int64_t padded_;  // columns
  const bool scaled_;          // whether rows and columns have scales; those of blocks are in the sums
  float *bias_, *scale_;       // of the item's columns, and with swiglu of those of "up" behind them
  alignas(64) float z_[kChunk];
  alignas(64) float other_[kChunk] = {};
};

}  // namespace falchion::cpu::FALCHION_LEVEL
