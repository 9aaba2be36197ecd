// tools/verify/norm/subject.cpp: makes a norm's operands and their numbers, and judges its outputs.
#include <array>

#include "judge/norm.hpp"
#include "plan/norm.hpp"
#include "verify/operand_subject.hpp"

namespace falchion::tools::storm {
namespace {

using O = NormOperands;

class NormSubject : public OperandSubject<O> {
 public:
  explicit NormSubject(const Problem& problem) : OperandSubject(problem), n_(problem.norm) {
    lay_out();
    make_image([this](const std::string& name, std::uint64_t stream, Contents* x) { fill(name, stream, x); });
  }

 private:
  void lay_out();
  void fill(const std::string& name, std::uint64_t stream, Contents* x) const;
  std::string check(const O& got, bool tensor_cores) override;

  const Norm n_;
  std::unique_ptr<falchion::judge::NormReference> reference_;
};

void NormSubject::lay_out() {
  const Contents::Shape all{n_.rows / p_.s / p_.h, p_.s, p_.h, n_.d}, rows{all[0], all[1], all[2], 1};
  const auto shared = [&](const Broadcast& x) {
    Contents::Shape out = all;
    for (std::size_t axis = 0; axis < 3; ++axis)
      if ((x.one >> axis & 1) != 0) out[axis] = 1;
    return out;
  };
  const bool x_is_y = p_.in_place && dtype_of_y(n_) == n_.dtype;
  const bool residual_is_sum = p_.in_place && n_.residual_out;
  const Image::Place y = add_output("y", &O::y, dtype_of_y(n_), all, x_is_y);
  if (x_is_y) add_input_at("x", &O::x, y);
  if (!x_is_y) add_input("x", &O::x, n_.dtype, all);
  if (n_.residual_out) {
    const Image::Place sum = add_output("residual_out", &O::residual_out, dtype_of_residual(n_), all, residual_is_sum);
    if (residual_is_sum) add_input_at("residual", &O::residual, sum);
  }
  if (n_.residual && !residual_is_sum) add_input("residual", &O::residual, dtype_of_residual(n_), all);
  if (n_.weight) add_input("weight", &O::weight, p_.weight_dtype, shared(p_.weight));
  if (n_.bias) add_input("bias", &O::bias, p_.bias_dtype, shared(p_.bias));
  if (n_.mean) add_output("mean", &O::mean, DType::f32, rows);
  if (n_.rstd) add_output("rstd", &O::rstd, DType::f32, rows);
}

/// Neighbouring rows get different factors.
void multiply_rows(const std::array<float, 5>& factors, Contents* x) {
  x->change([&](auto b, auto s, auto h, auto, float value) {
    return value * factors[static_cast<std::size_t>(b + s + h) % factors.size()];
  });
}

void NormSubject::fill(const std::string& name, std::uint64_t stream, Contents* x) const {
  x->fill_normal(stream, name == "x" ? p_.data.q : 1);
  if (name == "x" && p_.data.shape == "constant")
    x->change([&](auto b, auto s, auto h, auto, float) { return x->get(b, s, h, 0); });
  if (name == "x" && p_.data.shape == "shifted")
    x->change([](auto b, auto, auto, auto, float value) { return value + 1000.F * static_cast<float>(1 - b % 3); });
  if (name != "x" && name != "residual") return;
  const bool half = (name == "x" ? n_.dtype : dtype_of_residual(n_)) == DType::f16;  // it holds no huge number
  if (p_.data.shape == "tiny") multiply_rows({1e-21F, 1e-30F, 1, 1e-41F, 1e-17F}, x);
  if (p_.data.shape == "huge" && !half) multiply_rows({1e19F, 1e28F, 1, 1e36F, 1e17F}, x);
}

std::string NormSubject::check(const O& got, bool) {
  if (!reference_) reference_ = std::make_unique<falchion::judge::NormReference>(n_, reference_operands());
  return reference_->check(got);
}

}  // namespace

std::unique_ptr<Subject> make_norm_subject(const Problem& problem) { return std::make_unique<NormSubject>(problem); }

}  // namespace falchion::tools::storm
