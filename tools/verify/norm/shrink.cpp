// tools/verify/norm/shrink.cpp: what may be simpler in a norm.
#include "verify/shrink_steps.hpp"

namespace falchion::tools::storm {

void simplify_norm(const Problem& from, Steps* steps) {
  for (bool Norm::*which : {&Norm::mean, &Norm::rstd, &Norm::residual_out, &Norm::residual, &Norm::bias,
                            &Norm::zero_centered, &Norm::weight})
    offer(from, steps, [&](Problem& p) { p.norm.*which = false; });
  offer(from, steps, [](Problem& p) { p.norm.kind = NormKind::layer; });
  offer(from, steps, [](Problem& p) { p.norm.eps = 1e-5F; });
  offer(from, steps, [](Problem& p) { p.norm.dtype_y = DType::as_q; });
  offer(from, steps, [](Problem& p) { p.norm.dtype_residual = DType::as_q; });
  offer(from, steps, [](Problem& p) { p.weight_dtype = p.bias_dtype = DType::f32; });
  offer(from, steps, [](Problem& p) { p.weight = p.bias = {7}; });
  offer(from, steps, [](Problem& p) { p.in_place = false; });
  offer(from, steps, [](Problem& p) { p.s = 1; });
  offer(from, steps, [](Problem& p) { p.h = 1; });
  smaller(from, steps, 0, [](Problem& p) -> std::int64_t& { return p.norm.rows; });
  smaller(from, steps, 0, [](Problem& p) -> std::int64_t& { return p.norm.d; });
}

}  // namespace falchion::tools::storm
