// tests/support/host_warp.hpp: a warp on the host, so that tests run the very code of a kernel's scheduler without a
// GPU. Lanes are fibers: each runs until its next shuffle or ballot, and goes on when all 32 have come to it. This
// header must be included before the .cuh under test, because it declares, in falchion::gpu, the device functions that
// such code calls.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <functional>
#include <vector>

namespace falchion::testing {

class HostWarp {
 public:
  static constexpr int kLanes = 32;

  /// Runs program in each lane. Returns false if some lanes ended while others waited for them, which would hang a GPU.
  static bool run(const std::function<void()>& program) {
    HostWarp warp(program);
    return warp.run();
  }
  /// A lane calls this: it hands over its own value and gets those of all lanes.
  static const std::array<int, kLanes>& exchange(int value) {
    HostWarp& warp = *current_;
    warp.given_[warp.lane_] = value;
    swapcontext(&warp.fiber_[warp.lane_], &warp.scheduler_);
    return warp.all_;
  }
  static int lane() { return current_ != nullptr ? static_cast<int>(current_->lane_) : 0; }

 private:
  explicit HostWarp(const std::function<void()>& program) : program_(program) {}

  bool run() {
    current_ = this;
    for (lane_ = 0; lane_ < kLanes; ++lane_) {
      getcontext(&fiber_[lane_]);
      fiber_[lane_].uc_stack = {.ss_sp = &stacks()[lane_ * kStack], .ss_flags = 0, .ss_size = kStack};
      fiber_[lane_].uc_link = &scheduler_;
      makecontext(&fiber_[lane_], enter, 0);
    }
    std::size_t before = 0;
    bool together = true;
    while (ended_ == before && together) {  // In a round every lane runs up to its next exchange.
      for (lane_ = 0; lane_ < kLanes; ++lane_) swapcontext(&scheduler_, &fiber_[lane_]);
      all_ = given_;
      together = ended_ == 0 || ended_ == kLanes;
      if (ended_ == kLanes) break;
    }
    current_ = nullptr;
    return together;
  }
  static std::vector<std::byte>& stacks() {
    static std::vector<std::byte> stacks(kLanes * kStack);
    return stacks;
  }
  static void enter() {
    current_->program_();
    ++current_->ended_;
  }

  static constexpr std::size_t kStack = std::size_t{1} << 16;
  static inline HostWarp* current_ = nullptr;

  const std::function<void()>& program_;
  std::array<ucontext_t, kLanes> fiber_{};
  ucontext_t scheduler_{};
  std::array<int, kLanes> given_{}, all_{};
  std::size_t lane_ = 0, ended_ = 0;
};

}  // namespace falchion::testing

namespace falchion::gpu {

using std::max;
using std::min;

struct HostThreadIdx {
  struct Lane {
    operator int() const { return testing::HostWarp::lane(); }
  } x;
};
inline constexpr HostThreadIdx threadIdx{};

inline int __shfl_sync(unsigned, int value, int from) {
  return testing::HostWarp::exchange(value)[static_cast<std::size_t>(from % 32)];
}
inline float __shfl_sync(unsigned, float value, int from, int width) {
  const int first = testing::HostWarp::lane() / width * width;
  return std::bit_cast<float>(
      testing::HostWarp::exchange(std::bit_cast<int>(value))[static_cast<std::size_t>(first + from % width)]);
}
inline float __shfl_xor_sync(unsigned, float value, int by) {
  const int from = testing::HostWarp::lane() ^ by;
  return std::bit_cast<float>(testing::HostWarp::exchange(std::bit_cast<int>(value))[static_cast<std::size_t>(from)]);
}
inline int __shfl_up_sync(unsigned, int value, int by) {
  const int from = testing::HostWarp::lane() - by;
  return testing::HostWarp::exchange(value)[static_cast<std::size_t>(from < 0 ? from + by : from)];
}
inline unsigned __ballot_sync(unsigned, bool value) {
  unsigned mask = 0;
  const auto& all = testing::HostWarp::exchange(value);
  for (std::size_t lane = 0; lane < all.size(); ++lane) mask |= all[lane] != 0 ? 1u << lane : 0;
  return mask;
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }

}  // namespace falchion::gpu
