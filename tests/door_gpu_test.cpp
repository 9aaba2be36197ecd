// tests/door_gpu_test.cpp: tests on machines without a GPU what plans for a GPU ask of CUDA.
// src/runtime/runtime_cuda.cpp is linked with a fake runtime and a fake driver (tests/fake_cuda), and a function of the
// test takes the place of a variant's launch.
#include <cuda.h>

#include <array>
#include <cstdlib>
#include <utility>
#include <vector>

#include "api/run.hpp"
#include "fake_cuda/load.hpp"
#include "fake_cuda/runtime.hpp"
#include "gpu/blocks/sm90_tensor_map.hpp"
#include "plan/operation.hpp"
#include "plan/text.hpp"
#include "runtime/driver_numbers.hpp"
#include "runtime/runtime.hpp"
#include "support/contract.hpp"
#include "support/environment.hpp"

namespace falchion::testing {
namespace {

static_assert(std::is_same_v<cuda::DevicePointer, CUdeviceptr>);
static_assert(cuda::kMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE &&
              cuda::kDevicePointer == CU_POINTER_ATTRIBUTE_DEVICE_POINTER &&
              cuda::kIsManaged == CU_POINTER_ATTRIBUTE_IS_MANAGED);
static_assert(cuda::kTypeHost == CU_MEMORYTYPE_HOST && cuda::kTypeDevice == CU_MEMORYTYPE_DEVICE);
static_assert(cuda::kNotInitialized == CUDA_ERROR_NOT_INITIALIZED && cuda::kDeinitialized == CUDA_ERROR_DEINITIALIZED &&
              cuda::kStubLibrary == CUDA_ERROR_STUB_LIBRARY);

class GpuDoor : public ::testing::Test {
 protected:
  void SetUp() override {
    cuda = {};
    driver.forget();
  }
  void TearDown() override {
    cuda = {};
    driver.forget();
  }
  FakeRuntime& cuda = fake_runtime();
  const FakeDriver& driver = FakeDriver::loaded();
};

// ---- whose error it is ----------------------------------------------------------------------------------------------

TEST_F(GpuDoor, AnErrorOfSomebodyElseStaysTheirs) {
  cuda.last = cudaErrorInvalidDevice;  // cudaSetDevice(12345) leaves the last error like this.
  EXPECT_TRUE(cuda::broken_context());
  EXPECT_EQ(cuda::current_ordinal(), 0);
  EXPECT_TRUE(cuda::make_context());
  EXPECT_TRUE(cuda::status_of(cudaSuccess, "launch"));
  EXPECT_EQ(cuda::current_device().sm, 90);
  EXPECT_EQ(cuda::status_of(cudaErrorInvalidConfiguration, "launch").why,
            "launch: cudaErrorInvalidConfiguration: as the test says");
  EXPECT_EQ(cuda.last, cudaErrorInvalidDevice);
}

TEST_F(GpuDoor, OurOwnErrorIsToldAndTakenBack) {
  void* memory = nullptr;
  cuda.next = cudaErrorMemoryAllocation;
  EXPECT_EQ(cuda::allocate(7, &memory).why,
            "cudaMalloc: cudaErrorMemoryAllocation: as the test says (7 bytes asked for)");
  EXPECT_EQ(cuda.last, cudaSuccess);
  cuda.next = cudaErrorInvalidDevice;
  cuda::release(memory);
  EXPECT_EQ(cuda.last, cudaSuccess);
  cuda.next = cudaErrorInvalidDevice;
  EXPECT_EQ(cuda::current_ordinal(), -1);
  EXPECT_EQ(cuda.last, cudaSuccess);
  cuda.next = cudaErrorInvalidDevice;
  EXPECT_EQ(cuda::current_device().why_not, "no usable GPU: cudaErrorInvalidDevice: as the test says");
  EXPECT_EQ(cuda.last, cudaSuccess);
}

TEST_F(GpuDoor, ABrokenContextIsToldAndNotTakenAway) {
  cuda.last = cudaErrorIllegalAddress;
  cuda.sticky = true;
  EXPECT_EQ(cuda::broken_context().why,
            "an earlier kernel has broken this process's CUDA context: "
            "cudaErrorIllegalAddress: as the test says");
  EXPECT_EQ(cuda::synchronize().why,
            "cudaDeviceSynchronize: cudaErrorIllegalAddress: as the test says (an earlier "
            "kernel has broken this process's CUDA context)");
  EXPECT_EQ(cuda.last, cudaErrorIllegalAddress);
}

/// The look-up once kept its result after a failure too. One failure then made every later launch on Hopper fail.
TEST_F(GpuDoor, ALookUpOfTheDriversFunctionThatFailedIsMadeAgain) {
  int function = 0;  // Its address takes the place of the driver's function, which is never called.
  sm90::EncodeTensorMap encode = nullptr;
  cuda.next = cudaErrorMemoryAllocation;
  EXPECT_EQ(sm90::find_tensor_map_encoder(&encode), cudaErrorMemoryAllocation);
  EXPECT_EQ(sm90::find_tensor_map_encoder(&encode), cudaErrorNotSupported) << "the driver has none";
  EXPECT_EQ(encode, nullptr);
  cuda.entry_point = &function;
  EXPECT_EQ(sm90::find_tensor_map_encoder(&encode), cudaSuccess);
  EXPECT_EQ(reinterpret_cast<void*>(encode), &function);
  cuda.next = cudaErrorMemoryAllocation;
  EXPECT_EQ(sm90::find_tensor_map_encoder(&encode), cudaSuccess) << "what was found is kept";
  EXPECT_EQ(reinterpret_cast<void*>(encode), &function);
}

/// Where memory lies is known in a broken context too. So the CPU goes on, and a GPU's memory is not taken for the
/// host's.
TEST_F(GpuDoor, ABrokenContextDoesNotMakeAllMemoryTheHosts) {
  const DeviceMemory memory;
  cuda.last = cudaErrorIllegalAddress;
  cuda.sticky = true;
  EXPECT_EQ(cuda::place_of(memory.data()), cuda::Place::here);
  Instance x = make_instance(Case{"x", 1, 40, 50, 2, 1, 32, 32}, DType::f32);
  x.poison_outputs();
  EXPECT_TRUE(attention(x.operands()));
  EXPECT_TRUE(matches(x, Reference(x)));
}

// ---- runs of a GPU's plan -------------------------------------------------------------------------------------------

int launches = 0, launch_returns = cudaSuccess, launched_on = -1;

/// Makes a plan for the fake GPU, with a kernel that does nothing.
PlanData plan_of(const Instance& x) {
  static const gpu::AttentionKernel kernel = [] {
    gpu::AttentionKernel out{};
    out.launch = [](const gpu::AttentionArgs&, void*) {
      launched_on = fake_runtime().current;
      ++launches;
      return launch_returns;
    };
    out.facts = {.rows = 64, .keys = 64, .threads = 128, .ctas = 1};
    return out;
  }();
  static const Variant variant{.op = "attention_forward",
                               .backend = Backend::sm80,
                               .level = "general",
                               .facts = kernel.facts,
                               .kernel = &kernel};
  PlanData plan;
  ask(x.problem, Pass::forward, Target{}, &plan);
  plan.backend = Backend::sm80;
  plan.variant = &variant;
  plan.gpu.choices = {{&variant, {}}};
  plan.gpu.device = "Fake GPU";
  plan.gpu.sm = 90;
  plan.gpu.sms = 132;
  plan.gpu.ordinal = 0;
  return plan;
}

class GpuRuns : public GpuDoor {
 protected:
  void SetUp() override {
    GpuDoor::SetUp();
    launches = 0;
    launch_returns = cudaSuccess;
    std::byte* place = memory.data<std::byte>();
    driver.add(place, std::size_t{1} << 24, FakeKind::device, true);
    for (Tensor* tensor : {&operands.q, &operands.k, &operands.v, &operands.o, &operands.lse}) {
      tensor->data = place;
      place += 1 << 20;
    }
  }
  Status run() { return falchion::run<Attention>(plan_of(x), operands, {}, nullptr); }
  /// Returns the reason of the status of a run whose k lies at `data`.
  std::string why_with_k_at(void* data) {
    Operands moved = operands;
    moved.k.data = data;
    return falchion::run<Attention>(plan_of(x), moved, {}, nullptr).why;
  }

  Instance x = make_instance(Case{"x", 1, 40, 50, 2, 1, 32, 32}, DType::bf16);
  Operands operands = x.operands();
  DeviceMemory memory;
};

TEST_F(GpuRuns, ALaunchesErrorIsWhatTheLaunchReturned) {
  EXPECT_EQ(run().why, "");
  EXPECT_EQ(launches, 1);
  cuda.last = cudaErrorInvalidDevice;  // This error is somebody else's.
  EXPECT_EQ(run().why, "") << "a valid run";
  EXPECT_EQ(launches, 2);
  EXPECT_EQ(cuda.last, cudaErrorInvalidDevice) << "and still theirs";
  launch_returns = cudaErrorInvalidConfiguration;
  cuda.last = cudaErrorInvalidConfiguration;
  EXPECT_EQ(run().code, Code::device);
  EXPECT_EQ(cuda.last, cudaSuccess) << "ours was told, and is not left behind";
}

TEST_F(GpuRuns, ABrokenContextIsSaidBeforeTheLaunch) {
  cuda.last = cudaErrorIllegalAddress;
  cuda.sticky = true;
  EXPECT_EQ(run().code, Code::device);
  EXPECT_NE(run().why.find("cudaErrorIllegalAddress"), std::string::npos);
  EXPECT_EQ(launches, 0);
}

TEST_F(GpuRuns, OperandsAreWhereKernelsMayUseThem) {
  std::vector<std::byte> host(1 << 16);
  const std::size_t all = host.size();
  EXPECT_EQ(why_with_k_at(host.data()),
            "k lies in host memory, which Fake GPU cannot read: the operands of backend = sm80 lie on the device");
  driver.add(host.data(), all, FakeKind::pinned, true);
  EXPECT_EQ(why_with_k_at(host.data()), "");
  driver.add(host.data(), all, FakeKind::pinned, false);
  EXPECT_EQ(why_with_k_at(host.data()).rfind("k lies in host memory", 0), 0u);
  driver.add(host.data(), all, FakeKind::managed, true);
  EXPECT_EQ(why_with_k_at(host.data()), "");
  driver.add(host.data(), all, FakeKind::device, false);
  EXPECT_EQ(why_with_k_at(host.data()),
            "k lies on another device, whose memory Fake GPU may not use: no access was given by "
            "cudaDeviceEnablePeerAccess or cudaMemPoolSetAccess");
  driver.add(host.data(), all, FakeKind::device, true);
  EXPECT_EQ(why_with_k_at(host.data()), "") << "of a peer to which access was given";
  driver.fail_with(999);
  EXPECT_EQ(why_with_k_at(host.data()),
            "q: CUDA's driver does not say where it lies, which backend = sm80 has to know");
}

TEST_F(GpuRuns, AThreadWithoutAContextGetsOne) {
  driver.has_context(false);
  cuda.next = cudaSuccess;
  const int before = cuda.starts;
  (void)run();
  EXPECT_GT(cuda.starts, before + 1) << "cudaGetDevice, then cudaSetDevice";
}

/// A run makes the device that it was planned for current. Afterwards the caller's device is current again, also when
/// the run fails.
TEST_F(GpuRuns, ARunGoesToItsDeviceAndComesBack) {
  cuda.devices = 3;
  PlanData plan = plan_of(x);
  plan.gpu.ordinal = 2;
  cuda.current = 1;
  EXPECT_EQ(falchion::run<Attention>(plan, operands, {}, nullptr).why, "");
  EXPECT_EQ(launched_on, 2);
  EXPECT_EQ(cuda.current, 1);
  launch_returns = cudaErrorInvalidConfiguration;
  EXPECT_EQ(falchion::run<Attention>(plan, operands, {}, nullptr).code, Code::device);
  EXPECT_EQ(cuda.current, 1);
  // cudaGetDevice will return this. Then it is not known which device to come back to.
  cuda.next = cudaErrorInvalidDevice;
  launches = 0;
  const Status status = falchion::run<Attention>(plan, operands, {}, nullptr);
  EXPECT_EQ(status.code, Code::device);
  EXPECT_EQ(status.why, "CUDA does not say which device is current, so none is made current instead");
  EXPECT_EQ(launches, 0);
}

/// cudaSetDevice can only make a device's primary context current. A context that the application made itself is none
/// of these, so it has to be restored in another way.
TEST_F(GpuRuns, ARunGivesTheCallersOwnContextBack) {
  int made_by_the_application = 0;
  cuda.devices = 3;
  cuda.current = 1;
  cuda.set_context = driver.set_context;
  driver.set_context(&made_by_the_application);
  PlanData plan = plan_of(x);
  plan.gpu.ordinal = 2;
  EXPECT_EQ(falchion::run<Attention>(plan, operands, {}, nullptr).why, "");
  EXPECT_EQ(launched_on, 2);
  EXPECT_EQ(cuda.current, 1);
  EXPECT_EQ(cuda::thread_context(), &made_by_the_application);
  plan.gpu.ordinal = 1;  // The context belongs to this device, so the kernel must run in it.
  EXPECT_EQ(falchion::run<Attention>(plan, operands, {}, nullptr).why, "");
  EXPECT_EQ(cuda::thread_context(), &made_by_the_application);
}

TEST_F(GpuRuns, ADeviceThatIsNotThere) {
  EXPECT_EQ(cuda::device_at(0).sm, 90);
  EXPECT_EQ(cuda::device_at(5).sm, 0);
  EXPECT_EQ(cuda::device_at(5).why_not, "there is no CUDA device 5, this process sees 1");
}

/// The plan is made for the device that the target names, whichever device is current.
TEST_F(GpuRuns, TheTargetNamesTheDevice) {
  cuda.devices = 3;
  Target target(Backend::sm80);
  target.device = 1;
  const std::string story = explain(x.problem, Pass::forward, target);
  EXPECT_NE(story.find("Another fake GPU: 132 SMs"), std::string::npos) << story;
  target.device = -1;
  EXPECT_EQ(explain(x.problem, Pass::forward, target).find("Another"), std::string::npos);
  target.device = 1;
  EXPECT_EQ(attention(operands, {}, target).code, Code::unsupported) << "this build has no kernels";
  EXPECT_EQ(cuda.current, 0);
  target.backend = Backend::cpu;
  EXPECT_EQ(attention(operands, {}, target).why, "device = 1 with backend = cpu: device is for GPU backends");
  // When a device is named, `best` means a GPU and never the CPU.
  target = Backend::best;
  target.device = 1;
  EXPECT_EQ(attention(operands, {}, target).code, Code::unsupported);
}

/// A caller who vouches for the pointers does not pay for questions to the driver.
TEST_F(GpuRuns, TrustedPointersAreNotAskedFor) {
  std::vector<std::byte> host(1 << 16);
  Operands moved = operands;
  moved.k.data = host.data();
  PlanData plan = plan_of(x);
  EXPECT_EQ(falchion::run<Attention>(plan, moved, {}, nullptr).code, Code::invalid);
  plan.target.trust_pointers = true;
  driver.fail_with(999);
  EXPECT_EQ(falchion::run<Attention>(plan, moved, {}, nullptr).why, "");
  EXPECT_EQ(launches, 1);
}

/// The driver is queried once for each pointer; a run does not repeat the queries of its one-call form.
TEST_F(GpuRuns, NothingIsAskedTwice) {
  cuda.devices = 3;
  PlanData plan = plan_of(x);
  plan.gpu.ordinal = 2;
  cuda.current = 1;
  const std::array<const Tensor*, 4> tensors{&operands.q, &operands.k, &operands.v, &operands.o};
  EXPECT_EQ(falchion::run<Attention>(plan, operands, {}, nullptr).why, "");
  for (const Tensor* tensor : tensors) EXPECT_EQ(driver.times_asked(tensor->data), 1);
  EXPECT_EQ(launched_on, 2);
  const Known known{.data = operands.q.data, .place = cuda::Place::here, .device_is_current = true};
  EXPECT_EQ(falchion::run<Attention>(plan, operands, {}, nullptr, known).why, "");
  EXPECT_EQ(driver.times_asked(operands.q.data), 1) << "no second time";
  EXPECT_EQ(driver.times_asked(operands.k.data), 2);
  EXPECT_EQ(launched_on, 1) << "the run leaves the current device alone";
  const Known elsewhere{.data = operands.q.data, .place = cuda::Place::host, .device_is_current = true};
  EXPECT_EQ(falchion::run<Attention>(plan, operands, {}, nullptr, elsewhere).code, Code::invalid)
      << "what is known of a pointer is what counts";
}

TEST_F(GpuRuns, WithoutAGeneralVariantTheOperandInTheWayIsNamed) {
  PlanData plan = plan_of(x);
  plan.gpu.choices = {{plan.variant, Condition::aligned}};
  Operands crooked = operands;
  crooked.v.stride[1] = 35;
  EXPECT_EQ(falchion::run<Attention>(plan, crooked, {}, nullptr).why,
            "v.stride[1] = 35 (70 bytes) is no multiple of 16 bytes, and this build has no general variant for bf16");
  crooked = operands;
  crooked.k.data = static_cast<std::byte*>(crooked.k.data) + 2;
  EXPECT_EQ(falchion::run<Attention>(plan, crooked, {}, nullptr).why,
            text("k.data = ", crooked.k.data,
                 " is 2 past a multiple of 16 bytes, and this build has no general variant for bf16"));
  // sm80 loads without TMA, so a stride that TMA cannot follow is not what is in the way.
  crooked.q.stride[2] = 0;
  EXPECT_EQ(falchion::run<Attention>(plan, crooked, {}, nullptr).why,
            text("k.data = ", crooked.k.data,
                 " is 2 past a multiple of 16 bytes, and this build has no general variant for bf16"));
  crooked = operands;
  plan.attention().problem.d_qk = crooked.q.shape[3] = crooked.k.shape[3] = 28;
  EXPECT_EQ(falchion::run<Attention>(plan, crooked, {}, nullptr).why,
            "q.shape[3] = 28 is no multiple of 8, 16 bytes, and this build has no general variant for bf16");
  // Each tensor is aligned, but they do not meet a condition of another kind.
  plan = plan_of(x);
  plan.gpu.choices = {{plan.variant, Condition::along_k}};
  EXPECT_EQ(falchion::run<Attention>(plan, operands, {}, nullptr).why,
            "the operands meet the conditions of no choice of the plan, which explain() lists, and this build has no "
            "general variant for bf16");
}

// ---- best -----------------------------------------------------------------------------------------------------------

/// No variant of this build fits any GPU here, and a call must not leave the device that q lies on.
TEST_F(GpuRuns, BestStaysOnAGpuThatNoVariantFits) {
  for (const std::string forced : {"", "generic", "avx2"}) {
    const auto all = variants();
    const bool built = std::any_of(all.begin(), all.end(), [&](const Variant& v) { return v.level == forced; });
    // In this case no path of any kind takes the problem, and the message says that.
    if (!forced.empty() && !built) continue;
    const ForcedByTheEnvironment environment(forced.c_str());
    const Status status = attention(operands);
    EXPECT_EQ(status.code, Code::unsupported) << forced;
    EXPECT_EQ(status.why.rfind("q lies on a GPU, and no GPU path takes the problem; sm90 bf16: ", 0), 0u)
        << forced << ": " << status.why;
  }
}

/// A call whose operands lie on the host must not start CUDA, because the application may fork or may want no context.
TEST_F(GpuDoor, ACallOnTheHostDoesNotStartCuda) {
  Instance x = make_instance(Case{"x", 1, 40, 50, 2, 1, 32, 32}, DType::f32);
  for (const Backend backend : {Backend::best, host_target().backend}) {
    EXPECT_TRUE(attention(x.operands(), {}, backend));
    EXPECT_EQ(cuda.starts, 0);
  }
}

}  // namespace
}  // namespace falchion::testing
