// src/plan/facts.hpp: the types of each operation's kernels, and the facts of its GPU variants, from src/tiles.
#pragma once

#include "args/cpu_attention_args.hpp"
#include "args/cpu_attention_backward_args.hpp"
#include "args/cpu_gemm_args.hpp"
#include "args/cpu_linear_attention_args.hpp"
#include "args/cpu_norm_args.hpp"
#include "args/cpu_norm_backward_args.hpp"
#include "args/gpu_attention_args.hpp"
#include "args/gpu_attention_backward_args.hpp"
#include "args/gpu_gemm_args.hpp"
#include "args/gpu_linear_attention_args.hpp"
#include "args/gpu_norm_args.hpp"
#include "args/gpu_norm_backward_args.hpp"
#include "args/gpu_quantise_args.hpp"
#include "tiles/attention_backward/facts.hpp"
#include "tiles/attention_forward/facts.hpp"
#include "tiles/gemm/facts.hpp"
#include "tiles/linear_attention/facts.hpp"
#include "tiles/norm/facts.hpp"
#include "tiles/norm_backward/facts.hpp"
#include "tiles/quantise/facts.hpp"

// One struct for each operation, under its name in variants.def.
namespace falchion::variants_of {

template <class Facts, class Cpu, class Gpu>
struct Types : Facts {
  using CpuKernel = Cpu;
  using GpuKernel = Gpu;
};

using attention_forward = Types<facts_of::attention_forward, cpu::AttentionKernel, gpu::AttentionKernel>;
using attention_backward =
    Types<facts_of::attention_backward, cpu::AttentionBackwardKernel, gpu::AttentionBackwardKernel>;
using linear_attention_forward =
    Types<facts_of::linear_attention_forward, cpu::LinearAttentionKernel, gpu::LinearAttentionKernel>;
using linear_attention_backward =
    Types<facts_of::linear_attention_backward, cpu::LinearAttentionKernel, gpu::LinearAttentionKernel>;
using gemm = Types<facts_of::gemm, cpu::GemmKernel, gpu::GemmKernel>;
using norm = Types<facts_of::norm, cpu::NormKernel, gpu::NormKernel>;
using norm_backward = Types<facts_of::norm_backward, cpu::NormBackwardKernel, gpu::NormBackwardKernel>;
using quantise = Types<facts_of::quantise, void, gpu::QuantiseKernel>;

}  // namespace falchion::variants_of
