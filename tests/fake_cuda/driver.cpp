// tests/fake_cuda/driver.cpp: the fake driver that driver.hpp describes. It becomes libcuda.so.1 and needs no C++
// runtime.
#include "fake_cuda/driver.hpp"

#include <cstdint>

namespace {

using falchion::testing::FakeKind;

struct Range {
  std::uintptr_t begin, end;
  FakeKind kind;
  bool in_reach;
};
constexpr int kMost = 64;
Range ranges[kMost];
int range_count = 0, answer = 0;
unsigned long long questions[256];  // The addresses that were asked for, in order. The latest overwrite the oldest.
unsigned question_count = 0;
void* context = ranges;  // Any address would do.

void set(void* to, unsigned value) { *static_cast<unsigned*>(to) = value; }

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int cuPointerGetAttributes(unsigned count, int* attributes, void** values,
                                                                  unsigned long long pointer) {
  questions[question_count++ % 256] = pointer;
  if (answer != 0) return answer;
  const Range* found = nullptr;
  for (int i = 0; i < range_count; ++i)
    if (pointer >= ranges[i].begin && pointer < ranges[i].end) found = &ranges[i];
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case 2: set(values[i], found == nullptr ? 0 : found->kind == FakeKind::pinned ? 1 : 2); break;
      case 3:
        *static_cast<unsigned long long*>(values[i]) =
            found != nullptr && found->in_reach && context != nullptr ? pointer : 0;
        break;
      case 8: set(values[i], found != nullptr && found->kind == FakeKind::managed ? 1 : 0); break;
      // This is CUDA_ERROR_INVALID_VALUE, because the test does not know this question.
      default: return 1;
    }
  }
  return 0;
}

__attribute__((visibility("default"))) int cuCtxGetCurrent(void** out) {
  *out = context;
  return answer;
}
__attribute__((visibility("default"))) int cuCtxSetCurrent(void* to) {
  if (answer == 0) context = to;
  return answer;
}

__attribute__((visibility("default"))) void fake_add(const void* begin, std::size_t bytes, FakeKind kind,
                                                     bool in_reach) {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  if (range_count < kMost) ranges[range_count++] = {address, address + bytes, kind, in_reach};
}
__attribute__((visibility("default"))) void fake_forget() {
  range_count = 0;
  question_count = 0;
  answer = 0;
  context = ranges;
}
__attribute__((visibility("default"))) void fake_fail_with(int error) { answer = error; }
__attribute__((visibility("default"))) int fake_times_asked(const void* address) {
  int times = 0;
  for (unsigned i = 0; i < question_count && i < 256; ++i)
    if (questions[i] == reinterpret_cast<std::uintptr_t>(address)) ++times;
  return times;
}
__attribute__((visibility("default"))) void fake_has_context(bool yes) { context = yes ? ranges : nullptr; }

}  // extern "C"
