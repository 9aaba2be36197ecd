// tools/verify/linear/subject.cpp: makes linear attention's operands and their numbers
// for both passes, and judges the results.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "judge/linear_attention.hpp"
#include "plan/text.hpp"
#include "verify/contents.hpp"
#include "verify/draw.hpp"
#include "verify/subject.hpp"

namespace falchion::tools::storm {
namespace {

using falchion::judge::LinearOutput;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class LinearSubject : public Subject {
 public:
  explicit LinearSubject(const Problem& problem) : p_(problem), a_(problem.linear) {
    lay_out();
    for (Input& input : inputs_)
      if (input.place.there) {
        fill(&input);
        input.data.store(image_.data(), input.place);
      }
    if (!cu_.empty()) std::memcpy(image_.data() + cu_at_, cu_.data(), cu_.size() * sizeof(std::int32_t));
  }

  Status run(const Plan& plan, const std::byte* base, void* workspace, std::size_t bytes) const override {
    return plan.run(operands(base), workspace, bytes);
  }
  std::string judge(std::byte* copy, bool tensor_cores) override;

 private:
  struct Input {
    const char* name;
    Tensor LinearOperands::*tensor;
    Image::Place place;
    Contents data;
  };

  void lay_out();
  void fill(Input* input) const;
  void fill_decay(Contents* x) const;
  void plant(Input* input) const;
  LinearOperands operands(const std::byte* base) const;
  LinearOperands reference_operands() const;
  bool forward() const { return p_.pass() == Pass::forward; }
  std::uint64_t stream(std::uint64_t n) const { return random_bits(p_.data.seed, n); }

  const Problem p_;
  const LinearAttention a_;
  std::int64_t tokens_ = 0, owned_ = 0;  // rows of q; those that belong to a sequence
  std::vector<Input> inputs_;
  Image::Place outputs_[falchion::judge::kLinearOutputs];
  std::vector<std::int32_t> cu_;
  std::size_t cu_at_ = 0;
  std::unique_ptr<falchion::judge::LinearReference> reference_;
};

void LinearSubject::lay_out() {
  using O = LinearOperands;
  const bool token = a_.decay == Decay::token, decays = a_.decay != Decay::none, z = a_.normalise;
  for (const std::int64_t n : p_.lengths_q) owned_ += n;
  const std::int64_t batch = a_.packed ? 1 : a_.b;
  tokens_ = a_.packed ? owned_ + p_.spare : a_.s;
  if (!a_.packed) owned_ = tokens_;
  const Contents::Shape qk{batch, tokens_, a_.h_qk, a_.d_qk}, vo{batch, tokens_, a_.h_v, a_.d_v};
  const Contents::Shape state{a_.b, a_.h_v, a_.d_qk, a_.d_v}, states_z{a_.b, a_.h_v, a_.d_qk, 1};
  const Contents::Shape g{token ? batch : 1, token ? tokens_ : 1, a_.h_v, 1};
  const auto place = [&](const char* name, DType dtype, const Contents::Shape& shape) {
    return image_.add(name, dtype, shape, p_.storage_of(name));
  };
  const auto input = [&](const char* name, Tensor O::*tensor, DType dtype, const Contents::Shape& shape, bool wanted) {
    if (wanted)
      inputs_.push_back({name, tensor, place(name, dtype, shape), Contents(dtype, shape, p_.storage_of(name).zero)});
  };
  const auto output = [&](LinearOutput which, DType dtype, const Contents::Shape& shape, bool wanted) {
    if (wanted) outputs_[static_cast<std::size_t>(which)] = place(name(which), dtype, shape);
  };
  const bool backward = !forward();
  input("q", &O::q, a_.dtype, qk, true);
  input("k", &O::k, a_.dtype, qk, true);
  input("v", &O::v, a_.dtype, vo, true);
  input("decay", &O::decay, DType::f32, g, decays);
  if (!p_.in_place) {
    input("initial_state", &O::initial_state, DType::f32, state, a_.initial_state);
    input("initial_z", &O::initial_z, DType::f32, states_z, a_.initial_state && z);
  }
  input("grad_o", &O::grad_o, a_.dtype, vo, backward);
  input("grad_final_state", &O::grad_final_state, DType::f32, state, backward && a_.final_state);
  input("grad_final_z", &O::grad_final_z, DType::f32, states_z, backward && a_.final_state && z);
  output(LinearOutput::o, a_.dtype, vo, forward());
  output(LinearOutput::final_state, DType::f32, state, forward() && a_.final_state);
  output(LinearOutput::final_z, DType::f32, states_z, forward() && a_.final_state && z);
  output(LinearOutput::grad_q, a_.dtype, qk, backward);
  output(LinearOutput::grad_k, a_.dtype, qk, backward);
  output(LinearOutput::grad_v, a_.dtype, vo, backward);
  output(LinearOutput::grad_decay, DType::f32, g, backward && decays);
  output(LinearOutput::grad_initial_state, DType::f32, state, backward && a_.initial_state);
  output(LinearOutput::grad_initial_z, DType::f32, states_z, backward && a_.initial_state && z);
  if (p_.in_place) {  // the initial state uses the memory of the final one
    const auto on = [&](const char* name, Tensor O::*tensor, LinearOutput which) {
      const Image::Place& at = outputs_[static_cast<std::size_t>(which)];
      if (at.there) inputs_.push_back({name, tensor, at, Contents(DType::f32, at.view.shape, 0)});
    };
    on("initial_state", &O::initial_state, LinearOutput::final_state);
    on("initial_z", &O::initial_z, LinearOutput::final_z);
  }
  if (a_.packed) {
    cu_.push_back(0);
    for (const std::int64_t n : p_.lengths_q) cu_.push_back(cu_.back() + static_cast<std::int32_t>(n));
  }
  cu_at_ = image_.add_array("cu_seqlens", cu_.size() * sizeof(std::int32_t));
  image_.allocate();
}

/// Sums of g over any 64 tokens stay below 88 (docs/contract.md). So a decay may
/// grow a little and forget without limit.
void LinearSubject::fill_decay(Contents* x) const {
  const std::string& kind = p_.data.decay;
  const bool head = a_.decay == Decay::head;
  std::uint64_t n = 0;
  x->change([&](auto, auto, auto h, auto, float) {
    const auto u = static_cast<float>(random_bits(stream(30), n++) >> 40) * 0x1p-24F;
    if (kind == "strong") return -15 * u;
    if (kind == "forget") return u < 0.5F ? -90.F : -0.05F * u;
    if (kind == "mixed") return head ? -3 * u : u < 0.02F ? -90.F : u > 0.95F ? 0.5F : -2 * u;
    return head ? -1 / static_cast<float>(std::int64_t{32} << std::min<std::int64_t>(h, 20)) : -0.1F * u;
  });
}

void LinearSubject::plant(Input* input) const {
  for (const std::string& kind : p_.data.plant) {
    if (kind.substr(4) != input->name) continue;
    input->data.plant(random_bits(stream(31), kind.size()), planted_number(kind));
  }
}

void LinearSubject::fill(Input* input) const {
  const std::string name = input->name;
  Contents& x = input->data;
  const Data& data = p_.data;
  const auto position = static_cast<std::uint64_t>(input - inputs_.data());
  x.fill_normal(stream(10 + position), name == "q" ? data.q : name == "k" ? data.k : name == "v" ? data.v : 1);
  if (name == "decay") fill_decay(&x);
  if (data.shape == "positive" && (name == "q" || name == "k"))
    x.change([](auto, auto, auto, auto, float value) { return std::abs(value); });
  if (name == "initial_z") x.change([](auto, auto, auto, auto, float value) { return 1 + std::abs(value); });
  plant(input);
  const bool rows = name == "q" || name == "k" || name == "v" || name == "grad_o" || name == "decay";
  if (!rows || owned_ == tokens_ || (name == "decay" && a_.decay == Decay::head)) return;
  if ((p_.storage_of(name).zero & 2U) != 0) return;  // all tokens share their memory
  x.change([&](auto, auto j, auto, auto, float value) { return j < owned_ ? value : kNan; });
}

LinearOperands LinearSubject::operands(const std::byte* base) const {
  LinearOperands x;
  for (const Input& input : inputs_) x.*input.tensor = input.place.on(base);
  for (std::size_t i = 0; i < falchion::judge::kLinearOutputs; ++i)
    if (outputs_[i].there) tensor_of(static_cast<LinearOutput>(i), &x) = outputs_[i].on(base);
  if (a_.packed) x.cu_seqlens = reinterpret_cast<const std::int32_t*>(base + cu_at_);
  return x;
}

/// The same numbers for the definition: dense, in f32.
LinearOperands LinearSubject::reference_operands() const {
  LinearOperands x = operands(image_.data());
  for (const Input& input : inputs_) x.*input.tensor = input.data.view();
  return x;
}

std::string LinearSubject::judge(std::byte* copy, bool) {
  const bool chunks = p_.backend != Backend::ref;
  if (!reference_) reference_ = std::make_unique<falchion::judge::LinearReference>(a_, p_.pass(), reference_operands());
  std::string why;
  for (std::size_t n = 0; n < falchion::judge::kLinearOutputs; ++n) {
    const auto which = static_cast<LinearOutput>(n);
    const Image::Place& place = outputs_[n];
    if (!place.there) continue;
    const bool may_be_alike = p_.in_place && (which == LinearOutput::final_state || which == LinearOutput::final_z);
    const auto for_each = [&](const auto& f) {
      const auto& shape = place.view.shape;
      if (a_.b == 0) return;
      for (std::int64_t i = 0; i < shape[0]; ++i)
        for (std::int64_t j = 0; j < shape[1]; ++j) {
          if (reference_->by_token(which) && !reference_->is_row(j)) continue;
          for (std::int64_t k = 0; k < shape[2]; ++k)
            for (std::int64_t l = 0; l < shape[3]; ++l) f(i, j, k, l);
        }
    };
    for_each([&](auto i, auto j, auto k, auto l) {
      if (why.empty() && !may_be_alike && image_.same(copy, place, i, j, k, l))
        why = text(name(which), "[", i, ", ", j, ", ", k, ", ", l, "] was not written");
    });
    if (why.empty()) why = reference_->check(which, place.on(copy), chunks).why;
    for_each([&](auto i, auto j, auto k, auto l) { image_.restore(copy, place, i, j, k, l); });
  }
  return why;
}

}  // namespace

std::unique_ptr<Subject> make_linear_subject(const Problem& problem) {
  return std::make_unique<LinearSubject>(problem);
}

}  // namespace falchion::tools::storm
