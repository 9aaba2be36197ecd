// tests/support/host_grid.hpp: the CTAs of a launch on the host, one thread of each, so that a test runs the very code
// with which CTAs talk to each other through global memory. CTAs are fibers: each runs until its next atomic access,
// and then a random one goes on. As on a GPU, a relaxed store may reach the others later than stores that follow it,
// but never later than a release. A load never comes before an earlier one of its CTA, so a missing acquire is not
// found here.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "support/random.hpp"

namespace falchion::testing {

class HostGrid {
 public:
  /// The first CTA begins only after the others have made so many steps.
  enum class Start { together, first_cta_late };

  /// Runs program in each of `ctas` CTAs. Returns false if they have not ended after very many steps.
  static bool run(int ctas, std::uint64_t seed, Start start, const std::function<void()>& program) {
    HostGrid grid(ctas, seed, start, program);
    return grid.run();
  }
  static unsigned cta() { return current_ != nullptr ? static_cast<unsigned>(current_->cta_) : 0; }

  // tests/fake_cuda/atomic calls these before an access.
  static void store(const void* object, std::function<void()> write, bool release) {
    HostGrid& grid = *current_;
    grid.wait_for_turn();
    if (release) grid.flush([](const Store&) { return true; });
    grid.own().stores.push_back({object, std::move(write)});
    if (release) grid.flush([](const Store&) { return true; });
  }
  /// A CTA sees its own stores to what it looks at.
  static void look(const void* object) {
    HostGrid& grid = *current_;
    grid.wait_for_turn();
    grid.flush([object](const Store& x) { return x.object == object; });
  }

 private:
  struct Store {
    const void* object;
    std::function<void()> write;
  };
  struct Cta {
    ucontext_t context{};
    std::vector<std::byte> stack;
    std::vector<Store> stores{};  // that the others do not see yet
    bool ended = false;
  };

  HostGrid(int ctas, std::uint64_t seed, Start start, const std::function<void()>& program)
      : ctas_(static_cast<std::size_t>(ctas)), seed_(seed), start_(start), program_(program) {
    for (Cta& x : ctas_) {
      x.stack.resize(kStack);
      getcontext(&x.context);
      x.context.uc_stack = {.ss_sp = x.stack.data(), .ss_flags = 0, .ss_size = kStack};
      x.context.uc_link = &scheduler_;
      makecontext(&x.context, enter, 0);
    }
  }
  bool run() {
    current_ = this;
    std::size_t ended = 0;
    std::uint64_t step = 0;
    for (; ended < ctas_.size() && step < kSteps; ++step) {
      const std::uint64_t random = random_bits(seed_, step);
      cta_ = random % ctas_.size();
      const bool late = start_ == Start::first_cta_late && cta_ == 0 && ctas_.size() > 1 && step < kLate;
      if (own().ended || late) continue;
      if (random >> 62 == 0) flush_one(random >> 32);
      swapcontext(&scheduler_, &own().context);
      if (own().ended) ++ended;
    }
    for (cta_ = 0; cta_ < ctas_.size(); ++cta_) flush([](const Store&) { return true; });
    current_ = nullptr;
    return ended == ctas_.size();
  }
  static void enter() {
    current_->program_();
    current_->own().ended = true;
  }
  void wait_for_turn() { swapcontext(&own().context, &scheduler_); }
  Cta& own() { return ctas_[cta_]; }
  /// Makes those stores of the CTA visible for which `which` is true.
  template <class Which>
  void flush(const Which& which) {
    std::vector<Store> kept;
    for (Store& x : own().stores) {
      if (which(x))
        x.write();
      else
        kept.push_back(std::move(x));
    }
    own().stores = std::move(kept);
  }
  /// Makes the CTA's stores to one object visible, whichever was stored first.
  void flush_one(std::uint64_t random) {
    if (own().stores.empty()) return;
    const void* object = own().stores[random % own().stores.size()].object;
    flush([object](const Store& x) { return x.object == object; });
  }

  static constexpr std::size_t kStack = std::size_t{1} << 16;
  static constexpr std::uint64_t kSteps = 20000, kLate = 300;
  static inline HostGrid* current_ = nullptr;

  std::vector<Cta> ctas_;
  ucontext_t scheduler_{};
  std::size_t cta_ = 0;
  const std::uint64_t seed_;
  const Start start_;
  const std::function<void()>& program_;
};

}  // namespace falchion::testing

namespace falchion {

struct HostBlockIdx {
  struct Cta {
    operator unsigned() const { return testing::HostGrid::cta(); }  // NOLINT(google-explicit-constructor): as on a GPU
  } x;
};
inline constexpr HostBlockIdx blockIdx{};

}  // namespace falchion
