// src/sm90/attention_backward/maps.cuh: the tensor maps by which Hopper's backward kernels load their operands.
#pragma once

#include "args/gpu_attention_backward_args.hpp"
#include "gpu/blocks/sm90_tma.cuh"

namespace falchion::sm90 {

using namespace gpu;

struct BackwardMaps {
  CUtensorMap q, k, v, grad_o;
};

/// A box has 64 columns of `rows` rows of q and grad_o, or of `keys` rows of k and v. Packed sequences lie in one batch
/// entry. A launched kernel has keys or rows, so k or q has an address; the map of an empty tensor gets that one.
template <class Element>
cudaError_t make_backward_maps(const AttentionBackwardArgs& a, int rows, int keys, BackwardMaps* maps) {
  constexpr int kBox = 64;
  const std::int64_t b = a.packed ? 1 : a.b;
  const std::int64_t s_q = a.packed ? a.total_q : a.s_q;
  const std::int64_t s_k = a.packed ? a.total_k : a.s_k;
  const TensorBox q{b, s_q, a.h_q, a.d_qk, kBox, 1, rows};
  const TensorBox k{b, s_k, a.h_k, a.d_qk, kBox, 1, keys};
  TensorBox v = k, grad_o = q;
  v.d = grad_o.d = a.d_v;
  void* there = a.k.data != nullptr ? a.k.data : a.q.data;
  cudaError_t error = make_tensor_map<Element>(&maps->q, a.q, q, there);
  if (error == cudaSuccess) error = make_tensor_map<Element>(&maps->k, a.k, k, there);
  if (error == cudaSuccess) error = make_tensor_map<Element>(&maps->v, a.v, v, there);
  if (error == cudaSuccess) error = make_tensor_map<Element>(&maps->grad_o, a.grad_o, grad_o, there);
  return error;
}

}  // namespace falchion::sm90
