// tools/verify/norm/numbers.cpp: see numbers.hpp.
#include "verify/norm/numbers.hpp"

#include <array>
#include <cstddef>

namespace falchion::tools::storm {
namespace {

/// Neighbouring rows get different factors.
void multiply_rows(const std::array<float, 5>& factors, Contents* x) {
  x->change([&](auto b, auto s, auto h, auto, float value) {
    return value * factors[static_cast<std::size_t>(b + s + h) % factors.size()];
  });
}

}  // namespace

void fill_norm(const Problem& p, const std::string& name, DType dtype, std::uint64_t stream, Contents* x) {
  x->fill_normal(stream, name == "x" ? p.data.q : 1);
  if (name == "x" && p.data.shape == "constant")
    x->change([&](auto b, auto s, auto h, auto, float) { return x->get(b, s, h, 0); });
  if (name == "x" && p.data.shape == "shifted")
    x->change([](auto b, auto, auto, auto, float value) { return value + 1000.F * static_cast<float>(1 - b % 3); });
  if (name != "x" && name != "residual") return;
  if (p.data.shape == "tiny") multiply_rows({1e-21F, 1e-30F, 1, 1e-41F, 1e-17F}, x);
  if (p.data.shape == "huge" && dtype != DType::f16) multiply_rows({1e19F, 1e28F, 1, 1e36F, 1e17F}, x);
}

Contents::Shape shared_extents(const Broadcast& ones, const Contents::Shape& all) {
  Contents::Shape out = all;
  for (std::size_t axis = 0; axis < 3; ++axis)
    if ((ones.one >> axis & 1) != 0) out[axis] = 1;
  return out;
}

}  // namespace falchion::tools::storm
