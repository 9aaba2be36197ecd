// tools/verify/kind.cpp: finds the entry (StormKind) for a problem's kind.
#include "kind.hpp"

namespace falchion::tools::storm {

const StormKind& storm_kind(const Problem& problem) {
  switch (problem.kind()) {
    case Kind::attention: return problem.pass() == Pass::forward ? kAttentionKind : kAttentionBackwardKind;
    case Kind::linear: return kLinearKind;
    case Kind::gemm: return kGemmKind;
    case Kind::norm: return problem.pass() == Pass::forward ? kNormKind : kNormBackwardKind;
    case Kind::quantise: break;
  }
  return kQuantiseKind;
}

std::unique_ptr<Subject> make_subject(const Problem& problem) { return storm_kind(problem).make_subject(problem); }

}  // namespace falchion::tools::storm
