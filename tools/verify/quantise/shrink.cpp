// tools/verify/quantise/shrink.cpp: what may be simpler in a problem of Quantise.
#include "verify/shrink_steps.hpp"

namespace falchion::tools::storm {

void simplify_quantise(const Problem& from, Steps* steps) {
  for (bool Quantise::*which :
       {&Quantise::rotate, &Quantise::smooth, &Quantise::mean_given, &Quantise::powers_of_two, &Quantise::scale_given})
    offer(from, steps, [&](Problem& p) { p.quantise.*which = false; });
  offer(from, steps, [](Problem& p) { p.quantise.dtype_y = DType::e4m3; });
  offer(from, steps, [](Problem& p) { p.quantise.rows = 1; });
  offer(from, steps, [](Problem& p) { p.k_scale = {}; });
  smaller(from, steps, 0, [](Problem& p) -> std::int64_t& { return p.quantise.s; });
  smaller(from, steps, 0, [](Problem& p) -> std::int64_t& { return p.quantise.h; });
  smaller(from, steps, 1, [](Problem& p) -> std::int64_t& { return p.quantise.d; });
}

}  // namespace falchion::tools::storm
