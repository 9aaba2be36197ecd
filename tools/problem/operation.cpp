// tools/problem/operation.cpp: the table of the command's operations.
#include "problem/operation.hpp"

#include <fmt/core.h>

#include "tool.hpp"

namespace falchion::tools {
namespace {

constexpr CommandOperation kOperations[] = {
    {Op::attention, "attention", "attention_forward", Kind::attention, Pass::forward},
    {Op::linear, "linear", "linear_attention_forward", Kind::linear, Pass::forward},
    {Op::linear_backward, "linear-backward", "linear_attention_backward", Kind::linear, Pass::backward},
    {Op::attention_backward, "attention-backward", "attention_backward", Kind::attention, Pass::backward},
    {Op::gemm, "gemm", "gemm", Kind::gemm, Pass::forward},
    {Op::norm, "norm", "norm", Kind::norm, Pass::forward},
};

std::string joined(const std::vector<std::string>& names, const char* between) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : between) + name;
  return out;
}

}  // namespace

std::span<const CommandOperation> command_operations() { return kOperations; }

const CommandOperation& entry_of(Op op) { return kOperations[static_cast<std::size_t>(op)]; }

Op parse_op(const std::string& text, const char* option) {
  for (const CommandOperation& entry : kOperations)
    if (text == entry.name) return entry.op;
  throw UsageError{fmt::format("{}: \"{}\" is not one of {}", option, text, operation_list())};
}

std::vector<std::string> operation_names() {
  std::vector<std::string> out;
  for (const CommandOperation& entry : kOperations) out.emplace_back(entry.name);
  return out;
}

std::string operation_list() { return joined(operation_names(), ", "); }

std::vector<Op> operations_of(Kind kind) {
  std::vector<Op> out;
  for (const CommandOperation& entry : kOperations)
    if (entry.kind == kind) out.push_back(entry.op);
  return out;
}

std::string operation_list(const std::vector<Op>& ops) {
  std::vector<std::string> names;
  for (const Op op : ops) names.emplace_back(name(op));
  return joined(names, " and ");
}

}  // namespace falchion::tools
