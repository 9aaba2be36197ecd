// tools/problem/quantise_problem.cpp
#include "problem/quantise_problem.hpp"

#include <fmt/core.h>

#include <bit>

#include "base/names.hpp"
#include "plan/explain.hpp"
#include "plan/quantise.hpp"
#include "plan/work.hpp"
#include "policy/quantise.hpp"
#include "problem/problem_options.hpp"

namespace falchion::tools {

double flop_count(const Quantise& q) {
  const int stages = q.rotate ? std::countr_zero(static_cast<unsigned>(rotation_size(q.d))) : 0;
  return (3 + (q.smooth ? 1 : 0) + stages) * static_cast<double>(q.b) * static_cast<double>(q.s) *
         static_cast<double>(q.h) * static_cast<double>(q.d);
}
double byte_count(const Quantise& q) { return quantise_bytes(q); }

std::string size_name(const Quantise& q) { return fmt::format("b{} h{} s{} d{}", q.b, q.h, q.s, q.d); }

std::string feature_name(const Quantise& q) {
  std::string out = fmt::format("to {} rows{}", name(q.dtype_y), q.rows);
  if (q.smooth) out += " smooth";
  if (q.rotate) out += " rotated";
  return out;
}

std::string problem_name(const Quantise& q) { return size_name(q) + " quantise " + feature_name(q); }

Json to_json(const Quantise& q) { return problem_facts(q).with("features", feature_name(q)); }

void QuantiseOptions::add_to(Command& command) {
  command.group("What is quantised (sizes are those of q)");
  command.choice("--to", &to, {"e4m3", "i8"}, "The 8-bit type");
  command.integer("--tokens-a-scale", &tokens, 0, std::int64_t{1} << 30, "Tokens of a head that share a scale; 0: all");
  command.flag("--smooth", &smooth, "Without the mean of each head's tokens");
  command.flag("--rotate", &rotate, "Rotated by a Hadamard matrix");
}

Quantise QuantiseOptions::problem(const Attention& sizes) const {
  return {.dtype = sizes.dtype,
          .dtype_y = parse_dtype(to),
          .b = sizes.b,
          .s = sizes.s_q,
          .h = sizes.h_q,
          .d = sizes.d_qk,
          .rows = tokens,
          .smooth = smooth,
          .rotate = rotate};
}

QuantiseOperands QuantiseInstance::operands() const {
  return {.x = x.view, .mean = mean.view, .scale = scale.view, .y = y.view};
}

QuantiseInstance make_quantise_instance(const Quantise& q, std::uint64_t seed) {
  QuantiseInstance out;
  out.problem = q;
  const Shape all{q.b, q.s, q.h, q.d};
  out.x = make_random(q.dtype, all, seed);
  out.y = make_poisoned(q.dtype_y, all);
  out.scale = make_poisoned(DType::f32, {q.b, blocks_of(q), q.h, 1});
  if (q.smooth) out.mean = make_poisoned(DType::f32, {q.b, 1, q.h, q.d});
  return out;
}

}  // namespace falchion::tools
