// tools/verify/subject.hpp: a problem with its memory and numbers, ready to run on any block that is a copy of its
// image, and to judge the result of a run there.
#pragma once

#include <memory>
#include <string>

#include "falchion/falchion.hpp"
#include "image.hpp"
#include "problem.hpp"

namespace falchion::tools::storm {

class Subject {
 public:
  virtual ~Subject() = default;
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  /// `base` is the image, or a copy of it, in memory that the plan's back end can use.
  virtual Status run(const Plan& plan, const std::byte* base, void* workspace, std::size_t bytes) const = 0;
  /// Judges a run on a copy of the image, which was copied back to the host. Returns the first error of the outputs, or
  /// nothing. It also restores, in the copy, all elements that the run had to write, so the copy must then be equal to
  /// the image.
  virtual std::string judge(std::byte* copy, bool tensor_cores) = 0;

  /// The errors of the last result that was judged, as text; empty if the kind of problem tells none.
  virtual std::string measured() const { return ""; }

  const Image& image() const { return image_; }

 protected:
  Subject() = default;
  Image image_;
};

std::unique_ptr<Subject> make_attention_subject(const Problem& problem);
std::unique_ptr<Subject> make_attention_backward_subject(const Problem& problem);
std::unique_ptr<Subject> make_linear_subject(const Problem& problem);
std::unique_ptr<Subject> make_gemm_subject(const Problem& problem);
std::unique_ptr<Subject> make_norm_subject(const Problem& problem);
std::unique_ptr<Subject> make_norm_backward_subject(const Problem& problem);
std::unique_ptr<Subject> make_quantise_subject(const Problem& problem);
/// Makes the subject by the function of the problem's kind.
std::unique_ptr<Subject> make_subject(const Problem& problem);

}  // namespace falchion::tools::storm
