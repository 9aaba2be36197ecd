// src/plan/facts.hpp: what the variants of each operation have, known without their code: the types of their kernels,
// and what each GPU variant needs, from the same tiles that its config reads. src/variant_gpu.in asserts of each
// variant that is built that its code has these facts.
#pragma once

#include <string_view>

#include "args/cpu_attention_args.hpp"
#include "args/cpu_attention_backward_args.hpp"
#include "args/cpu_gemm_args.hpp"
#include "args/cpu_linear_attention_args.hpp"
#include "args/cpu_norm_args.hpp"
#include "args/gpu_attention_args.hpp"
#include "args/gpu_attention_backward_args.hpp"
#include "args/gpu_gemm_args.hpp"
#include "args/gpu_linear_attention_args.hpp"
#include "args/gpu_norm_args.hpp"
#include "falchion/falchion.hpp"
#include "gpu/attention_backward/workspace.hpp"
#include "sm80/attention_backward/tiles.hpp"
#include "sm80/attention_forward/tiles.hpp"
#include "sm80/gemm/tiles.hpp"
#include "sm80/linear_attention/tiles.hpp"
#include "sm80/linear_attention/workspace.hpp"
#include "sm80/norm/tiles.hpp"
#include "sm90/attention_backward/tiles.hpp"
#include "sm90/attention_backward/wide/tiles.hpp"
#include "sm90/attention_forward/tiles.hpp"
#include "sm90/gemm/few/tiles.hpp"
#include "sm90/gemm/tiles.hpp"
#include "sm90/linear_attention/tiles.hpp"
#include "sm90/linear_attention/workspace.hpp"

// One struct for each operation, under its name in variants.def.
namespace falchion::variants_of {

struct attention_forward {
  using CpuKernel = cpu::AttentionKernel;
  using GpuKernel = gpu::AttentionKernel;

  static constexpr gpu::AttentionFacts facts(Backend backend, std::string_view kind, DType dtype, int d) {
    return backend == Backend::sm90 ? sm90::attention_forward_facts(sm90_kind(kind), d)
                                    : sm80::attention_forward_facts(sm80_kind(kind, dtype), d);
  }

 private:
  static constexpr sm90::Kind sm90_kind(std::string_view kind) {
    if (kind == "brief") return sm90::Kind::brief;
    if (kind == "mla") return sm90::Kind::mla;
    if (kind == "score") return sm90::Kind::score;
    if (kind == "halves") return sm90::Kind::halves;
    return sm90::Kind::plain;
  }
  static constexpr sm80::Kind sm80_kind(std::string_view kind, DType dtype) {
    if (dtype == DType::f32) return sm80::Kind::f32;
    if (kind == "few") return sm80::Kind::few;
    if (kind == "general") return sm80::Kind::general;
    return sm80::Kind::plain;
  }
};

struct attention_backward {
  using CpuKernel = cpu::AttentionBackwardKernel;
  using GpuKernel = gpu::AttentionBackwardKernel;

  static constexpr gpu::BackwardVariantFacts facts(Backend backend, std::string_view kind, DType dtype, int d) {
    if (kind == "wide") return {sm90::attention_backward_wide_facts(d), of_statistics};
    constexpr auto kSums = [](int d) { return d <= 64 ? with_sums<64> : with_sums<128>; };
    if (backend == Backend::sm90) return {sm90::attention_backward_facts(d), kSums(d)};
    if (kind == "once") return {sm80::attention_backward_facts(sm80::BackwardKind::once, d), kSums(d)};
    return {sm80::attention_backward_facts(
                dtype == DType::f32 ? sm80::BackwardKind::bits32 : sm80::BackwardKind::bits16, d),
            of_slopes};
  }

 private:
  static std::size_t of_statistics(const gpu::AttentionBackwardArgs& a) {
    return gpu::BackwardLayout::of(a).statistics_bytes(a);
  }
  static std::size_t of_slopes(const gpu::AttentionBackwardArgs& a) {
    const gpu::BackwardLayout layout = gpu::BackwardLayout::of(a);
    return layout.statistics_bytes(a) + layout.slope_sums_bytes(a);
  }
  template <int d>
  static std::size_t with_sums(const gpu::AttentionBackwardArgs& a) {
    const gpu::BackwardLayout layout = gpu::BackwardLayout::of(a);
    return layout.statistics_bytes(a) + layout.grad_q_sums_bytes(a, d) + layout.turns_bytes(a);
  }
};

template <Pass pass>
struct linear_attention {
  using CpuKernel = cpu::LinearAttentionKernel;
  using GpuKernel = gpu::LinearAttentionKernel;

  static constexpr gpu::LinearVariantFacts facts(Backend backend, std::string_view kind, DType dtype, int d) {
    return {needs(backend, kind, dtype, d), workspace(backend, kind, dtype, d)};
  }

 private:
  static constexpr bool kBackward = pass == Pass::backward;

  /// Nothing is rounded to 16 bits between two products: the kind exact, and f32 on sm80.
  static constexpr bool is_exact(std::string_view kind, DType dtype) { return kind == "exact" || dtype == DType::f32; }

  static constexpr gpu::LinearAttentionFacts needs(Backend backend, std::string_view kind, DType dtype, int d) {
    constexpr int kSweeps = kBackward ? 3 : 1;
    if (backend == Backend::sm90) {
      return dtype == DType::f32 ? sm90::linear_halves_facts(d, kSweeps) : sm90::linear_attention_facts(d, kSweeps);
    }
    if (is_exact(kind, dtype)) return sm80::linear_exact_facts(kind != "plain", d, kSweeps);
    return sm80::linear_attention_facts(d, kSweeps);
  }

  static constexpr auto workspace(Backend backend, std::string_view kind, DType dtype, int d)
      -> decltype(gpu::LinearVariantFacts::workspace) {
    if (backend == Backend::sm90) {
      return d <= 64 ? sm90::linear_workspace<64, kBackward> : sm90::linear_workspace<128, kBackward>;
    }
    return is_exact(kind, dtype) ? sm80::linear_exact_workspace<kBackward> : sm80::linear_workspace<kBackward>;
  }
};
struct linear_attention_forward : linear_attention<Pass::forward> {};
struct linear_attention_backward : linear_attention<Pass::backward> {};

struct gemm {
  using CpuKernel = cpu::GemmKernel;
  using GpuKernel = gpu::GemmKernel;

  static constexpr gpu::GemmFacts facts(Backend backend, std::string_view kind, DType dtype, int) {
    if (backend == Backend::sm80) return sm80::gemm_facts(sm80_kind(kind, dtype));
    return kind == "few" ? sm90::gemm_few_facts() : sm90::gemm_facts(sm90_kind(kind, dtype));
  }

 private:
  static constexpr sm90::GemmKind sm90_kind(std::string_view kind, DType dtype) {
    if (kind == "bytes") return dtype == DType::i8 ? sm90::GemmKind::i8 : sm90::GemmKind::e4m3;
    if (kind == "slim") return sm90::GemmKind::slim;
    if (kind == "narrow") return sm90::GemmKind::narrow;
    return kind == "medium" ? sm90::GemmKind::medium : sm90::GemmKind::wide;
  }
  static constexpr sm80::GemmKind sm80_kind(std::string_view kind, DType dtype) {
    if (dtype == DType::e4m3) return sm80::GemmKind::e4m3;
    if (dtype == DType::i8) return sm80::GemmKind::i8;
    if (dtype != DType::f32) return sm80::GemmKind::bits16;
    return kind == "few" ? sm80::GemmKind::few32 : sm80::GemmKind::bits32;
  }
};

struct norm {
  using CpuKernel = cpu::NormKernel;
  using GpuKernel = gpu::NormKernel;

  static constexpr gpu::NormFacts facts(Backend, std::string_view, DType, int) { return sm80::norm_facts(); }
};

}  // namespace falchion::variants_of
