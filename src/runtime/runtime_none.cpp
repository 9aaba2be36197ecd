// src/runtime/runtime_none.cpp: runtime.hpp for a build without GPU variants.
#include "args/gpu_merge_args.hpp"
#include "runtime/runtime.hpp"

namespace falchion::cuda {
namespace {

constexpr const char* kNone = "this build has no GPU variants (built with FALCHION_CUDA off)";
Status none() { return {Code::device, kNone}; }

}  // namespace

bool is_built() noexcept { return false; }
Device current_device() {
  Device device;
  device.why_not = kNone;
  return device;
}
std::string error_text(int) { return kNone; }
Status status_of(int error, const char*) { return error == 0 ? Status{} : none(); }
Status broken_context() { return {}; }
int current_ordinal() noexcept { return -1; }
Device device_at(int) { return current_device(); }
Status make_context() { return none(); }
Status make_current(int) { return none(); }
Status allocate_on(Stream, std::size_t, void** out) {
  *out = nullptr;
  return none();
}
void release_on(Stream, void*) noexcept {}
Status allocate(std::size_t, void** out) {
  *out = nullptr;
  return none();
}
void release(void*) noexcept {}
Status copy(void*, const void*, std::size_t) { return none(); }
Status fill(void*, int, std::size_t) { return none(); }
Status synchronize() { return none(); }
Timer::Timer() = default;
Timer::~Timer() = default;
Status Timer::start(Stream) { return none(); }
Status Timer::stop(Stream) { return none(); }
Status Timer::seconds(double*) { return none(); }

}  // namespace falchion::cuda

namespace falchion::gpu {

int launch_merge(const MergeArgs&, void*) { return -1; }  // merge() has refused

}  // namespace falchion::gpu
