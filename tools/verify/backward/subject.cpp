// tools/verify/backward/subject.cpp: a problem of attention's backward pass: its inputs besides those of the forward
// pass, its gradients, and their check.
#include <array>
#include <cmath>
#include <limits>

#include "judge/attention_backward.hpp"
#include "plan/text.hpp"
#include "ref/attention_forward.hpp"
#include "verify/attention/inputs.hpp"
#include "verify/subject.hpp"

namespace falchion::tools::storm {
namespace {

using falchion::judge::Gradient;
using falchion::judge::kGradientNames;
using falchion::judge::kGradients;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
constexpr Tensor Operands::*kOutputs[kGradients] = {&Operands::grad_q,    &Operands::grad_k,     &Operands::grad_v,
                                                    &Operands::grad_bias, &Operands::grad_alibi, &Operands::grad_sinks};

/// The result of the problem's forward pass, in f32 arithmetic and rounded like a kernel's: dense o and lse.
struct State {
  std::vector<float> o_memory, lse_memory;
  Tensor o, lse;

  State(Attention a, Operands x) {
    a.lse = true;
    const auto& q = x.q.shape;
    o_memory.assign(static_cast<std::size_t>(q[0] * q[1] * q[2] * a.d_v) + 1, kNan);
    lse_memory.assign(static_cast<std::size_t>(q[0] * q[1] * q[2]) + 1, kNan);
    x.o = o = Tensor::dense(o_memory.data(), DType::f32, {q[0], q[1], q[2], a.d_v});
    x.lse = lse = Tensor::dense(lse_memory.data(), DType::f32, {q[0], q[2], q[1], 1});
    ref::attention_forward(a, x, {.p = a.dtype, .o = a.dtype, .single_precision = true});
  }
  float o_at(std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t e) const {
    return o_memory[static_cast<std::size_t>(b * o.stride[0] + i * o.stride[1] + h * o.stride[2] + e)];
  }
  float lse_at(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return lse_memory[static_cast<std::size_t>(b * lse.stride[0] + h * lse.stride[1] + i)];
  }
};

class AttentionBackwardSubject : public Subject {
 public:
  explicit AttentionBackwardSubject(const Problem& problem) : p_(problem), a_(problem.attention), inputs_(problem) {
    inputs_.lay_out(&image_);
    lay_out();
    image_.allocate();
    inputs_.fill();
    inputs_.write(image_.data());
    fill();
    for (const Input* input : {&o_, &lse_, &grad_o_, &grad_lse_})
      if (input->place.there) input->data.store(image_.data(), input->place);
    if (a_.grads == Grads::accumulate) fill_outputs();
  }

  Status run(const Plan& plan, const std::byte* base, void* workspace, std::size_t bytes) const override {
    return plan.run(operands(base), workspace, bytes);
  }
  std::string judge(std::byte* copy, bool tensor_cores) override;

 private:
  struct Input {
    Image::Place place;
    Contents data;
  };

  void lay_out();
  void fill();
  void fill_state();
  void plant();
  void fill_outputs() const;
  void attach_own(const std::byte* base, Operands* x) const;
  Operands operands(const std::byte* base) const;
  Operands reference_operands() const;
  std::uint64_t stream(std::uint64_t n) const { return inputs_.stream(n); }
  /// A number of mean 0 and deviation 1 for one row of one head.
  static float of_row(const Contents& noise, std::int64_t b, std::int64_t h, std::int64_t i) {
    return noise.get(b, h, i, 0);
  }

  const Problem p_;
  const Attention a_;
  AttentionInputs inputs_;
  Input o_, lse_, grad_o_, grad_lse_;
  std::array<Image::Place, kGradients> outputs_;
  std::unique_ptr<falchion::judge::GradientReference> reference_;
};

void AttentionBackwardSubject::lay_out() {
  const std::int64_t batch = inputs_.batch(), q_rows = inputs_.q_rows(), k_rows = inputs_.k_rows();
  const auto input = [&](const char* name, DType dtype, const Contents::Shape& shape, bool wanted = true) {
    if (!wanted) return Input{};
    return Input{image_.add(name, dtype, shape, p_.storage_of(name)), Contents(dtype, shape, p_.storage_of(name).zero)};
  };
  const Contents::Shape o{batch, q_rows, a_.h_q, a_.d_v}, rows{batch, a_.h_q, q_rows, 1};
  o_ = input("o", a_.dtype, o);
  lse_ = input("lse", DType::f32, rows);
  grad_o_ = input("grad_o", a_.dtype, o);
  grad_lse_ = input("grad_lse", DType::f32, rows, a_.grad_lse);
  const auto output = [&](Gradient which, DType dtype, const Contents::Shape& shape, bool wanted) {
    const auto n = static_cast<std::size_t>(which);
    if (wanted) outputs_[n] = image_.add(kGradientNames[n], dtype, shape, p_.storage_of(kGradientNames[n]));
  };
  const DType dtype = a_.grads == Grads::rounded ? a_.dtype : DType::f32;
  output(Gradient::q, dtype, {batch, q_rows, a_.h_q, a_.d_qk}, (a_.frozen & 1) == 0);
  output(Gradient::k, dtype, {batch, k_rows, a_.h_k, a_.d_qk}, (a_.frozen & 2) == 0);
  output(Gradient::v, dtype, {batch, k_rows, a_.h_k, a_.d_v}, (a_.frozen & 2) == 0);
  output(Gradient::bias, DType::f32, inputs_.scores(p_.grad_bias), a_.grad_bias);
  output(Gradient::alibi, DType::f32, {p_.grad_alibi_by_batch ? a_.b : 1, 1, a_.h_q, 1}, a_.grad_alibi);
  output(Gradient::sinks, DType::f32, {p_.grad_sinks_by_batch ? a_.b : 1, 1, a_.h_q, 1}, a_.grad_sinks);
}

/// o and lse of the forward pass, modified as Data::state says.
void AttentionBackwardSubject::fill_state() {
  const State own(a_, inputs_.reference_operands(image_.data()));
  const std::string& kind = p_.data.state;
  Contents noise(DType::f32, lse_.place.view.shape, 0);  // a number for each row
  noise.fill_normal(stream(40), 1);
  o_.data.fill_normal(stream(41), p_.data.v);
  // For keys that are elsewhere: their lse is near the row's own, or near 0 if the row sees no key here.
  const auto elsewhere = [&](auto b, auto h, auto i) {
    const float mine = own.lse_at(b, h, i);
    return (mine == -kInf ? 0 : mine) + 2 * of_row(noise, b, h, i);
  };
  const auto share = [&](auto b, auto h, auto i) {  // of the row's own keys in the merged state
    return 1 / (1 + std::exp(elsewhere(b, h, i) - own.lse_at(b, h, i)));
  };
  const auto gone = [&](auto b, auto h, auto i) { return kind == "gone" && of_row(noise, b, h, i) > 0.67F; };
  o_.data.change([&](auto b, auto i, auto h, auto e, float x) {
    if (kind == "any") return x;
    if (kind == "merged") return share(b, h, i) * own.o_at(b, i, h, e) + (1 - share(b, h, i)) * x;
    return gone(b, h, i) ? kNan : own.o_at(b, i, h, e);
  });
  lse_.data.change([&](auto b, auto h, auto i, auto, float) {
    const float mine = own.lse_at(b, h, i), other = elsewhere(b, h, i);
    if (kind == "any") return other;
    if (kind == "merged")
      return mine == -kInf ? other : std::max(mine, other) + std::log1p(std::exp(-std::abs(mine - other)));
    return gone(b, h, i) ? -kInf : mine;
  });
  if (kind != "gone") return;
  const auto own_rows = [&](const char* name) { return (p_.storage_of(name).zero & 7U) == 0; };
  if (own_rows("grad_o"))
    grad_o_.data.change([&](auto b, auto i, auto h, auto, float x) { return gone(b, h, i) ? kNan : x; });
  if (a_.grad_lse && own_rows("grad_lse"))
    grad_lse_.data.change([&](auto b, auto h, auto i, auto, float x) { return gone(b, h, i) ? kNan : x; });
}

void AttentionBackwardSubject::plant() {
  for (const std::string& kind : p_.data.plant) {
    const std::string name = kind.substr(4);
    Input* to = name == "o" ? &o_ : name == "lse" ? &lse_ : name == "grad_o" ? &grad_o_ : &grad_lse_;
    if (name == "q" || name == "k" || name == "v" || !to->place.there) continue;
    to->data.plant(random_bits(stream(7), kind.size()), planted_number(kind));
  }
}

void AttentionBackwardSubject::fill() {
  grad_o_.data.fill_normal(stream(42), p_.data.grad);
  if (a_.grad_lse) grad_lse_.data.fill_normal(stream(43), p_.data.grad);
  fill_state();
  plant();
  inputs_.spoil(&o_.data, p_.storage_of("o"), true);
  inputs_.spoil(&lse_.data, p_.storage_of("lse"), true, 2);
  inputs_.spoil(&grad_o_.data, p_.storage_of("grad_o"), true);
  if (a_.grad_lse) inputs_.spoil(&grad_lse_.data, p_.storage_of("grad_lse"), true, 2);
}

/// Accumulated gradients start from random contents.
void AttentionBackwardSubject::fill_outputs() const {
  for (std::size_t n = 0; n < kGradients; ++n) {
    if (!outputs_[n].there) continue;
    Contents before(DType::f32, outputs_[n].view.shape, 0);
    before.fill_normal(stream(50 + n), 1);
    before.store(image_.data(), outputs_[n]);
  }
}

void AttentionBackwardSubject::attach_own(const std::byte* base, Operands* x) const {
  x->o = o_.place.on(base);
  x->lse = lse_.place.on(base);
  x->grad_o = grad_o_.place.on(base);
  x->grad_lse = grad_lse_.place.on(base);
  for (std::size_t n = 0; n < kGradients; ++n) x->*kOutputs[n] = outputs_[n].on(base);
}

Operands AttentionBackwardSubject::operands(const std::byte* base) const {
  Operands x = inputs_.operands(base);
  attach_own(base, &x);
  return x;
}

/// The same numbers for the definition: dense, in f32. Its outputs are those of the image, with the contents that
/// gradients are added to.
Operands AttentionBackwardSubject::reference_operands() const {
  Operands x = inputs_.reference_operands(image_.data());
  attach_own(image_.data(), &x);
  x.o = o_.data.view();
  x.lse = lse_.data.view();
  x.grad_o = grad_o_.data.view();
  if (a_.grad_lse) x.grad_lse = grad_lse_.data.view();
  return x;
}

std::string AttentionBackwardSubject::judge(std::byte* copy, bool tensor_cores) {
  if (!reference_) reference_ = std::make_unique<falchion::judge::GradientReference>(a_, reference_operands());
  std::string why;
  for (std::size_t n = 0; n < kGradients; ++n) {
    const auto which = static_cast<Gradient>(n);
    const Image::Place& place = outputs_[n];
    if (!place.there) continue;
    const auto for_each = [&](const auto& f) {
      const auto& shape = place.view.shape;
      for (std::int64_t i = 0; i < shape[0]; ++i)
        for (std::int64_t j = 0; j < shape[1]; ++j) {
          if (!reference_->is_row(which, i, j)) continue;
          for (std::int64_t k = 0; k < shape[2]; ++k)
            for (std::int64_t l = 0; l < shape[3]; ++l) f(i, j, k, l);
        }
    };
    for_each([&](auto i, auto j, auto k, auto l) {
      // With accumulation, adding nothing leaves an element unchanged.
      if (why.empty() && a_.grads != Grads::accumulate && image_.same(copy, place, i, j, k, l))
        why = text(kGradientNames[n], "[", i, ", ", j, ", ", k, ", ", l, "] was not written");
    });
    if (why.empty()) why = reference_->check(which, place.on(copy), tensor_cores).why;
    for_each([&](auto i, auto j, auto k, auto l) { image_.restore(copy, place, i, j, k, l); });
  }
  return why;
}

}  // namespace

std::unique_ptr<Subject> make_attention_backward_subject(const Problem& problem) {
  return std::make_unique<AttentionBackwardSubject>(problem);
}

}  // namespace falchion::tools::storm
