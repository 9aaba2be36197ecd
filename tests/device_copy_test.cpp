// tests/device_copy_test.cpp: tests what tools/problem/device_copy.hpp promises about addresses, gaps, overlaps and
// guards. No GPU is needed, because the host's own memory takes the place of the device's.
#include "problem/device_copy.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "support/contract.hpp"
#include "support/gradients.hpp"

// In this executable these functions take the place of runtime/runtime_*.cpp.
namespace falchion::cuda {
Device current_device() { return {}; }
std::string error_text(int) { return ""; }
Status status_of(int, const char*) { return {}; }
Status broken_context() { return {}; }
Device device_at(int) { return {}; }
Status make_current(int) { return {}; }
int current_ordinal() noexcept { return 0; }
Status make_context() { return {}; }
Status allocate_on(Stream, std::size_t bytes, void** out) { return allocate(bytes, out); }
void release_on(Stream, void* memory) noexcept { release(memory); }
Status allocate(std::size_t bytes, void** out) {
  *out = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return {};
}
void release(void* memory) noexcept { std::free(memory); }
Status copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return {};
}
Status fill(void* memory, int byte, std::size_t bytes) {
  std::memset(memory, byte, bytes);
  return {};
}
Status synchronize() { return {}; }
Timer::Timer() = default;
Timer::~Timer() = default;
Status Timer::start(Stream) { return {}; }
Status Timer::stop(Stream) { return {}; }
Status Timer::seconds(double* out) {
  *out = 0;
  return {};
}
}  // namespace falchion::cuda

namespace falchion::testing {
namespace {

std::vector<cuda::Bytes> whole(const Instance& x) {
  std::vector<cuda::Bytes> out;
  for (const HostTensor* tensor : x.tensors()) out.push_back({tensor->memory(), tensor->memory_bytes()});
  return out;
}

TEST(DeviceCopy, EveryCaseRunsOnTheMirror) {
  for (const Case& row : cases()) {
    if (row.s_q * row.s_k > 12000) continue;
    SCOPED_TRACE(row.name);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Instance x = make_instance(row, dtype);
      x.poison_outputs();
      Plan plan;
      ASSERT_TRUE(Plan::make(x.problem, Pass::forward, Backend::ref, &plan));
      const Status status = cuda::run_on_device(plan, x.problem, x.operands(), whole(x));
      ASSERT_TRUE(status) << status.why;
      EXPECT_TRUE(matches(x, Reference(x)));
    }
  }
}

/// The backward pass has more tensors, and o and lse are inputs there, which come back as they were.
TEST(DeviceCopy, EveryCaseOfTheBackwardPassRunsOnTheMirror) {
  for (Case row : cases()) {
    if (row.s_q * row.s_k > 12000) continue;
    SCOPED_TRACE(row.name);
    row.options.lse = true;
    for (const bool all : {false, true}) {
      const Shape slopes = {row.slopes_by_batch_ ? row.b : 1, 1, row.h_q, 1};
      const Wanted wanted{.grad_lse = all,
                          .grad_bias = row.bias_ == Case::Bias::f32 ? Shape{1, row.h_q, 1, row.s_k} : Shape{},
                          .grad_alibi = row.options.alibi ? slopes : Shape{},
                          .grad_sinks = row.options.sinks ? slopes : Shape{},
                          .zero_unused = all};
      Gradients here(row, DType::bf16, wanted), there(row, DType::bf16, wanted);
      const std::vector<std::byte> o(there.x.o.memory(), there.x.o.memory() + there.x.o.memory_bytes());
      here.run();
      Plan plan;
      ASSERT_TRUE(Plan::make(there.x.problem, Pass::backward, Backend::ref, &plan));
      const Status status = cuda::run_on_device(plan, there.x.problem, there.operands(), there.whole());
      ASSERT_TRUE(status) << status.why;
      const auto same_bytes = [](const char* name, const HostTensor& x, const HostTensor& y) {
        if (x.memory_bytes() == 0) return;  // It may have no address then, and memcmp wants one.
        EXPECT_EQ(std::memcmp(x.memory(), y.memory(), x.memory_bytes()), 0) << name;
      };
      for_each_gradient(here, there, same_bytes);
      if (!o.empty()) { EXPECT_EQ(std::memcmp(o.data(), there.x.o.memory(), o.size()), 0); }
    }
  }
}

/// A tensor without elements may have the address of another one.
TEST(DeviceCopy, AnEmptyTensorTakesNobodysPlace) {
  Instance x = make_instance(Case{"x", 1, 5, 6, 1, 1, 16, 16}, DType::f32);
  Operands host = x.operands();
  host.q = Tensor::dense(host.o.data, DType::f32, {0, 5, 1, 16});
  cuda::DeviceCopy copy;
  ASSERT_TRUE(cuda::DeviceCopy::make(x.problem, host, {}, &copy));
  std::memset(copy.operands().o.data, 0x11, x.o.memory_bytes() - 64);
  ASSERT_TRUE(copy.download());
  EXPECT_EQ(*x.o.memory(), std::byte{0x11});
}

TEST(DeviceCopy, AddressesKeepTheirRemainderAndDistance) {
  Instance x = make_instance(Case{"x", 2, 5, 6, 2, 1, 16, 16}.layout(Layout::odd), DType::bf16);
  HostTensor both(DType::bf16, {2, 5, 4, 16});
  Operands host = x.operands();
  host.q = both.view();
  host.q.shape[2] = 2;
  host.o = host.q;
  host.o.data = static_cast<std::byte*>(host.q.data) + 2 * 16 * 2;
  cuda::DeviceCopy copy;
  ASSERT_TRUE(cuda::DeviceCopy::make(x.problem, host, {}, &copy));
  const auto remainder = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 256; };
  const Operands& device = copy.operands();
  for (const auto& [from, to] :
       {std::pair{host.q, device.q}, {host.k, device.k}, {host.v, device.v}, {host.o, device.o}}) {
    EXPECT_NE(from.data, to.data);
    EXPECT_EQ(remainder(from.data), remainder(to.data));
  }
  EXPECT_EQ(static_cast<std::byte*>(device.o.data) - static_cast<std::byte*>(device.q.data), 64);
}

TEST(DeviceCopy, WhatIsWrittenBesideATensorIsTold) {
  // One byte is just before the memory, and the other is just behind it.
  for (const std::ptrdiff_t at : {-1, 0}) {
    Instance x = make_instance(Case{"x", 1, 5, 6, 1, 1, 16, 16}, DType::f32);
    cuda::DeviceCopy copy;
    ASSERT_TRUE(cuda::DeviceCopy::make(x.problem, x.operands(), {}, &copy));
    EXPECT_TRUE(copy.download());
    static_cast<std::byte*>(copy.operands().o.data)[at < 0 ? at : 5 * 16 * 4] = std::byte{1};
    const Status status = copy.download();
    EXPECT_EQ(status.why, "a kernel wrote outside its tensors");
  }
}

}  // namespace
}  // namespace falchion::testing
