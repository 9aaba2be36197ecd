// tests/door_test.cpp: tests where operands lie, in a process whose CUDA driver is a fake one (tests/fake_cuda). Plans
// for the host refuse a GPU's memory by the operand's name, and the one-call form stays where the operands lie
// (docs/contract.md, "operands in memory that the backend cannot use"). Code that reads or writes a DeviceMemory
// crashes.
#include <cstdlib>

#include "cpu/levels.hpp"
#include "fake_cuda/load.hpp"
#include "runtime/place.hpp"
#include "runtime/runtime.hpp"
#include "support/contract.hpp"
#include "support/environment.hpp"
#include "support/linear.hpp"

namespace falchion::testing {
namespace {

class Door : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    EXPECT_FALSE(cuda::driver_is_loaded()) << "before an application has loaded one";
    FakeDriver::loaded();
    EXPECT_TRUE(cuda::driver_is_loaded());
  }
  void SetUp() override { cuda.forget(); }
  void TearDown() override { cuda.forget(); }
  const FakeDriver& cuda = FakeDriver::loaded();
};

// ---- Place ----------------------------------------------------------------------------------------------------------

TEST_F(Door, PlacesAreWhatTheDriverSays) {
  const DeviceMemory here, peer(false);
  char ordinary = 0, pinned = 0, elsewhere = 0, managed = 0;
  cuda.add(&pinned, 1, FakeKind::pinned, true);
  cuda.add(&elsewhere, 1, FakeKind::pinned, false);  // Kernels see this memory at another address, or not at all.
  cuda.add(&managed, 1, FakeKind::managed, true);
  EXPECT_EQ(cuda::place_of(&ordinary), cuda::Place::host);
  EXPECT_EQ(cuda::place_of(nullptr), cuda::Place::host);
  EXPECT_EQ(cuda::place_of(here.data()), cuda::Place::here);
  EXPECT_EQ(cuda::place_of(here.data<char>() + 5), cuda::Place::here);
  EXPECT_EQ(cuda::place_of(peer.data()), cuda::Place::other_device);
  EXPECT_EQ(cuda::place_of(&pinned), cuda::Place::pinned);
  EXPECT_EQ(cuda::place_of(&elsewhere), cuda::Place::host);
  EXPECT_EQ(cuda::place_of(&managed), cuda::Place::managed);
}

TEST_F(Door, AThreadWithoutAContextReachesNoGpu) {
  const DeviceMemory memory;
  char pinned = 0;
  cuda.add(&pinned, 1, FakeKind::pinned, true);
  EXPECT_NE(cuda::thread_context(), nullptr);
  cuda.has_context(false);
  EXPECT_EQ(cuda::thread_context(), nullptr);
  EXPECT_EQ(cuda::place_of(memory.data()), cuda::Place::other_device);
  EXPECT_EQ(cuda::place_of(&pinned), cuda::Place::pinned);
}

TEST_F(Door, WhatTheDriverDoesNotSayIsUnknownAndNotTheHosts) {
  const DeviceMemory memory;
  for (const int error : {1, 201, 700, 719, 999}) {
    cuda.fail_with(error);
    EXPECT_EQ(cuda::place_of(memory.data()), cuda::Place::unknown) << error;
  }
  // These codes mean that cuInit was not called, that the process is ending, and that the driver is a stub. In each
  // case no memory can be CUDA's.
  for (const int not_started : {3, 4, 34}) {
    cuda.fail_with(not_started);
    char ordinary = 0;
    EXPECT_EQ(cuda::place_of(&ordinary), cuda::Place::host) << not_started;
  }
}

// ---- plans of the host ----------------------------------------------------------------------------------------------

constexpr const char* kOnAGpu = " lies on a GPU, where backend = ";

template <class Problem, class Operands>
void expect_named(const Path& path, const Problem& problem, Pass pass, const Operands& operands, const char* name) {
  SCOPED_TRACE(name);
  Plan plan;
  ASSERT_TRUE(Plan::make(problem, pass, path.target(), &plan));
  const Workspace workspace(plan.workspace_bytes());
  const Status status = plan.run(operands, workspace.data(), workspace.size());
  EXPECT_EQ(status.code, Code::invalid);
  EXPECT_EQ(status.why.rfind(std::string(name) + kOnAGpu, 0), 0u) << status.why;
}

TEST_F(Door, PlansOfTheHostRefuseEachOperandByName) {
  const DeviceMemory memory;
  const auto refuse = [&](const Path& path, const Instance& x, const char* name, Tensor Operands::*field) {
    Operands operands = x.operands();
    (operands.*field).data = memory.data();
    expect_named(path, x.problem, Pass::forward, operands, name);
  };
  const auto refuse_array = [&](const Path& path, const Instance& x, const char* name, auto field) {
    Operands operands = x.operands();
    operands.*field = memory.data<std::remove_pointer_t<std::remove_reference_t<decltype(operands.*field)>>>();
    expect_named(path, x.problem, Pass::forward, operands, name);
  };
  on_every_path([&](const Path& path, DType dtype) {
    const Instance x = make_instance(Case{"x", 2, 40, 90, 4, 2, 16, 16}
                                         .alibi()
                                         .mask()
                                         .bias(Case::Bias::f32)
                                         .used_q({40, 3})
                                         .used_k({90, 7})
                                         .first_k({3, 0})
                                         .row_max()
                                         .probabilities(),
                                     dtype);
    const Instance packed = make_instance(Case{"x", 2, 40, 90, 4, 2, 16, 16}.packed({40, 7}, {90, 3}), dtype);
    refuse(path, x, "q", &Operands::q);
    refuse(path, x, "k", &Operands::k);
    refuse(path, x, "v", &Operands::v);
    refuse(path, x, "o", &Operands::o);
    refuse(path, x, "lse", &Operands::lse);
    refuse(path, x, "row_max", &Operands::row_max);
    refuse(path, x, "probabilities", &Operands::probabilities);
    refuse(path, x, "bias", &Operands::bias);
    refuse(path, x, "mask", &Operands::mask);
    refuse(path, x, "alibi", &Operands::alibi);
    refuse_array(path, x, "first_k", &Operands::first_k);
    const Instance dropped = make_instance(Case{"x", 2, 40, 90, 4, 2, 16, 16}.dropout(0.5F), dtype);
    Operands operands = dropped.operands();
    operands.rng.at = memory.data<const std::uint64_t>();
    expect_named(path, dropped.problem, Pass::forward, operands, "rng.at");
    refuse_array(path, x, "used_q", &Operands::used_q);
    refuse_array(path, x, "used_k", &Operands::used_k);
    refuse_array(path, packed, "cu_seqlens_q", &Operands::cu_seqlens_q);
    refuse_array(path, packed, "cu_seqlens_k", &Operands::cu_seqlens_k);
  });
}

TEST_F(Door, LinearPlansOfTheHostRefuseEachOperandByName) {
  const DeviceMemory memory;
  using Field = Tensor LinearOperands::*;
  const std::pair<const char*, Field> both[] = {{"q", &LinearOperands::q},
                                                {"k", &LinearOperands::k},
                                                {"v", &LinearOperands::v},
                                                {"decay", &LinearOperands::decay},
                                                {"initial_state", &LinearOperands::initial_state},
                                                {"initial_z", &LinearOperands::initial_z}},
                                      forward[] = {{"o", &LinearOperands::o},
                                                   {"final_state", &LinearOperands::final_state},
                                                   {"final_z", &LinearOperands::final_z}},
                                      backward[] = {{"grad_o", &LinearOperands::grad_o},
                                                    {"grad_final_state", &LinearOperands::grad_final_state},
                                                    {"grad_final_z", &LinearOperands::grad_final_z},
                                                    {"grad_q", &LinearOperands::grad_q},
                                                    {"grad_k", &LinearOperands::grad_k},
                                                    {"grad_v", &LinearOperands::grad_v},
                                                    {"grad_decay", &LinearOperands::grad_decay},
                                                    {"grad_initial_state", &LinearOperands::grad_initial_state},
                                                    {"grad_initial_z", &LinearOperands::grad_initial_z}};
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    on_every_path(
        [&](const Path& path, DType dtype) {
          const LinearCase row = LinearCase{"x", 2, 9, 1, 2, 16, 16}.states().decay(Decay::token).normalise();
          const LinearInstance x = make_linear_instance(row, dtype);
          const auto refuse = [&](const std::pair<const char*, Field>& operand) {
            LinearOperands operands = x.operands(pass);
            (operands.*operand.second).data = memory.data();
            expect_named(path, x.problem, pass, operands, operand.first);
          };
          for (const auto& operand : both) refuse(operand);
          if (pass == Pass::forward)
            for (const auto& operand : forward) refuse(operand);
          if (pass == Pass::backward)
            for (const auto& operand : backward) refuse(operand);
          const LinearInstance packed = make_linear_instance(LinearCase{"x", 2, 9, 1, 2, 16, 16}.packed({9, 4}), dtype);
          LinearOperands operands = packed.operands(pass);
          operands.cu_seqlens = memory.data<const std::int32_t>();
          expect_named(path, packed.problem, pass, operands, "cu_seqlens");
        },
        pass == Pass::forward ? kLinearForward : kLinearBackward);
  }
}

TEST_F(Door, AWorkspaceOnAGpuIsRefused) {
  const DeviceMemory memory;
  on_every_path([&](const Path& path, DType dtype) {
    const Instance x = make_instance(Case{"x", 1, 40, 50, 1, 1, 32, 32}, dtype);
    Plan plan;
    ASSERT_TRUE(Plan::make(x.problem, Pass::forward, path.target(), &plan));
    if (plan.workspace_bytes() == 0) return;
    const Status status = plan.run(x.operands(), memory.data(), plan.workspace_bytes());
    EXPECT_EQ(status.why.rfind(std::string("workspace") + kOnAGpu, 0), 0u) << status.why;
  });
}

TEST_F(Door, MergeAndValidateLengthsRefuseToo) {
  const DeviceMemory memory;
  float numbers[4][8] = {}, lse[3] = {};
  const auto o = [](void* data) { return Tensor::dense(data, DType::f32, {1, 1, 1, 8}); };
  const auto l = [](void* data) { return Tensor::dense(data, DType::f32, {1, 1, 1, 1}); };
  const char* rest = " lies on a GPU, but o in host memory: merge takes all on one side";
  EXPECT_EQ(merge(o(memory.data()), l(lse), o(numbers[1]), l(lse + 1), o(numbers[2]), l(lse + 2)).why,
            std::string("o_a") + rest);
  EXPECT_EQ(merge(o(numbers[0]), l(lse), o(numbers[1]), l(memory.data()), o(numbers[2]), l(lse + 2)).why,
            std::string("lse_b") + rest);
  const char* why = cuda::is_built()
                        ? "lse lies in host memory, but o on a GPU: merge takes all on one side"
                        : "o lies on a GPU, and this build has no GPU variants: merge takes tensors in host memory";
  EXPECT_EQ(merge(o(numbers[0]), l(lse), o(numbers[1]), l(lse + 1), o(memory.data()), l(lse + 2)).why, why);
  cuda.add(numbers, sizeof numbers, FakeKind::managed, true);
  EXPECT_TRUE(merge(o(numbers[0]), l(lse), o(numbers[1]), l(lse + 1), o(numbers[2]), l(lse + 2)));
}

/// A build with GPU variants copies them, by a driver that is more than the fake one.
TEST_F(Door, LengthsOnAGpuThatNothingCanCopy) {
  if (cuda::is_built()) GTEST_SKIP() << "this build can copy them";
  const DeviceMemory memory;
  Instance x = make_instance(Case{"x", 2, 4, 5, 1, 1, 8, 8}.used_k({5, 3}), DType::f32);
  Operands operands = x.operands();
  operands.used_k = memory.data<const std::int32_t>();
  const Status status = validate_lengths(x.problem, operands);
  EXPECT_EQ(status.code, Code::invalid);
  EXPECT_EQ(status.why, "used_k lies on a GPU, and this build has no GPU variants, so nothing can copy it");
}

/// A failure of the driver is not blamed on the operands. It gives the same code and message at every query.
TEST_F(Door, WhereTheDriverFailsTheCodeIsDevice) {
  float numbers[3][8] = {}, lse[3] = {};
  const auto o = [&](int i) { return Tensor::dense(numbers[i], DType::f32, {1, 1, 1, 8}); };
  const auto l = [&](int i) { return Tensor::dense(lse + i, DType::f32, {1, 1, 1, 1}); };
  Instance x = make_instance(Case{"x", 2, 4, 5, 1, 1, 8, 8}.used_k({5, 3}), DType::f32);
  LinearInstance linear = make_linear_instance(LinearCase{"x", 2, 9, 1, 2, 16, 16}.packed({4, 5}), DType::f32);
  cuda.fail_with(719);
  const auto expect_unknown = [](const Status& status, const char* name, const char* asks) {
    EXPECT_EQ(status.code, Code::device);
    EXPECT_EQ(status.why,
              std::string(name) + ": CUDA's driver does not say where it lies, which " + asks + " has to know");
  };
  expect_unknown(merge(o(0), l(0), o(1), l(1), o(2), l(2)), "o", "merge");
  expect_unknown(validate_lengths(x.problem, x.operands()), "used_k", "validate_lengths");
  expect_unknown(validate_lengths(linear.problem, linear.operands(Pass::forward)), "cu_seqlens", "validate_lengths");
}

TEST_F(Door, PinnedAndManagedMemoryIsTheHostsToo) {
  for (const FakeKind kind : {FakeKind::pinned, FakeKind::managed}) {
    on_every_path([&](const Path& path, DType dtype) {
      Instance x = make_instance(Case{"x", 1, 40, 50, 2, 1, 32, 32}, dtype);
      cuda.forget();
      for (const HostTensor* tensor : x.tensors()) cuda.add(tensor->memory(), tensor->memory_bytes(), kind, true);
      EXPECT_TRUE(run(path, &x));
      EXPECT_TRUE(matches(x, Reference(x)));
    });
  }
}

TEST_F(Door, ADriverThatWasNotStartedChangesNothing) {
  cuda.fail_with(3);
  Instance x = make_instance(Case{"x", 1, 40, 50, 2, 1, 32, 32}, DType::f32);
  EXPECT_TRUE(run(host_target(), &x));
  EXPECT_TRUE(matches(x, Reference(x)));
  cuda.fail_with(999);
  const Status status = run(host_target(), &x);
  EXPECT_EQ(status.code, Code::device);
  EXPECT_EQ(status.why.rfind("q: CUDA's driver does not say where it lies", 0), 0u) << status.why;
}

// ---- one call -------------------------------------------------------------------------------------------------------

void move_to(void* memory, Operands* x) {
  for (Tensor* tensor : {&x->q, &x->k, &x->v, &x->o}) {
    tensor->data = memory;
    memory = static_cast<std::byte*>(memory) + (1 << 20);
  }
  x->lse = {};
}

/// When no GPU of this machine takes the problem, the answer is a Status, also where FALCHION_CPU names a level.
TEST_F(Door, BestNeverLeavesTheDeviceThatQIsOn) {
  Instance x = make_instance(Case{"x", 1, 40, 50, 2, 1, 32, 32}, DType::f32);
  for (const bool in_reach : {true, false}) {
    const DeviceMemory memory(in_reach);
    Operands operands = x.operands();
    move_to(memory.data(), &operands);
    for (const cpu::Level& level : cpu::cpu_levels()) {
      if (!level.usable) continue;
      const ForcedByTheEnvironment forced(level.name);
      const Status status = attention(operands);
      EXPECT_FALSE(status);
      EXPECT_EQ(status.why.find("cpu_level"), std::string::npos) << status.why;
    }
    const ForcedByTheEnvironment none("");
    const Status status = attention(operands);
    EXPECT_EQ(status.code, Code::unsupported);
    EXPECT_EQ(status.why.rfind("q lies on a GPU, and no GPU path takes the problem; sm90 f32: ", 0), 0u) << status.why;
    EXPECT_NE(status.why.find("; sm80 f32: "), std::string::npos) << status.why;
  }
  const DeviceMemory memory;
  Operands operands = x.operands();
  move_to(memory.data(), &operands);
  if (host_target().backend == Backend::cpu) {
    const Path path = usable_paths().back();
    if (!path.has(DType::f32)) GTEST_SKIP() << "the last level has no f32 variant";
    Target named;
    named.cpu_level = path.level.c_str();
    EXPECT_EQ(attention(operands, {}, named).why,
              "q lies on a GPU, and no GPU path takes the problem; Target::cpu_level is set, which asks for the CPU");
  }
  cuda.fail_with(999);
  EXPECT_EQ(attention(x.operands()).why.rfind("q: CUDA's driver does not say where it lies", 0), 0u);
}

TEST_F(Door, BestOfLinearAttentionStaysWhereTheStateIs) {
  const DeviceMemory memory;
  LinearInstance x = make_linear_instance(LinearCase{"x", 2, 9, 1, 2, 16, 16}, DType::f32);
  LinearOperands operands = x.operands(Pass::forward);
  operands.q.data = memory.data();
  EXPECT_EQ(linear_attention(operands).why.rfind("q lies on a GPU", 0), 0u);
  LinearInstance empty = make_linear_instance(LinearCase{"x", 2, 0, 1, 2, 16, 16}.states(), DType::f32);
  LinearOperands none = empty.operands(Pass::forward);
  none.q.data = none.k.data = none.v.data = none.o.data = nullptr;
  none.initial_state.data = memory.data();
  none.final_state.data = memory.data<std::byte>() + (1 << 20);
  EXPECT_EQ(linear_attention(none).why.rfind("initial_state lies on a GPU", 0), 0u);
}

TEST_F(Door, BestTakesPinnedMemoryForTheHosts) {
  for (const FakeKind kind : {FakeKind::pinned, FakeKind::managed}) {  // No GPU takes managed memory in this test.
    Instance x = make_instance(Case{"x", 1, 40, 50, 2, 1, 32, 32}, DType::f32);
    x.poison_outputs();
    for (const HostTensor* tensor : x.tensors()) cuda.add(tensor->memory(), tensor->memory_bytes(), kind, true);
    const Status status = attention(x.operands());
    EXPECT_TRUE(status) << status.why;
    EXPECT_TRUE(matches(x, Reference(x)));
  }
}

/// A plan for the host must not read lengths that lie on a GPU.
TEST_F(Door, LengthsOnAGpuAreNotReadByTheHost) {
  const DeviceMemory memory;
  Instance x = make_instance(Case{"x", 2, 40, 90, 4, 2, 16, 16}.packed({40, 7}, {90, 3}), DType::f32);
  Operands operands = x.operands();
  operands.cu_seqlens_k = memory.data<const std::int32_t>();
  operands.q.shape[1] = operands.o.shape[1] = operands.lse.shape[2] = x.cu_q.back();
  Attention options;
  options.b = 2;
  const Status status = attention(operands, options);
  EXPECT_EQ(status.why.rfind(std::string("cu_seqlens_k") + kOnAGpu, 0), 0u) << status.why;
}

}  // namespace
}  // namespace falchion::testing
