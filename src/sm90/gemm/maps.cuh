// src/sm90/gemm/maps.cuh: the tensor maps of the operands of a GEMM on Hopper.
#pragma once

#include "args/gpu_gemm_args.hpp"
#include "gpu/blocks/sm90_tma.cuh"

namespace falchion::sm90 {

/// The map of an operand of the product, for boxes of `lines` rows.
template <class Element>
cudaError_t make_operand_map(CUtensorMap* map, const View& x, gpu::Major major, int lines, std::int64_t batch,
                             std::int64_t rows, const gpu::GemmArgs& a) {
  constexpr int kBox = 128 / static_cast<int>(sizeof(Element));
  const std::int64_t entries = x.stride[0] != 0 ? batch : 1;
  if (major == gpu::Major::k)
    return make_tensor_map<Element>(map, x, TensorBox{entries, rows, a.k / a.k1, a.k1, kBox, 1, lines}, nullptr);
  const View turned{x.data, {x.stride[0], x.stride[2], x.stride[3], 1}};  // (batch, k2, k1, rows)
  return make_tensor_map<Element>(map, turned, TensorBox{entries, a.k / a.k1, a.k1, rows, 64, 64, 1}, nullptr);
}

/// The map of D, C or the residual, for boxes of 128 bytes of so many rows. Nothing where there is none.
template <class Element>
cudaError_t make_map_of_d(CUtensorMap* map, const View& x, int lines, const gpu::GemmArgs& a) {
  if (x.data == nullptr) return cudaSuccess;
  constexpr int kBox = 128 / static_cast<int>(sizeof(Element));
  const std::int64_t entries = x.stride[0] != 0 ? a.batch : 1;
  return make_tensor_map<Element>(map, x, TensorBox{entries, a.m, a.n / a.n1, a.n1, kBox, 1, lines}, nullptr);
}

}  // namespace falchion::sm90
