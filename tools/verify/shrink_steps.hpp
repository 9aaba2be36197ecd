// tools/verify/shrink_steps.hpp: how a step that simplifies a failing problem is offered to shrink().
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "problem.hpp"

namespace falchion::tools::storm {

using Steps = std::vector<Problem>;

/// Adds the problem after `change` to the candidates, if it differs.
template <class Change>
void offer(const Problem& from, Steps* steps, const Change& change) {
  Problem next = from;
  change(next);
  tidy(&next);
  if (!(next == from)) steps->push_back(std::move(next));
}

/// Numbers to try on the way to `least`: `least` itself, halfway there, and one less.
template <class Get>
void smaller(const Problem& from, Steps* steps, std::int64_t least, const Get& get) {
  const std::int64_t now = get(const_cast<Problem&>(from));
  for (const std::int64_t next : {least, least + (now - least) / 2, now - 1})
    if (next >= least && next < now) offer(from, steps, [&](Problem& p) { get(p) = next; });
}

void simplify_attention(const Problem& from, Steps* steps);
void simplify_attention_backward(const Problem& from, Steps* steps);
void simplify_linear(const Problem& from, Steps* steps);
void simplify_gemm(const Problem& from, Steps* steps);
void simplify_norm(const Problem& from, Steps* steps);
void simplify_norm_backward(const Problem& from, Steps* steps);
void simplify_quantise(const Problem& from, Steps* steps);

}  // namespace falchion::tools::storm
