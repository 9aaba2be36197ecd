// python/xla/norm.hpp: layer norm and RMSNorm as an operation of call.hpp.
#pragma once

#include <cstdint>
#include <string_view>

#include "call.hpp"

namespace falchion::xla_ffi {

struct NormOperation {
  using Problem = fal_norm;
  using Operands = fal_norm_operands;
  using Known = Name<Operands, Problem>;

  static const Known* find(std::string_view name);
  static void take_rng(const std::uint64_t*, Operands*) {}  // no name of the table is rng
  static void complete(std::int32_t pass, std::string_view results, Attributes* attributes, Operands* operands,
                       Problem* problem);
  static fal_status run(const fal_plan* plan, const Operands& operands, void* workspace, std::size_t bytes,
                        void* stream) {
    return fal_norm_plan_run(plan, &operands, workspace, bytes, stream);
  }
};

}  // namespace falchion::xla_ffi
