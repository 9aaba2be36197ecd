// tests/support/roles.hpp: warps that wait for each other, as coroutines: barriers, what a role waits for, the role,
// and its position in a ring. support/hopper_cta.hpp makes a model of a Hopper CTA from them.
#pragma once

#include <coroutine>
#include <exception>
#include <string>
#include <utility>

namespace falchion::testing {

/// An mbarrier. `expected` arrivals complete a phase, and wait(parity) ends when the phase of that parity is complete.
struct Barrier {
  int expected = 1, arrived = 0, phases = 0;
  void arrive() {
    if (++arrived == expected) {
      arrived = 0;
      ++phases;
    }
  }
};

/// What a role waits for: a phase of a barrier, which is identified by its parity, as in the hardware.
struct Wait {
  const Barrier* barrier = nullptr;
  int parity = 0;
  bool over() const { return barrier == nullptr || barrier->phases % 2 != parity; }
};

/// A role of the CTA, which runs until it has to wait.
class Role {
 public:
  struct promise_type {
    Wait wait{};
    std::string failure{};
    Role get_return_object() { return Role(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_value(std::string why) { failure = std::move(why); }
    void unhandled_exception() { std::terminate(); }
    std::suspend_always await_transform(Wait next) {
      wait = next;
      return {};
    }
  };
  explicit Role(std::coroutine_handle<promise_type> handle) : handle(handle) {}
  Role(Role&& other) noexcept : handle(std::exchange(other.handle, {})) {}
  Role(const Role&) = delete;
  ~Role() {
    if (handle) handle.destroy();
  }
  bool done() const { return handle.done(); }
  bool can_go_on() const { return !done() && handle.promise().wait.over(); }
  void go_on() const { handle.resume(); }
  const std::string& failure() const { return handle.promise().failure; }

 private:
  std::coroutine_handle<promise_type> handle;
};

/// A position in a ring, like RingPosition of src/gpu/blocks/sm90_tma.cuh.
struct At {
  int stages, stage = 0, parity = 0;
  void advance() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace falchion::testing
