// src/gpu/blocks/epilogue.cuh: the epilogue of a GEMM on a GPU: D = activation(alpha s_a s_b sums + beta C + bias) + R,
// for four neighbouring columns of a row at a time. All threads take the same branches, so these are taken at run time
// and need no variants.
#pragma once

#include <cuda_runtime.h>
#include <cutlass/bfloat16.h>
#include <cutlass/half.h>

#include <cstdint>
#include <type_traits>

#include "args/gpu_gemm_args.hpp"
#include "base/host_device.hpp"
#include "gpu/blocks/activation.cuh"

namespace falchion {

/// Element: the type of A. The sums of i8 are i32, passed as floats with the same bits.
template <class Element>
class Epilogue {
  static constexpr bool kScaled = sizeof(Element) == 1;  // whether there may be scales
  static constexpr bool kExact = std::is_same_v<Element, std::int8_t>;

 public:
  static constexpr int kColumns = 4;
  using Four = float[kColumns];

  FALCHION_DEVICE explicit Epilogue(const gpu::GemmArgs& a) : a_(a) {}

  /// Turns the sums of columns [j, j + 4) of row i, of entry b of the batch, into D and stores them; columns past n are
  /// not touched. up: with swiglu, the sums of row n + j of B and so on; else unused.
  FALCHION_DEVICE void run(std::int64_t b, std::int64_t i, std::int64_t j, Four& z, Four& up) const {
    if constexpr (kExact) {
      if (a_.d_i32) return store<float>({b, i, j}, z);  // the bits as they are
    }
    const float of_row = a_.bias_m.data != nullptr
                             ? element(a_.bias_m, a_.bias_m_f32, b * a_.bias_m.stride[0] + i * a_.bias_m.stride[1])
                             : 0.f;
    // s_a s_b alone may overflow f32 where the result does not, so sums are multiplied by s_b, and then by alpha s_a.
    const float factor = kScaled && a_.scale_a.data != nullptr ? a_.alpha * scale(a_.scale_a, b, i) : a_.alpha;
    affine(z, b, j, factor, of_row);
    if (a_.c.data != nullptr) {
      Four c;
      load(a_.c, a_.c_f32, a_.c_whole, {b, i, j}, c);
      each([&](int e) { z[e] = fmaf(a_.beta, c[e], z[e]); });
    }
    activate(a_.activation, z);
    if (a_.activation == GemmActivation::swiglu) {
      affine(up, b, a_.n + j, factor, of_row);
      each([&](int e) { z[e] *= up[e]; });
    }
    if (a_.residual.data != nullptr) {
      Four r;
      load(a_.residual, a_.d_f32, a_.residual_whole, {b, i, j}, r);
      each([&](int e) { z[e] += r[e]; });
    }
    as_type(a_.d_f32, [&](auto type) { store<decltype(type)>({b, i, j}, z); });
  }

 private:
  struct Place {
    std::int64_t b, i, j;
  };
  template <class T>
  struct alignas(kColumns * sizeof(T)) Whole {
    T x[kColumns];
  };

  template <class F>
  static FALCHION_DEVICE void each(F f) {
#pragma unroll
    for (int e = 0; e < kColumns; ++e) f(e);
  }
  /// Calls f with a number of type float, or of Element.
  template <class F>
  FALCHION_DEVICE auto as_type(bool f32, F f) const {
    if (f32) return f(float{});
    if constexpr (kScaled)
      return a_.half_f16 ? f(cutlass::half_t{}) : f(cutlass::bfloat16_t{});
    else
      return f(Element{});
  }
  FALCHION_DEVICE float element(const View& x, bool f32, std::int64_t at) const {
    return as_type(f32, [&](auto type) { return static_cast<float>(static_cast<const decltype(type)*>(x.data)[at]); });
  }
  static FALCHION_DEVICE float scale(const View& x, std::int64_t b, std::int64_t row) {
    return static_cast<const float*>(x.data)[b * x.stride[0] + row * x.stride[1]];
  }
  /// The offset of element (b, i, j) of C, D or R. j is split into n2 and n1.
  FALCHION_DEVICE std::int64_t at(const View& x, const Place& p, int e) const {
    const std::int64_t row = p.b * x.stride[0] + p.i * x.stride[1], j = p.j + e;
    if (a_.n1 >= a_.n) return row + j * x.stride[3];
    const auto n1 = static_cast<std::uint32_t>(a_.n1), outer = static_cast<std::uint32_t>(j) / n1;
    return row + outer * x.stride[2] + (static_cast<std::uint32_t>(j) - outer * n1) * x.stride[3];
  }

  /// z = factor s_b z + bias.
  FALCHION_DEVICE void affine(Four& z, std::int64_t b, std::int64_t j, float factor, float of_row) const {
    const View& x = a_.bias_n;
    // Past n, j is a column of the other half or none: such sums are not stored, and nothing may be read for them.
    const std::int64_t end = j < a_.n ? a_.n : 2 * a_.n;
    each([&](int e) {
      const bool there = x.data != nullptr && j + e < end;
      const float bias = there ? element(x, a_.bias_n_f32, (j + e) * x.stride[3]) : 0.f;
      if constexpr (kExact) z[e] = static_cast<float>(__float_as_int(z[e]));
      if constexpr (kScaled) {
        if (a_.scale_b.data != nullptr && j + e < end) z[e] *= scale(a_.scale_b, b, j + e);
      }
      z[e] = fmaf(factor, z[e], bias + of_row);
    });
  }

  template <class T>
  FALCHION_DEVICE void load_as(const View& x, bool whole, const Place& p, Four& to) const {
    const T* from = static_cast<const T*>(x.data);
    if (whole) {
      const auto four = *reinterpret_cast<const Whole<T>*>(from + at(x, p, 0));
      each([&](int e) { to[e] = static_cast<float>(four.x[e]); });
    } else {
      each([&](int e) { to[e] = p.j + e < a_.n ? static_cast<float>(from[at(x, p, e)]) : 0.f; });
    }
  }
  FALCHION_DEVICE void load(const View& x, bool f32, bool whole, const Place& p, Four& to) const {
    as_type(f32, [&](auto type) { load_as<decltype(type)>(x, whole, p, to); });
  }
  template <class T>
  FALCHION_DEVICE void store(const Place& p, const Four& z) const {
    T* to = static_cast<T*>(a_.d.data);
    if (a_.d_whole) {
      Whole<T> four;
      each([&](int e) { four.x[e] = T(z[e]); });
      *reinterpret_cast<Whole<T>*>(to + at(a_.d, p, 0)) = four;
    } else {
      each([&](int e) {
        if (p.j + e < a_.n) to[at(a_.d, p, e)] = T(z[e]);
      });
    }
  }

  const gpu::GemmArgs& a_;
};

}  // namespace falchion
