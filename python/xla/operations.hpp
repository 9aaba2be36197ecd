// python/xla/operations.hpp: the operations of call.hpp: each has its C structs, its run, a table of names and what it
// reads besides. The tables are in attention.cpp, linear_attention.cpp, gemm.cpp and norm.cpp.
#pragma once

#include <cstdint>
#include <string_view>

#include "call.hpp"

namespace falchion::xla_ffi {

template <class P, class O, auto kRun>
struct Operation {
  using Problem = P;
  using Operands = O;
  using Known = Name<Operands, Problem>;

  /// Only attention has the name rng in its table.
  static void take_rng(const std::uint64_t* at, Operands* operands) {
    if constexpr (requires { operands->rng; }) operands->rng.at = at;
  }
  static fal_status run(const fal_plan* plan, const Operands& operands, void* workspace, std::size_t bytes,
                        void* stream) {
    return kRun(plan, &operands, workspace, bytes, stream);
  }
};

struct AttentionOperation : Operation<fal_attention, fal_operands, fal_plan_run> {
  static const Known* find(std::string_view name);
  static void complete(std::int32_t pass, std::string_view results, Attributes* attributes, Operands* operands,
                       Problem* problem);
};
struct LinearOperation : Operation<fal_linear_attention, fal_linear_operands, fal_linear_plan_run> {
  static const Known* find(std::string_view name);
  static void complete(std::int32_t pass, std::string_view results, Attributes* attributes, Operands* operands,
                       Problem* problem);
};
struct GemmOperation : Operation<fal_gemm, fal_gemm_operands, fal_gemm_plan_run> {
  static const Known* find(std::string_view name);
  static void complete(std::int32_t pass, std::string_view results, Attributes* attributes, Operands* operands,
                       Problem* problem);
};
struct NormOperation : Operation<fal_norm, fal_norm_operands, fal_norm_plan_run> {
  static const Known* find(std::string_view name);
  static void complete(std::int32_t pass, std::string_view results, Attributes* attributes, Operands* operands,
                       Problem* problem);
};

}  // namespace falchion::xla_ffi
