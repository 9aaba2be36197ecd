// tools/verify/attention/subject.cpp: a problem of attention's forward pass: its outputs, and their check.
#include "verify/subject.hpp"
#include <fmt/core.h>

#include "judge/attention.hpp"
#include "plan/text.hpp"
#include "problem/tensors.hpp"
#include "verify/attention/inputs.hpp"

namespace falchion::tools::storm {
namespace {

using falchion::judge::AttentionOutput;

class AttentionSubject : public Subject {
 public:
  explicit AttentionSubject(const Problem& problem) : p_(problem), a_(problem.attention), inputs_(problem) {
    inputs_.lay_out(&image_);
    const Contents::Shape rows{inputs_.batch(), a_.h_q, inputs_.q_rows(), 1};
    const auto place = [&](const char* name, DType dtype, const Contents::Shape& shape, bool wanted = true) {
      return wanted ? image_.add(name, dtype, shape, p_.storage_of(name)) : Image::Place{};
    };
    outputs_[0] = place("o", dtype_of_o(a_), {inputs_.batch(), inputs_.q_rows(), a_.h_q, a_.d_v});
    outputs_[1] = place("lse", DType::f32, rows, a_.lse);
    outputs_[2] = place("row_max", DType::f32, rows, a_.row_max);
    outputs_[3] = place("probabilities", DType::f32, inputs_.scores({}), a_.probabilities);
    image_.allocate();
    inputs_.fill();
    inputs_.write(image_.data());
  }

  Status run(const Plan& plan, const std::byte* base, void* workspace, std::size_t bytes) const override {
    Operands x = inputs_.operands(base);
    attach_outputs(base, &x);
    return plan.run(x, workspace, bytes);
  }
  std::string judge(std::byte* copy, bool tensor_cores) override;
  std::string measured() const override { return measured_; }

 private:
  std::string judge_cache(std::byte* copy) const;
  void attach_outputs(const std::byte* base, Operands* x) const {
    x->o = outputs_[0].on(base);
    x->lse = outputs_[1].on(base);
    x->row_max = outputs_[2].on(base);
    x->probabilities = outputs_[3].on(base);
  }

  const Problem p_;
  const Attention a_;
  AttentionInputs inputs_;
  Image::Place outputs_[4];
  std::unique_ptr<falchion::judge::AttentionReference> reference_;
  std::string measured_;
};

/// What the run wrote into the cache, which is then restored.
std::string AttentionSubject::judge_cache(std::byte* copy) const {
  const Image::Place &k = *image_.find("k"), &v = *image_.find("v");
  std::string why = reference_->check_cache(k.on(copy), v.on(copy));
  for (const Image::Place* place : {&k, &v})
    for_each_index(place->view.shape,
                   [&](auto i, auto j, auto h, auto d) { image_.restore(copy, *place, i, j, h, d); });
  return why;
}

std::string AttentionSubject::judge(std::byte* copy, bool tensor_cores) {
  if (!reference_) {
    Operands x = inputs_.reference_operands(image_.data());
    attach_outputs(image_.data(), &x);
    reference_ = std::make_unique<falchion::judge::AttentionReference>(a_, x);
  }
  std::string why = a_.append ? judge_cache(copy) : "";
  measured_.clear();
  for (std::size_t n = 0; n < 4; ++n) {
    const auto which = static_cast<AttentionOutput>(n);
    const Image::Place& place = outputs_[n];
    if (!place.there) continue;
    const auto for_each = [&](const auto& f) {
      const auto& shape = place.view.shape;
      for (std::int64_t i = 0; i < shape[0]; ++i)
        for (std::int64_t j = 0; j < shape[1]; ++j)
          for (std::int64_t k = 0; k < shape[2]; ++k) {
            if (!reference_->is_row(i, which == AttentionOutput::o ? j : k)) continue;
            for (std::int64_t l = 0; l < shape[3]; ++l) f(i, j, k, l);
          }
    };
    for_each([&](auto i, auto j, auto k, auto l) {
      if (why.empty() && image_.same(copy, place, i, j, k, l))
        why = text(falchion::judge::kAttentionOutputs[n], "[", i, ", ", j, ", ", k, ", ", l, "] was not written");
    });
    if (why.empty()) {
      const falchion::judge::ErrorReport report = reference_->check(which, place.on(copy), tensor_cores);
      why = report.why;
      measured_ += fmt::format("{}{}: relative RMSE {:.3g}, 1 - cosine {:.3g}, largest error {:.3g} of {:.3g}",
                               measured_.empty() ? "" : "; ", falchion::judge::kAttentionOutputs[n],
                               report.relative_rms(), report.one_minus_cosine(), report.error, report.limit());
    }
    for_each([&](auto i, auto j, auto k, auto l) { image_.restore(copy, place, i, j, k, l); });
  }
  return why;
}

}  // namespace

std::unique_ptr<Subject> make_attention_subject(const Problem& problem) {
  return std::make_unique<AttentionSubject>(problem);
}

}  // namespace falchion::tools::storm
