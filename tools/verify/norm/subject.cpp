// tools/verify/norm/subject.cpp: makes a norm's operands and their numbers, and judges its outputs.
#include "judge/norm.hpp"
#include "plan/norm.hpp"
#include "verify/norm/numbers.hpp"
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
  if (n_.weight) add_input("weight", &O::weight, p_.weight_dtype, shared_extents(p_.weight, all));
  if (n_.bias) add_input("bias", &O::bias, p_.bias_dtype, shared_extents(p_.bias, all));
  if (n_.mean) add_output("mean", &O::mean, DType::f32, rows);
  if (n_.rstd) add_output("rstd", &O::rstd, DType::f32, rows);
}

void NormSubject::fill(const std::string& name, std::uint64_t stream, Contents* x) const {
  fill_norm(p_, name, name == "x" ? n_.dtype : dtype_of_residual(n_), stream, x);
}

std::string NormSubject::check(const O& got, bool) {
  if (!reference_) reference_ = std::make_unique<falchion::judge::NormReference>(n_, reference_operands());
  return reference_->check(got);
}

}  // namespace

std::unique_ptr<Subject> make_norm_subject(const Problem& problem) { return std::make_unique<NormSubject>(problem); }

}  // namespace falchion::tools::storm
