// tools/verify/subject.hpp: a problem with its memory and numbers, ready to run on any block that is a copy of its
// image, and to judge what a run left there.
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

  /// base: the image, or a copy of it, where the plan's back end can reach it.
  virtual Status run(const Plan& plan, const std::byte* base, void* workspace, std::size_t bytes) const = 0;
  /// After a run on a copy of the image, brought back to the host: empty, or what is wrong with the outputs. Undoes in
  /// the copy all that the run was to write, so that the copy must then be the image again.
  virtual std::string judge(std::byte* copy, bool tensor_cores) = 0;

  const Image& image() const { return image_; }

 protected:
  Subject() = default;
  Image image_;
};

std::unique_ptr<Subject> make_attention_subject(const Problem& problem);
std::unique_ptr<Subject> make_linear_subject(const Problem& problem);
inline std::unique_ptr<Subject> make_subject(const Problem& problem) {
  return problem.op == Op::attention ? make_attention_subject(problem) : make_linear_subject(problem);
}

}  // namespace falchion::tools::storm
