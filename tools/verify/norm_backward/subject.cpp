// tools/verify/norm_backward/subject.cpp: makes the operands of the gradients of a norm and their numbers, and judges
// its outputs.
#include <array>

#include "judge/norm_backward.hpp"
#include "plan/norm.hpp"
#include "ref/norm_backward.hpp"
#include "verify/norm/numbers.hpp"
#include "verify/operand_subject.hpp"

namespace falchion::tools::storm {
namespace {

using O = NormOperands;

class NormBackwardSubject : public OperandSubject<O> {
 public:
  explicit NormBackwardSubject(const Problem& problem) : OperandSubject(problem), n_(problem.norm) {
    lay_out();
    make_image([this](const std::string& name, std::uint64_t stream, Contents* x) {
      fill_norm(p_, name, n_.dtype, stream, x);
    });
  }

 private:
  void lay_out();
  std::string check(const O& got, bool) override {
    if (!reference_) reference_ = std::make_unique<falchion::judge::NormBackwardReference>(n_, reference_operands());
    return reference_->check(got);
  }

  const Norm n_;
  std::unique_ptr<falchion::judge::NormBackwardReference> reference_;
};

void NormBackwardSubject::lay_out() {
  const Contents::Shape all{n_.rows / p_.s / p_.h, p_.s, p_.h, n_.d};
  const bool y_is_x = p_.in_place && ref::wants_grad_x(n_) && dtype_of_y(n_) == n_.dtype;
  if (ref::wants_grad_x(n_)) {
    const Image::Place grad_x = add_output("grad_x", &O::grad_x, n_.dtype, all, y_is_x);
    if (y_is_x) add_input_at("grad_y", &O::grad_y, grad_x);
  }
  if (!y_is_x) add_input("grad_y", &O::grad_y, dtype_of_y(n_), all);
  add_input("x", &O::x, n_.dtype, all);
  if (n_.residual_out) add_input("grad_residual_out", &O::grad_residual_out, dtype_of_residual(n_), all);
  if (n_.weight) add_input("weight", &O::weight, p_.weight_dtype, shared_extents(p_.weight, all));
  if (ref::wants_grad_weight(n_))
    add_output("grad_weight", &O::grad_weight, p_.grad_weight_dtype, shared_extents(p_.weight, all));
  if (n_.bias) add_output("grad_bias", &O::grad_bias, p_.grad_bias_dtype, shared_extents(p_.bias, all));
}

}  // namespace

std::unique_ptr<Subject> make_norm_backward_subject(const Problem& problem) {
  return std::make_unique<NormBackwardSubject>(problem);
}

}  // namespace falchion::tools::storm
