// tools/verify/linear/shrink.cpp: what may be simpler in a problem of linear attention.
#include "verify/shrink_steps.hpp"

namespace falchion::tools::storm {

void simplify_linear(const Problem& from, Steps* steps) {
  using L = LinearAttention;
  for (bool L::*which : {&L::normalise, &L::reverse, &L::initial_state, &L::final_state})
    offer(from, steps, [&](Problem& p) { p.linear.*which = false; });
  if (from.linear.packed && from.linear.b > 0)
    offer(from, steps, [](Problem& p) {
      p.lengths_q.resize(1);
      p.linear.packed = false;
      p.linear.b = 1;
      p.linear.s = p.lengths_q[0];
    });
  offer(from, steps, [](Problem& p) { p.linear.decay = Decay::none; });
  offer(from, steps, [](Problem& p) { p.linear.feature_map = FeatureMap::identity; });
  offer(from, steps, [](Problem& p) { p.linear.scale = 0; });
  offer(from, steps, [](Problem& p) { p.in_place = false; });
  offer(from, steps, [](Problem& p) { p.segments = 0; });
  offer(from, steps, [](Problem& p) { p.linear.h_v = p.linear.h_qk; });
  if (from.linear.h_qk > 0) {
    const std::int64_t group = from.linear.h_v / from.linear.h_qk;
    for (const std::int64_t heads : {std::int64_t{1}, from.linear.h_qk / 2})
      if (heads > 0)
        offer(from, steps, [&](Problem& p) {
          p.linear.h_qk = heads;
          p.linear.h_v = heads * group;
        });
    if (group > 2) offer(from, steps, [&](Problem& p) { p.linear.h_v = p.linear.h_qk * (group / 2); });
  }
  smaller(from, steps, 0, [](Problem& p) -> std::int64_t& { return p.linear.s; });
  smaller(from, steps, 1, [](Problem& p) -> std::int64_t& { return p.linear.d_qk; });
  smaller(from, steps, 1, [](Problem& p) -> std::int64_t& { return p.linear.d_v; });
}

}  // namespace falchion::tools::storm
