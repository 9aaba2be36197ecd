// tools/verify/gemm/shrink.cpp: what may be simpler in a GEMM.
#include <algorithm>

#include "verify/shrink_steps.hpp"

namespace falchion::tools::storm {

void simplify_gemm(const Problem& from, Steps* steps) {
  for (bool Gemm::*which : {&Gemm::bias_n, &Gemm::bias_m, &Gemm::residual})
    offer(from, steps, [&](Problem& p) { p.gemm.*which = false; });
  offer(from, steps, [](Problem& p) { p.gemm.activation = Activation::none; });
  offer(from, steps, [](Problem& p) { p.gemm.beta = 0; });
  offer(from, steps, [](Problem& p) { p.gemm.scaling = Scaling::none; });
  for (const Scaling simpler : {Scaling::tensor, Scaling::row_col})
    offer(from, steps, [&](Problem& p) { p.gemm.scaling = std::min(p.gemm.scaling, simpler); });
  offer(from, steps, [](Problem& p) { p.gemm.alpha = 1; });
  offer(from, steps, [](Problem& p) { p.gemm.dtype_c = DType::as_q; });
  offer(from, steps, [](Problem& p) { p.gemm.dtype_d = DType::as_q; });
  offer(from, steps, [](Problem& p) { p.bias_dtype = DType::f32; });
  offer(from, steps, [](Problem& p) { p.in_place = false; });
  offer(from, steps, [](Problem& p) { p.shared_b = false; });
  offer(from, steps, [](Problem& p) { p.k2 = 1; });
  offer(from, steps, [](Problem& p) { p.n2 = 1; });
  smaller(from, steps, 1, [](Problem& p) -> std::int64_t& { return p.gemm.batch; });
  smaller(from, steps, 0, [](Problem& p) -> std::int64_t& { return p.gemm.m; });
  smaller(from, steps, 0, [](Problem& p) -> std::int64_t& { return p.gemm.n; });
  smaller(from, steps, 0, [](Problem& p) -> std::int64_t& { return p.gemm.k; });
}

}  // namespace falchion::tools::storm
