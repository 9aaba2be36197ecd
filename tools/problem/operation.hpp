// tools/problem/operation.hpp: the operations of the command. Whoever adds an operation adds its entry to
// operation.cpp, and --op of run, bench, explain and verify has it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "falchion/falchion.hpp"

namespace falchion::tools {

/// A storm's random numbers depend on this value. So a new operation goes to the end, and old seeds keep their
/// problems.
enum class Op : std::uint8_t { attention, linear, linear_backward, attention_backward, gemm, norm };

/// Which of the library's descriptions of a problem an operation takes: Attention, LinearAttention, Gemm or Norm.
enum class Kind : std::uint8_t { attention, linear, gemm, norm };

struct CommandOperation {
  Op op;
  const char* name;       // of --op, and of op= in the text of a storm's problem: "linear-backward"
  const char* operation;  // as the library and variants.def name it: "linear_attention_backward"
  Kind kind;
  Pass pass;
};

/// The entries stand in the order of Op, because entry_of() indexes them.
std::span<const CommandOperation> command_operations();
const CommandOperation& entry_of(Op op);

inline const char* name(Op op) { return entry_of(op).name; }
inline Kind kind_of(Op op) { return entry_of(op).kind; }
inline Pass pass_of(Op op) { return entry_of(op).pass; }
/// Throws UsageError, which names the option that the text was given to.
Op parse_op(const std::string& text, const char* option = "--op");

std::vector<std::string> operation_names();
std::string operation_list();  // "attention, linear, linear-backward, ..."
std::vector<Op> operations_of(Kind kind);
std::string operation_list(const std::vector<Op>& ops);  // "linear and linear-backward"
inline std::string operation_list(Kind kind) { return operation_list(operations_of(kind)); }

}  // namespace falchion::tools
