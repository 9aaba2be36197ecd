// tools/verify/quantise/subject.cpp: makes the operands of Quantise and their numbers, and judges its outputs.
#include "judge/quantise.hpp"
#include "plan/quantise.hpp"
#include "verify/operand_subject.hpp"

namespace falchion::tools::storm {
namespace {

using O = QuantiseOperands;

class QuantiseSubject : public OperandSubject<O> {
 public:
  explicit QuantiseSubject(const Problem& problem) : OperandSubject(problem), q_(problem.quantise) {
    lay_out();
    make_image([this](const std::string& name, std::uint64_t stream, Contents* x) { fill(name, stream, x); });
  }

 private:
  void lay_out() {
    const Contents::Shape all{q_.b, q_.s, q_.h, q_.d}, mean{q_.b, 1, q_.h, q_.d};
    Contents::Shape scale{q_.b, blocks_of(q_), q_.h, 1};
    for (std::size_t axis = 0; axis < 3; ++axis)
      if ((p_.k_scale.one >> axis & 1) != 0) scale[axis] = 1;
    add_output("y", &O::y, q_.dtype_y, all, true);  // a code may be what lay there before, and check() sees each
    add_input("x", &O::x, q_.dtype, all);
    if (q_.smooth && q_.mean_given) add_input("mean", &O::mean, DType::f32, mean);
    if (q_.smooth && !q_.mean_given) add_output("mean", &O::mean, DType::f32, mean);
    if (q_.scale_given) add_input("scale", &O::scale, DType::f32, scale);
    if (!q_.scale_given) add_output("scale", &O::scale, DType::f32, scale);
  }
  void fill(const std::string& name, std::uint64_t stream, Contents* x) const {
    x->fill_normal(stream, name == "x" ? p_.data.q : 1);
    if (name == "scale")  // about that of normal numbers, and now and then a negative one, or 0
      x->change([](auto i, auto j, auto k, auto, float value) {
        return (i + j + k) % 50 == 49 ? value * 0 : (i + j + k) % 50 == 48 ? value : 0.02F + 0.005F * value;
      });
    if (name != "x") return;
    const std::string& shape = p_.data.shape;
    if (shape == "outliers")
      x->change([](auto, auto j, auto, auto l, float value) { return (j + 7 * l) % 97 == 0 ? 30 * value : value; });
    if (shape == "zero") x->change([](auto, auto j, auto, auto, float value) { return j % 3 == 0 ? 0 : value; });
    if (shape == "tiny") x->change([](auto, auto, auto, auto, float value) { return value * 1e-37F; });
    if (shape == "huge" && q_.dtype != DType::f16)
      x->change([](auto, auto, auto, auto, float value) { return value * 1e34F; });
  }
  std::string check(const O& got, bool) override {
    return falchion::judge::check_quantise(q_, reference_operands(), got);
  }

  const Quantise q_;
};

}  // namespace

std::unique_ptr<Subject> make_quantise_subject(const Problem& problem) {
  return std::make_unique<QuantiseSubject>(problem);
}

}  // namespace falchion::tools::storm
