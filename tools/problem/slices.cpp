// tools/problem/slices.cpp
#include "problem/slices.hpp"
#include "api/data_of.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

#include "base/fields.hpp"
#include "base/size.hpp"
#include "command/table.hpp"
#include "measure/measure.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

/// [begin, begin + count) of one axis; an axis that is broadcast (extent 1) stays.
void narrow(Tensor* t, std::size_t axis, std::int64_t begin, std::int64_t count) {
  if (t->data == nullptr || (t->shape[axis] == 1 && begin + count != 1)) return;
  t->data = static_cast<std::byte*>(t->data) + begin * t->stride[axis] * size_of(t->dtype);
  t->shape[axis] = count;
}

/// Which axis of an operand has the heads.
std::size_t head_axis(OperandField::Shape shape) {
  using enum OperandField::Shape;
  return shape == row_numbers || shape == pairs || shape == scores ? 1 : 2;
}

/// Whether both plans add up the same numbers in the same order.
bool same_order(const Plan& whole, const Plan& part) {
  const PlanData &a = *data_of(whole), &b = *data_of(part);
  const AttentionPlan &of_a = a.attention(), &of_b = b.attention();
  return a.backend == b.backend && a.variant == b.variant && of_a.keys == of_b.keys && of_a.splits == of_b.splits &&
         of_a.decode == of_b.decode;
}

}  // namespace

Slice slice_of(const Attention& a, const Operands& x, std::int64_t b, std::int64_t h, std::int64_t heads) {
  Slice s{a, x};
  const std::int64_t g = a.h_q / a.h_k;
  each_operand(a, Pass::forward, s.operands, [&](const OperandField& of, Tensor& tensor, bool) {
    const bool shared = of.shape == OperandField::k || of.shape == OperandField::v;  // by g query heads
    if (!a.packed) narrow(&tensor, 0, b, 1);
    narrow(&tensor, head_axis(of.shape), shared ? h / g : h, shared ? 1 : heads);
  });
  if (!a.packed) {
#define FALCHION_LENGTHS(key, ...) \
  if (x.key != nullptr) s.operands.key = x.key + b;
#include "base/fields.def"
    s.problem.b = 1;
  }
  s.problem.h_q = heads;
  s.problem.h_k = 1;
  return s;
}

std::vector<Slice> slices_of(const Attention& a, const Operands& x, const Target& target) {
  std::vector<Slice> out;
  if (a.dropout > 0 || a.h_q == 0 || a.b == 0) return out;
  const std::int64_t sequences = a.packed ? 1 : a.b, g = a.h_q / a.h_k;
  const std::int64_t heads = a.h_k * sequences > 1 ? g : 1;
  for (std::int64_t b = 0; b < sequences; ++b)
    for (std::int64_t h = 0; h < a.h_q; h += heads) out.push_back(slice_of(a, x, b, h, heads));
  Plan whole, part;
  require(Plan::make(a, Pass::forward, target, &whole));
  if (!Plan::make(out.front().problem, Pass::forward, target, &part) || !same_order(whole, part)) out.clear();
  return out;
}

void run_with_progress(const std::vector<Slice>& slices, const Target& target) {
  const Prepared prepared(slices.front().problem, target);
  const auto start = Clock::now();
  for (std::size_t i = 0; i < slices.size(); ++i) {
    require(prepared.run(slices[i].operands));
    const double done = static_cast<double>(i + 1) / static_cast<double>(slices.size()), spent = seconds_since(start);
    if (spent / done > 2 && isatty(STDERR_FILENO))
      fmt::print(stderr, "\r\033[K{:3.0f} %  {} of {} heads, {} left", done * 100, i + 1, slices.size(),
                 format_seconds(spent / done - spent));
  }
  if (isatty(STDERR_FILENO)) fmt::print(stderr, "\r\033[K");
}

}  // namespace falchion::tools
