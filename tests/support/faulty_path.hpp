// tests/support/faulty_path.hpp: how many problems of a storm show that a path is faulty.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "verify/draw.hpp"
#include "verify/paths.hpp"
#include "verify/subject.hpp"

namespace falchion::tools::storm {

/// A faulty path: what it reads is what the definition reads from a memory that the fault has changed.
struct Fault {
  const char* name;
  std::function<bool(const Problem&)> may_show;
  std::function<void(const Problem&, const Image&, std::byte* copy)> apply;
};

/// Of problems of attention that draw(index) gives, with at most so many pairs of rows: how many that may show the
/// fault were drawn, and how many did.
template <class Draw>
std::pair<int, int> storm_with(const Fault& fault, const Draw& draw, std::int64_t most_pairs) {
  int drawn = 0, found = 0;
  for (std::uint64_t i = 0; drawn < 30; ++i) {
    const Problem p = draw(i);
    const Attention& a = p.attention;
    if (!fault.may_show(p) || a.s_q == 0 || a.b * a.h_q * a.s_q * a.s_k > most_pairs) continue;
    Plan plan;
    EXPECT_TRUE(Plan::make(a, Pass::forward, Target(Backend::ref), &plan));
    if (may_exceed_the_hint(p, plan)) continue;
    const auto subject = make_subject(p);
    const Image& image = subject->image();
    GuardedBuffer copy, workspace;
    copy.resize(image.size());
    std::memcpy(copy.data(), image.data(), image.size());
    fault.apply(p, image, copy.data());
    workspace.resize(plan.workspace_bytes());
    const Status ran = subject->run(plan, copy.data(), workspace.data(), workspace.size());
    EXPECT_TRUE(ran) << ran.why << ": " << to_text(p);
    found += subject->judge(copy.data(), false).empty() ? 0 : 1;
    EXPECT_TRUE(subject->measured().empty() || subject->measured().starts_with("o: relative RMSE "));
    ++drawn;
  }
  return {drawn, found};
}

/// A fifth of the problems that may show a fault must show it, and none may show one that is not there.
template <class Draw>
void expect_found(std::span<const Fault> faults, const Draw& draw, std::int64_t most_pairs) {
  const Fault none{"nothing", [](const Problem&) { return true; }, [](const Problem&, const Image&, std::byte*) {}};
  EXPECT_EQ(storm_with(none, draw, most_pairs).second, 0);
  for (const Fault& fault : faults) {
    const auto [drawn, found] = storm_with(fault, draw, most_pairs);
    EXPECT_GE(5 * found, drawn) << "a path that " << fault.name << ": " << found << " of " << drawn;
  }
}

}  // namespace falchion::tools::storm
