// tools/ladder/measure.cpp: the memory that the steps of a ladder work in, and how they are timed.
#include <algorithm>
#include <cstring>
#include <utility>

#include "ladder/ladder.hpp"
#include "problem/errors.hpp"
#include "runtime/runtime.hpp"
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

void note_error(const char* output, const judge::ErrorReport& error, LadderRow* row) {
  row->error = error.error;
  row->share = error.share();
  row->wrong = error.why;
  row->errors = {{output, to_json(error)}};
}

void check_and_time(const std::function<void()>& check, const std::function<void()>& time, LadderRow* row) {
  check();
  time();
  if (!row->passed()) return;
  check();
  if (!row->passed()) row->wrong = "after the timed runs: " + row->wrong;
}

Samples time_on(Side side, int runs, const std::function<void()>& run) {
  return std::move(time_in_turns(side, runs, {run}).front());
}

std::vector<Samples> time_in_turns(Side side, int runs, const std::vector<std::function<void()>>& all) {
  std::vector<Samples> out;
  if (side == Side::cpu) {
    for (const auto& run : all) out.push_back(sample(runs, run));
    return out;
  }
  cuda::Timer timer;
  const auto timed = [&](const std::function<void()>& run, int launches) {
    double seconds = 0;
    require(timer.start());
    for (int i = 0; i < launches; ++i) run();
    require(timer.stop());
    require(timer.seconds(&seconds), "ladder");
    return seconds / launches;
  };
  // A launch costs the host a few microseconds, so several launches are put between two events; only the first one's
  // cost is visible.
  std::vector<int> launches;
  for (const auto& run : all) {
    timed(run, 1);  // loads the module
    launches.push_back(std::clamp(static_cast<int>(3e-3 / timed(run, 1)), 1, 100));
  }
  out.resize(all.size());
  for (int i = 0; i < runs; ++i)
    for (std::size_t turn = 0; turn < all.size(); ++turn) out[turn].seconds.push_back(timed(all[turn], launches[turn]));
  return out;
}

}  // namespace falchion::tools
