// python/xla/call.hpp: one custom call, from XLA's buffers and attributes to a run of a plan. The steps are the same
// for every operation and both platforms: name the buffers, put the problem together, find the plan, run it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "attributes.hpp"
#include "buffers.hpp"
#include "plans.hpp"
#include "status.hpp"
#include "workspace.hpp"

namespace falchion::xla_ffi {

/// What a platform lends to a call.
struct Platform {
  std::int32_t device = -1;                       // CUDA's number of the device; -1: the host
  std::int32_t threads = 1;                       // on the host
  void* stream = nullptr;                         // a CUstream
  xla::ffi::ScratchAllocator* scratch = nullptr;  // on a GPU
};

/// One name of an operation's table: where the buffer goes, and which flag of the problem says that it is there.
template <class Operands, class Problem>
struct Name {
  std::string_view name;
  Axes axes;
  fal_tensor Operands::*tensor = nullptr;            // this,
  const std::int32_t* Operands::*lengths = nullptr;  // or this; with neither: rng
  std::uint8_t Problem::*flag = nullptr;
};

/// Puts the buffers that `names` lists into the operands, and sets their flags in the problem.
template <class Operation, class Buffers>
std::string take(std::string_view names, const Buffers& buffers, bool heads_first,
                 typename Operation::Operands* operands, typename Operation::Problem* problem) {
  for (std::size_t i = 0; !names.empty(); ++i) {
    const std::string_view name = next_name(&names);
    const auto* known = Operation::find(name);
    if (known == nullptr) return "there is no operand " + std::string(name);
    Buffer buffer;
    if (!buffer_at(buffers, i, &buffer)) return "there is no buffer for " + std::string(name);
    if (known->flag != nullptr) problem->*known->flag = 1;
    if (known->tensor != nullptr) {
      std::string why = view(name, buffer, known->axes, heads_first, &(operands->*known->tensor));
      if (!why.empty()) return why;
      continue;
    }
    std::string why = check_array(name, buffer, known->axes);
    if (!why.empty()) return why;
    if (known->lengths == nullptr) {
      Operation::take_rng(static_cast<const std::uint64_t*>(buffer.data), operands);
      continue;
    }
    operands->*known->lengths = static_cast<const std::int32_t*>(buffer.data);
    if constexpr (requires { problem->b; }) {
      if (known->axes == Axes::starts) problem->b = buffer.dims[0] - 1;
    }
  }
  return "";
}

/// Checks the lists of lengths once b is known: the engine reads b or b + 1 numbers of each and cannot see how many
/// there are. `take` has found all of these names and buffers.
template <class Operation, class Buffers>
std::string check_counts(std::string_view names, const Buffers& buffers, std::int64_t b) {
  for (std::size_t i = 0; !names.empty(); ++i) {
    const std::string_view name = next_name(&names);
    Buffer buffer;
    buffer_at(buffers, i, &buffer);
    std::string why = check_count(name, buffer, Operation::find(name)->axes, b);
    if (!why.empty()) return why;
  }
  return "";
}

inline bool buffer_at(const xla::ffi::RemainingArgs& all, std::size_t i, Buffer* out) {
  const auto found = all.get<xla::ffi::AnyBuffer>(i);
  if (!found.has_value()) return false;
  const auto dims = found.value().dimensions();
  *out = {found.value().untyped_data(), found.value().element_type(), {dims.begin(), dims.size()}};
  return true;
}
inline bool buffer_at(const xla::ffi::RemainingRets& all, std::size_t i, Buffer* out) {
  auto found = all.get<xla::ffi::AnyBuffer>(i);
  if (!found.has_value()) return false;
  const xla::ffi::AnyBuffer& buffer = *found.value();
  const auto dims = buffer.dimensions();
  *out = {buffer.untyped_data(), buffer.element_type(), {dims.begin(), dims.size()}};
  return true;
}

template <class Operation>
xla::ffi::Error call(std::int32_t pass, const Platform& platform, const xla::ffi::RemainingArgs& inputs,
                     const xla::ffi::RemainingRets& results, xla::ffi::Dictionary dictionary) {
  Attributes attributes(dictionary);
  Question<typename Operation::Problem> question;
  std::memset(static_cast<void*>(&question), 0, sizeof question);
  typename Operation::Operands operands{};
  operands.size = sizeof operands;
  auto& problem = question.problem;
  problem.size = sizeof problem;

  // Name the buffers.
  const bool heads_first = attributes.flag("heads_first");
  const std::string_view outputs = attributes.text("results");
  std::string why = take<Operation>(attributes.text("operands"), inputs, heads_first, &operands, &problem);
  if (why.empty()) why = take<Operation>(outputs, results, heads_first, &operands, &problem);

  // Put the problem together.
  Operation::complete(pass, outputs, &attributes, &operands, &problem);
  if constexpr (requires { problem.b; }) {
    if (why.empty()) why = check_counts<Operation>(attributes.text("operands"), inputs, problem.b);
    if (why.empty()) why = check_counts<Operation>(outputs, results, problem.b);
  }
  question.pass = pass;
  question.backend = attributes.code("backend");
  question.device = platform.device;
  question.threads = platform.threads;
  const std::int32_t threads = attributes.code("threads");
  if (threads > 0 && threads < question.threads) question.threads = threads;
  if (question.backend == FAL_BEST && platform.device < 0) question.backend = FAL_CPU;
  if (!attributes.why().empty()) return invalid(attributes.why());
  if (!why.empty()) return invalid(why);

  // Find the plan, and run it.
  static Plans<typename Operation::Problem>* plans = new Plans<typename Operation::Problem>;  // outlives every thread
  Plan plan;
  if (const fal_status status = plans->get(question, &plan); status != FAL_OK) return error_of(status);
  const std::size_t bytes = fal_plan_workspace(plan.get());
  const Workspace workspace(platform.scratch, bytes);
  if (!workspace.ok()) {
    return {xla::ffi::ErrorCode::kResourceExhausted,
            "there is no memory for a workspace of " + std::to_string(bytes) + " bytes"};
  }
  const fal_status status = Operation::run(plan.get(), operands, workspace.data(), bytes, platform.stream);
  return status == FAL_OK ? xla::ffi::Error::Success() : error_of(status);
}

}  // namespace falchion::xla_ffi
