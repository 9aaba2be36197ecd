// tests/support/gemm.hpp: a case of gemm_cases.def with its memory, and what its results are compared with.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "falchion/falchion.hpp"
#include "judge/gemm.hpp"
#include "support/paths.hpp"
#include "support/tensor.hpp"

namespace falchion::testing {

inline constexpr const char* kGemm = "gemm";

/// One line of gemm_cases.def: CASE(name, batch, m, n, k, .feature().feature()).
struct GemmCase {
  const char* name;
  std::int64_t batch, m, n, k;
  Gemm terms{};  // alpha, beta, the activation, the flags and the scaling; dtype_d is f32 with d_f32()
  std::int64_t k2_ = 1, n2_ = 1;
  bool shared_b_ = false, in_place_ = false, biases_f32_ = false;
  Layout layout_ = Layout::dense, layout_b_ = Layout::dense;

  GemmCase alpha(float x) && {
    return with([=](GemmCase& c) { c.terms.alpha = x; });
  }
  GemmCase beta(float x) && {
    return with([=](GemmCase& c) { c.terms.beta = x; });
  }
  GemmCase activation(Activation x) && {
    return with([=](GemmCase& c) { c.terms.activation = x; });
  }
  GemmCase bias_n() && {
    return with([](GemmCase& c) { c.terms.bias_n = true; });
  }
  GemmCase biases() && {
    return with([](GemmCase& c) { c.terms.bias_n = c.terms.bias_m = true; });
  }
  GemmCase biases_f32() && {
    return with([](GemmCase& c) { c.biases_f32_ = true; });
  }
  GemmCase residual() && {
    return with([](GemmCase& c) { c.terms.residual = true; });
  }
  GemmCase d_f32() && {
    return with([](GemmCase& c) { c.terms.dtype_d = DType::f32; });
  }
  GemmCase d_i32() && {
    return with([](GemmCase& c) { c.terms.dtype_d = DType::i32; });
  }
  GemmCase d_f16() && {
    return with([](GemmCase& c) { c.terms.dtype_d = DType::f16; });
  }
  GemmCase scaling(Scaling x) && {
    return with([=](GemmCase& c) { c.terms.scaling = x; });
  }
  GemmCase k2(std::int64_t x) && {
    return with([=](GemmCase& c) { c.k2_ = x; });
  }
  GemmCase n2(std::int64_t x) && {
    return with([=](GemmCase& c) { c.n2_ = x; });
  }
  GemmCase shared_b() && {
    return with([](GemmCase& c) { c.shared_b_ = true; });
  }
  GemmCase in_place() && {
    return with([](GemmCase& c) { c.in_place_ = true; });
  }
  GemmCase layout(Layout x) && {
    return with([=](GemmCase& c) { c.layout_ = c.layout_b_ = x; });
  }
  GemmCase layout_b(Layout x) && {
    return with([=](GemmCase& c) { c.layout_b_ = x; });
  }

 private:
  template <class Change>
  GemmCase with(const Change& change) {
    change(*this);
    return std::move(*this);
  }
};

/// Every case of gemm_cases.def.
const std::vector<GemmCase>& gemm_cases();

/// Inputs are random, and whatever lies between rows is poison. d is poison, unless it is the memory of c or residual.
struct GemmInstance {
  Gemm problem;
  HostTensor a, b, c, d, residual, bias_n, bias_m, scale_a, scale_b;
  bool in_place = false;

  GemmOperands operands() const;
};
/// With an 8-bit type d is bf16 where the case does not name its type.
GemmInstance make_gemm_instance(const GemmCase& row, DType dtype, std::uint64_t seed = 1);

/// Plans and runs on one path; on a GPU on copies of the whole allocations.
Status run(const Target& target, const GemmInstance& x);
Status run(const Plan& plan, const GemmInstance& x);

/// Why a run of the instance's plan on the host refuses its operands once they are changed; "" if it does not.
std::string why_refused(const GemmInstance& x, const std::function<void(GemmOperands*)>& change);

/// What sums of e4m3 are on that path.
judge::Sums sums_on(const Path& path);

/// Checks that the elements of d were written and no others, and that they are right by the rule of src/judge. `fresh`
/// is the same instance before the run: where d is the memory of an input, that input is read there.
::testing::AssertionResult matches(const GemmInstance& x, const GemmInstance& fresh,
                                   judge::Sums sums = judge::Sums::f32);
/// The same with a reference that was made of the fresh instance.
::testing::AssertionResult matches(const GemmInstance& x, const judge::GemmReference& reference,
                                   judge::Sums sums = judge::Sums::f32);

}  // namespace falchion::testing
