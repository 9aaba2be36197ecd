// src/api/problem_line.cpp: writes a problem as a line, with the memory layout of its operands.
#include "api/problem_line.hpp"

#include <algorithm>
#include <numeric>

#include "api/problem_fields.hpp"
#include "base/size.hpp"
#include "plan/text.hpp"

namespace falchion::line {
namespace {

constexpr CommandOperation kOperations[] = {
    {Op::attention, "attention", "attention_forward", Kind::attention, Pass::forward},
    {Op::linear, "linear", "linear_attention_forward", Kind::linear, Pass::forward},
    {Op::linear_backward, "linear-backward", "linear_attention_backward", Kind::linear, Pass::backward},
    {Op::attention_backward, "attention-backward", "attention_backward", Kind::attention, Pass::backward},
    {Op::gemm, "gemm", "gemm", Kind::gemm, Pass::forward},
    {Op::norm, "norm", "norm", Kind::norm, Pass::forward},
    {Op::quantise, "quantise", "quantise", Kind::quantise, Pass::forward},
    {Op::norm_backward, "norm-backward", "norm_backward", Kind::norm, Pass::backward},
};

bool has(unsigned axes, std::size_t axis) { return (axes >> axis & 1U) != 0; }

/// Sets pad and gap from the strides, which increase along x->order from the innermost axis on. For strides that no pad
/// and gap can give the result is wrong; the caller checks that.
void set_gaps(const Tensor& t, Storage* x) {
  std::int64_t step = 1;
  for (std::size_t n = 4; n-- > 0;) {
    const auto axis = static_cast<std::size_t>(x->order[n] - '0');
    const bool counts = t.shape[axis] > 1 && t.stride[axis] != 0;
    const std::int64_t stride = t.stride[axis] < 0 ? -t.stride[axis] : t.stride[axis];
    if (counts && n == 2) x->pad = stride - step;
    if (counts && n == 1) x->gap = stride - step;
    step = counts ? stride * t.shape[axis] : step;
  }
}

bool has_strides_of(const Storage& storage, const Tensor& t) {
  if (storage.pad < 0 || storage.gap < 0) return false;
  const Strides made = strides_of(storage, t.shape);
  for (std::size_t axis = 0; axis < 4; ++axis)
    if (t.shape[axis] > 1 && made.stride[axis] != t.stride[axis]) return false;
  return true;
}

}  // namespace

std::span<const CommandOperation> command_operations() { return kOperations; }

const CommandOperation& entry_of(Op op) { return kOperations[static_cast<std::size_t>(op)]; }

Strides strides_of(const Storage& storage, const std::array<std::int64_t, 4>& shape) {
  constexpr std::int64_t wild[4] = {std::int64_t{1} << 40, -7, 0, 12345};
  Strides out;
  std::int64_t step = 1, reach = 0;
  bool empty = false;
  for (std::size_t n = 4; n-- > 0;) {
    const auto axis = static_cast<std::size_t>(storage.order[n] - '0');
    const std::int64_t extent = has(storage.zero, axis) ? std::min<std::int64_t>(shape[axis], 1) : shape[axis];
    const std::int64_t last = std::max<std::int64_t>(extent - 1, 0);
    empty = empty || shape[axis] == 0;
    out.stride[axis] = has(storage.zero, axis) ? 0 : has(storage.flip, axis) ? -step : step;
    if (has(storage.flip, axis)) out.first += last * step;
    if (storage.wild && shape[axis] <= 1) out.stride[axis] = wild[axis];
    reach += last * step;
    step *= std::max<std::int64_t>(extent, 1);
    step += n == 3 ? storage.pad : n == 2 ? storage.gap : 0;
  }
  out.count = empty ? 0 : reach + 1;
  return out;
}

std::string to_text(const Storage& x) {
  std::string out;
  const auto add = [&](const std::string& part) { out += (out.empty() ? "" : "+") + part; };
  if (x.order != Storage{}.order) add(x.order);
  if (x.pad != 0) add(text("pad", x.pad));
  if (x.gap != 0) add(text("gap", x.gap));
  if (x.start != 0) add(text("start", x.start));
  if (x.flip != 0) add(text("flip", x.flip));
  if (x.zero != 0) add(text("zero", x.zero));
  if (x.wild) add("wild");
  return out.empty() ? "dense" : out;
}

bool storage_of(const Tensor& t, Storage* out) {
  Storage x;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (t.shape[axis] == 0) return true;
    if (t.shape[axis] == 1) continue;
    if (t.stride[axis] == 0) x.zero |= 1U << axis;
    if (t.stride[axis] < 0) x.flip |= 1U << axis;
  }
  bool found = false;
  do {  // the first order is that of the axes, and only where none has the strides it goes to the last
    x.pad = x.gap = 0;
    set_gaps(t, &x);
    found = has_strides_of(x, t);
  } while (!found && std::next_permutation(x.order.begin(), x.order.end()));
  if (!found) return false;
  constexpr std::uintptr_t kVector = 16;  // what kernels ask of an address
  const auto size = static_cast<std::uintptr_t>(size_of(t.dtype));
  const auto first = static_cast<std::uintptr_t>(strides_of(x, t.shape).first);
  x.start = static_cast<std::int64_t>((reinterpret_cast<std::uintptr_t>(t.data) - first * size) % kVector / size);
  *out = x;
  return true;
}

const Storage& Problem::storage_of(const std::string& operand) const {
  static const Storage dense;
  const auto found = storage.find(operand);
  return found == storage.end() ? dense : found->second;
}

std::int64_t sum(const Lengths& list) { return std::accumulate(list.begin(), list.end(), std::int64_t{0}); }

void resize(Lengths* list, bool wanted, std::int64_t b) { list->resize(wanted ? static_cast<std::size_t>(b) : 0); }

std::string to_text(const Problem& problem) {
  Problem plain;
  plain.op = problem.op;
  std::map<std::string, std::string> defaults;
  for_each_field(plain, [&](const char* key, const auto& value) { defaults[key] = write(value); });
  std::string out = falchion::text("op=", name(problem.op));
  for_each_field(problem, [&](const char* key, const auto& value) {
    const std::string text = write(value);
    if (text != defaults[key] || std::string(key) == "dtype") out += falchion::text(" ", key, "=", text);
  });
  for (const auto& [operand, storage] : problem.storage)
    if (storage != Storage{}) out += falchion::text(" layout_", operand, "=", to_text(storage));
  return out;
}

}  // namespace falchion::line
