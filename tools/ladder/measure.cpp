// tools/ladder/measure.cpp: the memory that the steps of a ladder work in, and how they are timed.
#include <algorithm>
#include <cstring>

#include "cuda/runtime.hpp"
#include "ladder/ladder.hpp"
#include "tool.hpp"

namespace falchion::tools {

SideMemory::SideMemory(Side side, std::size_t bytes) : side_(side), bytes_(bytes) {
  if (side == Side::cpu) {
    host_ = Buffer(bytes);
    data_ = host_.data();
  } else if (bytes > 0) {
    require(cuda::allocate(bytes, &data_), "ladder");
  }
}
SideMemory::~SideMemory() {
  if (side_ == Side::gpu) cuda::release(data_);
}
void SideMemory::put(const void* host) const {
  if (side_ == Side::cpu) {
    std::memcpy(data_, host, bytes_);
  } else if (bytes_ > 0) {
    require(cuda::copy(data_, host, bytes_));
  }
}
void SideMemory::get(void* host) const {
  if (side_ == Side::cpu) {
    std::memcpy(host, data_, bytes_);
  } else if (bytes_ > 0) {
    require(cuda::copy(host, data_, bytes_));
  }
}
void SideMemory::poison() const {
  if (side_ == Side::cpu) {
    std::memset(data_, 0xFF, bytes_);
  } else if (bytes_ > 0) {
    require(cuda::fill(data_, 0xFF, bytes_));
  }
}

Samples time_on(Side side, int runs, const std::function<void()>& run) {
  if (side == Side::cpu) return sample(runs, run);
  cuda::Timer timer;
  const auto timed = [&](int launches) {
    double seconds = 0;
    require(timer.start());
    for (int i = 0; i < launches; ++i) run();
    require(timer.stop());
    require(timer.seconds(&seconds), "ladder");
    return seconds / launches;
  };
  timed(1);  // loads the module
  // A launch costs the host a few microseconds: several are put between two events, so that only the first one shows.
  const int launches = std::clamp(static_cast<int>(3e-3 / timed(1)), 1, 100);
  Samples out;
  for (int i = 0; i < runs; ++i) out.seconds.push_back(timed(launches));
  return out;
}

}  // namespace falchion::tools
