// tools/problem/operation.cpp: the names of the command's operations.
#include "problem/operation.hpp"

#include "command/words.hpp"

namespace falchion::tools {
namespace {

std::string joined(const std::vector<std::string>& names, const char* between) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : between) + name;
  return out;
}

}  // namespace

Op parse_op(const std::string& text, const char* option) {
  const std::string word = word_of(option, text, operation_names());
  for (const CommandOperation& entry : command_operations())
    if (word == entry.name) return entry.op;
  return Op::attention;  // word_of has found one
}

std::vector<std::string> operation_names() {
  std::vector<std::string> out;
  for (const CommandOperation& entry : command_operations()) out.emplace_back(entry.name);
  return out;
}

std::string operation_list() { return joined(operation_names(), ", "); }

std::vector<Op> operations_of(Kind kind) {
  std::vector<Op> out;
  for (const CommandOperation& entry : command_operations())
    if (entry.kind == kind) out.push_back(entry.op);
  return out;
}

std::string operation_list(const std::vector<Op>& ops) {
  std::vector<std::string> names;
  for (const Op op : ops) names.emplace_back(name(op));
  return joined(names, " and ");
}

}  // namespace falchion::tools
