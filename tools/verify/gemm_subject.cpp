// tools/verify/gemm_subject.cpp: makes a GEMM's operands and their numbers, and judges D.
#include <limits>

#include "contents.hpp"
#include "draw.hpp"
#include "judge/gemm.hpp"
#include "plan/gemm.hpp"
#include "plan/text.hpp"
#include "subject.hpp"
#include "types/size.hpp"

namespace falchion::tools::storm {
namespace {

class GemmSubject : public Subject {
 public:
  explicit GemmSubject(const Problem& problem) : p_(problem), g_(problem.gemm) {
    lay_out();
    for (Input& input : inputs_) {
      fill(&input);
      input.data.store(image_.data(), input.place);
    }
  }

  Status run(const Plan& plan, const std::byte* base, void* workspace, std::size_t bytes) const override {
    return plan.run(operands(base), workspace, bytes);
  }
  std::string judge(std::byte* copy, bool tensor_cores) override;

 private:
  struct Input {
    const char* name;
    Tensor GemmOperands::*tensor;
    Image::Place place;
    Contents data;
  };

  void lay_out();
  void fill(Input* input) const;
  GemmOperands operands(const std::byte* base) const;

  const Problem p_;
  const Gemm g_;
  std::vector<Input> inputs_;
  Image::Place d_;
  std::unique_ptr<falchion::judge::GemmReference> reference_;
};

void GemmSubject::lay_out() {
  using O = GemmOperands;
  const std::int64_t shared = p_.shared_b ? 1 : g_.batch, rows = rows_of_b(g_);
  const Contents::Shape d{g_.batch, g_.m, p_.n2, g_.n / p_.n2};
  const auto place = [&](const char* name, DType dtype, const Contents::Shape& shape) {
    return image_.add(name, dtype, shape, p_.storage_of(name));
  };
  d_ = place("d", dtype_of_d(g_), d);
  const auto input = [&](const char* name, Tensor O::*tensor, DType dtype, const Contents::Shape& shape, bool over_d) {
    if (over_d) return inputs_.push_back({name, tensor, d_, Contents(dtype, shape, 0)});
    inputs_.push_back({name, tensor, place(name, dtype, shape), Contents(dtype, shape, p_.storage_of(name).zero)});
  };
  const bool over_c = p_.in_place && g_.beta != 0 && dtype_of_c(g_) == dtype_of_d(g_);
  input("a", &O::a, g_.dtype, {g_.batch, g_.m, p_.k2, g_.k / p_.k2}, false);
  input("b", &O::b, g_.dtype, {shared, rows, p_.k2, g_.k / p_.k2}, false);
  if (g_.beta != 0) input("c", &O::c, dtype_of_c(g_), d, over_c);
  if (g_.residual) input("residual", &O::residual, dtype_of_d(g_), d, p_.in_place && !over_c);
  const DType of_bias = p_.bias_dtype == DType::f32 ? DType::f32 : is_8bit(g_.dtype) ? dtype_of_d(g_) : g_.dtype;
  if (g_.bias_n) input("bias_n", &O::bias_n, of_bias, {1, 1, 1, rows}, false);
  if (g_.bias_m) input("bias_m", &O::bias_m, of_bias, {shared, g_.m, 1, 1}, false);
  if (g_.scaling != Scaling::none) {
    const bool row_col = g_.scaling == Scaling::row_col;
    input("scale_a", &O::scale_a, DType::f32, {g_.batch, row_col ? g_.m : 1, 1, 1}, false);
    input("scale_b", &O::scale_b, DType::f32, {shared, row_col ? rows : 1, 1, 1}, false);
  }
  image_.allocate();
}

void GemmSubject::fill(Input* input) const {
  const std::string name = input->name;
  const auto position = static_cast<std::uint64_t>(input - inputs_.data());
  const auto stream = [&](std::uint64_t n) { return random_bits(p_.data.seed, n); };
  const float of_type = g_.dtype == DType::i8 ? 40 : 1;  // so that i8 takes many of its values, and some at its limits
  input->data.fill_normal(stream(10 + position), name == "a"   ? of_type * p_.data.q
                                                 : name == "b" ? of_type * p_.data.k
                                                               : 1);
  if (p_.data.shape == "ones" && (name == "a" || name == "b"))
    input->data.change([](auto, auto, auto, auto, float) { return 1.F; });
  for (const std::string& kind : p_.data.plant) {
    if (kind.substr(4) != name) continue;
    input->data.plant(stream(31), kind.starts_with("nan") ? std::numeric_limits<float>::quiet_NaN()
                                                          : std::numeric_limits<float>::infinity());
  }
}

GemmOperands GemmSubject::operands(const std::byte* base) const {
  GemmOperands x;
  for (const Input& input : inputs_) x.*input.tensor = input.place.on(base);
  x.d = d_.on(base);
  return x;
}

std::string GemmSubject::judge(std::byte* copy, bool) {
  if (!reference_) {
    GemmOperands dense = operands(image_.data());
    for (const Input& input : inputs_) dense.*input.tensor = input.data.view();
    reference_ = std::make_unique<falchion::judge::GemmReference>(g_, dense);
  }
  const auto for_each = [&](const auto& f) {
    const auto& n = d_.view.shape;
    for (std::int64_t b = 0; b < n[0]; ++b)
      for (std::int64_t i = 0; i < n[1]; ++i)
        for (std::int64_t k = 0; k < n[2]; ++k)
          for (std::int64_t l = 0; l < n[3]; ++l) f(b, i, k, l);
  };
  std::string why;
  for_each([&](auto b, auto i, auto k, auto l) {
    if (why.empty() && !p_.in_place && image_.same(copy, d_, b, i, k, l))
      why = text("d[", b, ", ", i, ", ", k, ", ", l, "] was not written");
  });
  if (why.empty()) why = reference_->check(d_.on(copy)).why;
  for_each([&](auto b, auto i, auto k, auto l) { image_.restore(copy, d_, b, i, k, l); });
  return why;
}

}  // namespace

std::unique_ptr<Subject> make_gemm_subject(const Problem& problem) { return std::make_unique<GemmSubject>(problem); }

}  // namespace falchion::tools::storm
