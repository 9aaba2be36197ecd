// tools/verify/norm_subject.cpp: makes a norm's operands and their numbers, and judges what it writes.
#include <limits>

#include "contents.hpp"
#include "draw.hpp"
#include "judge/norm.hpp"
#include "plan/norm.hpp"
#include "plan/text.hpp"
#include "subject.hpp"

namespace falchion::tools::storm {
namespace {

using O = NormOperands;

class NormSubject : public Subject {
 public:
  explicit NormSubject(const Problem& problem) : p_(problem), n_(problem.norm) {
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
    Tensor O::*tensor;
    Image::Place place;
    Contents data;
  };
  struct Output {
    const char* name;
    Tensor O::*tensor;
    Image::Place place;
    bool over_input;
  };

  void lay_out();
  void fill(Input* input) const;
  O operands(const std::byte* base) const;
  /// Calls f(indices of an element) for each element of an output.
  template <class F>
  static void for_each(const Output& output, const F& f) {
    const auto& n = output.place.view.shape;
    for (std::int64_t b = 0; b < n[0]; ++b)
      for (std::int64_t s = 0; s < n[1]; ++s)
        for (std::int64_t h = 0; h < n[2]; ++h)
          for (std::int64_t j = 0; j < n[3]; ++j) f(b, s, h, j);
  }

  const Problem p_;
  const Norm n_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
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
  const auto output = [&](const char* name, Tensor O::*tensor, DType dtype, const Contents::Shape& shape, bool over) {
    outputs_.push_back({name, tensor, image_.add(name, dtype, shape, p_.storage_of(name)), over});
    return outputs_.back().place;
  };
  const auto input = [&](const char* name, Tensor O::*tensor, DType dtype, const Contents::Shape& shape) {
    const Image::Place place = image_.add(name, dtype, shape, p_.storage_of(name));
    inputs_.push_back({name, tensor, place, Contents(dtype, shape, p_.storage_of(name).zero)});
  };
  const auto input_at = [&](const char* name, Tensor O::*tensor, const Image::Place& place) {
    inputs_.push_back({name, tensor, place, Contents(place.view.dtype, all, 0)});
  };
  const bool y_over = p_.in_place && dtype_of_y(n_) == n_.dtype, residual_over = p_.in_place && n_.residual_out;
  const Image::Place y = output("y", &O::y, dtype_of_y(n_), all, y_over);
  if (y_over) {
    input_at("x", &O::x, y);
  } else {
    input("x", &O::x, n_.dtype, all);
  }
  if (n_.residual_out) {
    const Image::Place sum = output("residual_out", &O::residual_out, dtype_of_residual(n_), all, residual_over);
    if (residual_over) input_at("residual", &O::residual, sum);
  }
  if (n_.residual && !residual_over) input("residual", &O::residual, dtype_of_residual(n_), all);
  if (n_.weight) input("weight", &O::weight, p_.weight_dtype, shared(p_.weight));
  if (n_.bias) input("bias", &O::bias, p_.bias_dtype, shared(p_.bias));
  if (n_.mean) output("mean", &O::mean, DType::f32, rows, false);
  if (n_.rstd) output("rstd", &O::rstd, DType::f32, rows, false);
  image_.allocate();
}

void NormSubject::fill(Input* input) const {
  const std::string name = input->name;
  const auto position = static_cast<std::uint64_t>(input - inputs_.data());
  const auto stream = [&](std::uint64_t n) { return random_bits(p_.data.seed, n); };
  input->data.fill_normal(stream(10 + position), name == "x" ? p_.data.q : 1);
  if (name == "x" && p_.data.shape == "constant")
    input->data.change([&](auto b, auto s, auto h, auto, float) { return input->data.get(b, s, h, 0); });
  if (name == "x" && p_.data.shape == "shifted")
    input->data.change([](auto b, auto, auto, auto, float x) { return x + 1000.F * static_cast<float>(1 - b % 3); });
  for (const std::string& kind : p_.data.plant) {
    if (kind.substr(4) != name) continue;
    input->data.plant(stream(31), kind.starts_with("nan") ? std::numeric_limits<float>::quiet_NaN()
                                                          : std::numeric_limits<float>::infinity());
  }
}

O NormSubject::operands(const std::byte* base) const {
  O x;
  for (const Input& input : inputs_) x.*input.tensor = input.place.on(base);
  for (const Output& output : outputs_) x.*output.tensor = output.place.on(base);
  return x;
}

std::string NormSubject::judge(std::byte* copy, bool) {
  if (!reference_) {
    O dense = operands(image_.data());
    for (const Input& input : inputs_) dense.*input.tensor = input.data.view();
    reference_ = std::make_unique<falchion::judge::NormReference>(n_, dense);
  }
  std::string why;
  for (const Output& output : outputs_) {
    for_each(output, [&](auto b, auto s, auto h, auto j) {
      if (why.empty() && !output.over_input && image_.same(copy, output.place, b, s, h, j))
        why = text(output.name, "[", b, ", ", s, ", ", h, ", ", j, "] was not written");
    });
  }
  if (why.empty()) why = reference_->check(operands(copy));
  for (const Output& output : outputs_)
    for_each(output, [&](auto b, auto s, auto h, auto j) { image_.restore(copy, output.place, b, s, h, j); });
  return why;
}

}  // namespace

std::unique_ptr<Subject> make_norm_subject(const Problem& problem) { return std::make_unique<NormSubject>(problem); }

}  // namespace falchion::tools::storm
