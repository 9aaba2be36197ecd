// tools/verify/operand_subject.hpp: the subject of an operation whose operands are tensors alone, each either an input
// or an output in one struct, as those of gemm and norm are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "contents.hpp"
#include "draw.hpp"
#include "plan/text.hpp"
#include "subject.hpp"

namespace falchion::tools::storm {

/// AnyOperands: the struct of operands that Plan::run takes for the operation.
template <class AnyOperands>
class OperandSubject : public Subject {
 public:
  Status run(const Plan& plan, const std::byte* base, void* workspace, std::size_t bytes) const override {
    return plan.run(operands(base), workspace, bytes);
  }

  std::string judge(std::byte* copy, bool tensor_cores) override {
    std::string why;
    for (const Output& output : outputs_) {
      for_each(output, [&](auto i, auto j, auto k, auto l) {
        if (why.empty() && !output.over_input && image_.same(copy, output.place, i, j, k, l))
          why = text(output.name, "[", i, ", ", j, ", ", k, ", ", l, "] was not written");
      });
    }
    if (why.empty()) why = check(operands(copy), tensor_cores);
    for (const Output& output : outputs_)
      for_each(output, [&](auto i, auto j, auto k, auto l) { image_.restore(copy, output.place, i, j, k, l); });
    return why;
  }

 protected:
  using Member = Tensor AnyOperands::*;

  explicit OperandSubject(const Problem& problem) : p_(problem) {}

  /// Compares the outputs of a run with the operation's reference. Returns the first error, or nothing.
  virtual std::string check(const AnyOperands& got, bool tensor_cores) = 0;

  /// over_input: whether an input has the same memory, so that missing writes cannot be detected.
  Image::Place add_output(const char* name, Member tensor, DType dtype, const Contents::Shape& shape,
                          bool over_input = false) {
    outputs_.push_back({name, tensor, image_.add(name, dtype, shape, p_.storage_of(name)), over_input});
    return outputs_.back().place;
  }
  void add_input(const char* name, Member tensor, DType dtype, const Contents::Shape& shape) {
    const Image::Place place = image_.add(name, dtype, shape, p_.storage_of(name));
    inputs_.push_back({name, tensor, place, Contents(dtype, shape, p_.storage_of(name).zero)});
  }
  /// An input with the memory of an output.
  void add_input_at(const char* name, Member tensor, const Image::Place& place) {
    inputs_.push_back({name, tensor, place, Contents(place.view.dtype, place.view.shape, 0)});
  }

  /// Makes the image after the last add. fill(name, stream, numbers) gives an input its numbers.
  template <class Fill>
  void make_image(const Fill& fill) {
    image_.allocate();
    std::uint64_t stream = 10;
    for (Input& input : inputs_) {
      fill(std::string(input.name), random_bits(p_.data.seed, stream++), &input.data);
      for (const std::string& kind : p_.data.plant)
        if (kind.substr(4) == input.name) input.data.plant(random_bits(p_.data.seed, 31), planted_number(kind));
      input.data.store(image_.data(), input.place);
    }
  }

  /// For the reference: inputs in f32 without gaps, and outputs of which only the shapes count.
  AnyOperands reference_operands() const {
    AnyOperands x = operands(image_.data());
    for (const Input& input : inputs_) x.*input.tensor = input.data.view();
    return x;
  }

  const Problem p_;

 private:
  struct Input {
    const char* name;
    Member tensor;
    Image::Place place;
    Contents data;
  };
  struct Output {
    const char* name;
    Member tensor;
    Image::Place place;
    bool over_input;
  };

  AnyOperands operands(const std::byte* base) const {
    AnyOperands x;
    for (const Input& input : inputs_) x.*input.tensor = input.place.on(base);
    for (const Output& output : outputs_) x.*output.tensor = output.place.on(base);
    return x;
  }

  /// Calls f(indices of an element) for each element of an output.
  template <class F>
  static void for_each(const Output& output, const F& f) {
    const auto& n = output.place.view.shape;
    for (std::int64_t i = 0; i < n[0]; ++i)
      for (std::int64_t j = 0; j < n[1]; ++j)
        for (std::int64_t k = 0; k < n[2]; ++k)
          for (std::int64_t l = 0; l < n[3]; ++l) f(i, j, k, l);
  }

  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
};

}  // namespace falchion::tools::storm
