// tools/verify/gemm/subject.cpp: makes a GEMM's operands and their numbers, and judges D.
#include "base/size.hpp"
#include "judge/gemm.hpp"
#include "plan/gemm.hpp"
#include "verify/operand_subject.hpp"

namespace falchion::tools::storm {
namespace {

using O = GemmOperands;

class GemmSubject : public OperandSubject<O> {
 public:
  explicit GemmSubject(const Problem& problem) : OperandSubject(problem), g_(problem.gemm) {
    lay_out();
    make_image([this](const std::string& name, std::uint64_t stream, Contents* x) { fill(name, stream, x); });
  }

 private:
  void lay_out();
  void fill(const std::string& name, std::uint64_t stream, Contents* x) const;
  std::string check(const O& got, bool tensor_cores) override;

  const Gemm g_;
  std::unique_ptr<falchion::judge::GemmReference> reference_;
};

void GemmSubject::lay_out() {
  const std::int64_t shared = p_.shared_b ? 1 : g_.batch, rows = rows_of_b(g_);
  const Contents::Shape all{g_.batch, g_.m, p_.n2, g_.n / p_.n2};
  const bool c_is_d = p_.in_place && g_.beta != 0 && dtype_of_c(g_) == dtype_of_d(g_);
  const bool residual_is_d = p_.in_place && g_.residual && !c_is_d;
  const Image::Place d = add_output("d", &O::d, dtype_of_d(g_), all, c_is_d || residual_is_d);
  add_input("a", &O::a, g_.dtype, {g_.batch, g_.m, p_.k2, g_.k / p_.k2});
  add_input("b", &O::b, g_.dtype, {shared, rows, p_.k2, g_.k / p_.k2});
  if (c_is_d) add_input_at("c", &O::c, d);
  if (g_.beta != 0 && !c_is_d) add_input("c", &O::c, dtype_of_c(g_), all);
  if (residual_is_d) add_input_at("residual", &O::residual, d);
  if (g_.residual && !residual_is_d) add_input("residual", &O::residual, dtype_of_d(g_), all);
  const DType of_bias = p_.bias_dtype == DType::f32 ? DType::f32 : is_8bit(g_.dtype) ? dtype_of_d(g_) : g_.dtype;
  if (g_.bias_n) add_input("bias_n", &O::bias_n, of_bias, {1, 1, 1, rows});
  if (g_.bias_m) add_input("bias_m", &O::bias_m, of_bias, {shared, g_.m, 1, 1});
  if (g_.scaling != Scaling::none) {
    const ScaleCount of_a = scales_of_a(g_), of_b = scales_of_b(g_);
    add_input("scale_a", &O::scale_a, DType::f32, {g_.batch, of_a.rows, of_a.along_k, 1});
    add_input("scale_b", &O::scale_b, DType::f32, {shared, of_b.rows, of_b.along_k, 1});
  }
}

void GemmSubject::fill(const std::string& name, std::uint64_t stream, Contents* x) const {
  const float of_type = g_.dtype == DType::i8 ? 40 : 1;  // so that i8 takes many of its values, and some at its limits
  x->fill_normal(stream, name == "a" ? of_type * p_.data.q : name == "b" ? of_type * p_.data.k : 1);
  if (p_.data.shape == "ones" && (name == "a" || name == "b"))
    x->change([](auto, auto, auto, auto, float) { return 1.F; });
}

std::string GemmSubject::check(const O& got, bool tensor_cores) {
  using falchion::judge::Sums;
  if (!reference_) reference_ = std::make_unique<falchion::judge::GemmReference>(g_, reference_operands());
  const bool promoted = tensor_cores && p_.backend != Backend::sm80;
  return reference_->check(got.d, promoted ? Sums::promoted : Sums::f32).why;
}

}  // namespace

std::unique_ptr<Subject> make_gemm_subject(const Problem& problem) { return std::make_unique<GemmSubject>(problem); }

}  // namespace falchion::tools::storm
