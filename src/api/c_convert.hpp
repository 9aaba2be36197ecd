// src/api/c_convert.hpp: common to all functions of the C API: converts structs of the caller's size, checks enums,
// stops exceptions, keeps texts.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include "api/c_sizes.hpp"
#include "api/check.hpp"
#include "falchion/falchion.h"
#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"

namespace falchion {

/// Keeps the reason for fal_why(), and returns the code.
fal_status report(const Status& status) noexcept;
const char* last_why() noexcept;

/// A text that is made at the first request, by any thread, and then never changes.
class LazyText {
 public:
  /// Null if it cannot be made; fal_why() then has the reason.
  template <class Make>
  const char* get(const Make& make) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      if (!text_) text_ = make();
      return text_->c_str();
    } catch (...) {
      report(caught());
      return nullptr;
    }
  }

 private:
  std::mutex mutex_;
  std::optional<std::string> text_;
};

}  // namespace falchion

/// Most plans never need a text, and making one takes as long as planning.
struct fal_plan {
  falchion::Plan plan;
  mutable falchion::LazyText describe, text, json;
};

namespace falchion {

template <class Body>
fal_status guarded(const Body& body) noexcept {
  try {
    return report(body());
  } catch (...) { return report(caught()); }
}

/// Copies the fields that the caller's struct has. A newer caller's extra fields must be 0: this version lacks their
/// features.
template <class T>
bool copy(const char* name, const T* from, T* to, Check* check) {
  *to = T{};
  to->size = sizeof(T);
  if (!check->require(from != nullptr, name, " is null")) return false;
  const std::size_t size = from->size;
  if (!check->require(size >= kFirstSize<T> && size <= 65536, name, ".size = ", size, ": it must be sizeof(fal_", name,
                      "), ", sizeof(T), " here")) {
    return false;
  }
  std::memcpy(to, from, std::min(size, sizeof(T)));
  to->size = sizeof(T);
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  const bool known =
      size <= sizeof(T) || std::all_of(bytes + sizeof(T), bytes + size, [](unsigned char x) { return x == 0; });
  return check->require(known, name, ": made for a newer falchion than ", version(), ", and uses what it added");
}

/// A number of the caller's as an enum; 255, which no enum has, if it has been refused. The message has its name, which
/// may come in parts: "q", ".dtype".
template <class Enum, class... Name>
Enum to_enum(std::int32_t value, Enum last, Check* check, const Name&... name) {
  const bool known = value >= 0 && value <= static_cast<std::int32_t>(last);
  check->require(known, name..., " = ", value, ": it must be 0 to ", static_cast<std::int32_t>(last));
  return known ? static_cast<Enum>(value) : static_cast<Enum>(255);
}

/// A field that is 0 or 1. Other numbers are refused, as for an enum: a later version may define them.
inline bool to_flag(std::uint8_t value, Check* check, const char* name) {
  check->require(value <= 1, name, " = ", static_cast<int>(value), ": it must be 0 or 1");
  return value != 0;
}

/// A reserved field, which a later version may use: its name in parts, as above.
template <class... Name>
void check_reserved(std::int64_t value, Check* check, const Name&... name) {
  check->require(value == 0, name..., " = ", value, ": a reserved field must be 0");
}

/// An array of such fields; its name is in one part.
template <std::size_t n>
void check_reserved(const std::uint8_t (&values)[n], Check* check, const char* name) {
  for (std::size_t i = 0; i < n; ++i) check_reserved(values[i], check, name, "[", i, "]");
}

/// name: the operand's, "q".
Tensor to_tensor(const char* name, const fal_tensor& x, Check* check);
Target to_target(const fal_target* from, Check* check);

/// A text that the caller may read until this thread's next call. Null if it cannot be made, as above.
template <class Make>
const char* kept_text(std::string* place, const Make& make) noexcept {
  try {
    *place = make();
    return place->c_str();
  } catch (...) {
    report(caught());
    return nullptr;
  }
}

/// The caller's number as a Format; an unknown one is refused, and the caller returns null.
inline std::optional<Format> to_format(std::int32_t value) noexcept try {
  Check check;
  const Format format = to_enum(value, Format::json, &check, "format");
  if (check.ok()) return format;
  report(check.take());
  return std::nullopt;
} catch (...) {
  report(caught());
  return std::nullopt;
}

// What the functions of one kind of problem do, whatever it is. to_problem and to_operands: its struct of the caller's
// as C++ has it.

/// fal_plan_make and its like. pass: the caller's number, or nothing for a problem that has no passes.
template <class Problem, class From, class... Number>
fal_status c_plan_make(Problem (*to_problem)(const From*, Check*), const From* problem, const fal_target* target,
                       fal_plan** out, Number... pass) noexcept {
  return guarded([&]() -> Status {
    Check check;
    if (!check.require(out != nullptr, "out is null")) return check.take();
    *out = nullptr;
    const Problem a = to_problem(problem, &check);
    const Target t = to_target(target, &check);
    const std::array<Pass, sizeof...(pass)> p{to_enum(pass, Pass::backward, &check, "pass")...};
    if (!check.ok()) return check.take();
    auto plan = std::make_unique<fal_plan>();
    const auto make = [&](auto... known) { return Plan::make(a, known..., t, &plan->plan); };
    if (Status status = std::apply(make, p); !status) return status;
    *out = plan.release();
    return {};
  });
}

/// fal_plan_run and its like.
template <class AnyOperands, class From>
fal_status c_plan_run(AnyOperands (*to_operands)(const From*, Check*), const fal_plan* plan, const From* operands,
                      void* workspace, std::size_t workspace_bytes, void* stream) noexcept {
  return guarded([&]() -> Status {
    Check check;
    check.require(plan != nullptr, "plan is null");
    const AnyOperands x = to_operands(operands, &check);
    return check.ok() ? plan->plan.run(x, workspace, workspace_bytes, stream) : check.take();
  });
}

/// fal_explain and its like.
template <class Problem, class From, class... Number>
const char* c_explain(Problem (*to_problem)(const From*, Check*), const From* problem, const fal_target* target,
                      std::int32_t format, Number... pass) noexcept {
  thread_local std::string place;
  const std::optional<Format> wanted = to_format(format);
  if (!wanted) return nullptr;
  return kept_text(&place, [&] {
    Check check;
    const Problem a = to_problem(problem, &check);
    const Target t = to_target(target, &check);
    const std::array<Pass, sizeof...(pass)> p{to_enum(pass, Pass::backward, &check, "pass")...};
    const auto tell = [&](auto... known) { return explain(a, known..., t, *wanted); };
    return check.ok() ? std::apply(tell, p) : explain_refusal(check.take(), *wanted);
  });
}

/// fal_attention_run and its like. call: the one-call form of C++.
template <class Problem, class AnyOperands, class From, class FromOperands>
fal_status c_call(Status (*call)(const AnyOperands&, const Problem&, Target, Stream) noexcept,
                  Problem (*to_problem)(const From*, Check*), const From* options,
                  AnyOperands (*to_operands)(const FromOperands*, Check*), const FromOperands* operands,
                  const fal_target* target, void* stream) noexcept {
  return guarded([&]() -> Status {
    Check check;
    const AnyOperands x = to_operands(operands, &check);
    const Problem a = options != nullptr ? to_problem(options, &check) : Problem{};
    const Target t = to_target(target, &check);
    return check.ok() ? call(x, a, t, stream) : check.take();
  });
}

}  // namespace falchion
