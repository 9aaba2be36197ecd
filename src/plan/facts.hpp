// src/plan/facts.hpp: what each GPU variant of variants.def needs, known without its code: the same tiles that its
// config reads. src/variant_gpu.in asserts of each variant that is built that its code has these facts.
#pragma once

#include <cstddef>
#include <string_view>

#include "args/gpu_attention_args.hpp"
#include "args/gpu_linear_attention_args.hpp"
#include "falchion/falchion.hpp"
#include "sm80/attention_tiles.hpp"
#include "sm80/linear_attention_tiles.hpp"
#include "sm80/linear_attention_workspace.hpp"
#include "sm90/attention_tiles.hpp"
#include "sm90/linear_attention_tiles.hpp"
#include "sm90/linear_attention_workspace.hpp"

namespace falchion {

constexpr gpu::AttentionFacts attention_forward_facts(Backend backend, std::string_view level, DType dtype, int d) {
  if (backend == Backend::sm90) {
    using sm90::Level;
    return sm90::attention_forward_facts(level == "brief"   ? Level::brief
                                         : level == "mla"   ? Level::mla
                                         : level == "score" ? Level::score
                                                            : Level::plain,
                                         d);
  }
  using sm80::Level;
  return sm80::attention_forward_facts(dtype == DType::f32  ? Level::f32
                                       : level == "few"     ? Level::few
                                       : level == "general" ? Level::general
                                                            : Level::plain,
                                       d);
}

/// Nothing is rounded to 16 bits between two products: the level exact, and f32 on sm80.
constexpr bool is_exact(std::string_view level, DType dtype) { return level == "exact" || dtype == DType::f32; }

/// sweeps: 1 forward, 3 backward.
constexpr gpu::LinearAttentionFacts linear_facts(Backend backend, std::string_view level, DType dtype, int d,
                                                 int sweeps) {
  if (backend == Backend::sm90)
    return dtype == DType::f32 ? sm90::linear_halves_facts(d, sweeps) : sm90::linear_attention_facts(d, sweeps);
  if (is_exact(level, dtype)) return sm80::linear_exact_facts(level != "plain", d, sweeps);
  return sm80::linear_attention_facts(d, sweeps);
}
constexpr gpu::LinearAttentionFacts linear_attention_forward_facts(Backend backend, std::string_view level, DType dtype,
                                                                   int d) {
  return linear_facts(backend, level, dtype, d, 1);
}
constexpr gpu::LinearAttentionFacts linear_attention_backward_facts(Backend backend, std::string_view level,
                                                                    DType dtype, int d) {
  return linear_facts(backend, level, dtype, d, 3);
}

/// How a variant of linear attention counts the bytes that it wants of the workspace.
using LinearWorkspace = std::size_t (*)(const gpu::LinearAttentionArgs&);
template <bool kBackward>
constexpr LinearWorkspace linear_workspace_of(Backend backend, std::string_view level, DType dtype, int d) {
  if (backend == Backend::sm90)
    return d <= 64 ? sm90::linear_workspace<64, kBackward> : sm90::linear_workspace<128, kBackward>;
  return is_exact(level, dtype) ? sm80::linear_exact_workspace<kBackward> : sm80::linear_workspace<kBackward>;
}

}  // namespace falchion
