// tests/cuda/run_test.cpp: tests of runs on the device: refusals, the workspace, lengths, packed and dense sequences
// that must give equal bits, and the one-call form.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "api/data_of.hpp"
#include "device.hpp"
#include "plan/plan_data.hpp"
#include "runtime/runtime.hpp"
#include "support/environment.hpp"

namespace falchion::testing {
namespace {

/// Puts a pointer of the host into one operand after the other. Each must be refused by name.
TEST(CudaOperands, HostPointersAreRefusedByName) {
  on_every_path([](const Path& path, DType dtype) {
    Instance x = make_instance(Case{"x", 2, 40, 90, 4, 2, 64, 64}
                                   .alibi()
                                   .mask()
                                   .bias(Case::Bias::f32)
                                   .used_k({90, 7})
                                   .first_k({3, 2})
                                   .row_max(),
                               dtype);
    Instance packed = make_instance(Case{"x", 2, 40, 90, 4, 2, 64, 64}.packed({40, 7}, {90, 3}), dtype);
    const auto refused = [&](Instance* instance, const char* name, auto change) {
      SCOPED_TRACE(name);
      OnDevice device(path, instance);
      ASSERT_OK(device.status());
      Operands operands = device.operands();
      change(&operands, instance->operands());
      const Status status = device.run(operands);
      EXPECT_EQ(status.code, Code::invalid);
      EXPECT_EQ(status.why.rfind(std::string(name) + " lies in host memory", 0), 0u) << status.why;
    };
    refused(&x, "q", [](Operands* to, const Operands& from) { to->q = from.q; });
    refused(&x, "k", [](Operands* to, const Operands& from) { to->k = from.k; });
    refused(&x, "v", [](Operands* to, const Operands& from) { to->v = from.v; });
    refused(&x, "o", [](Operands* to, const Operands& from) { to->o = from.o; });
    refused(&x, "lse", [](Operands* to, const Operands& from) { to->lse = from.lse; });
    refused(&x, "row_max", [](Operands* to, const Operands& from) { to->row_max = from.row_max; });
    refused(&x, "bias", [](Operands* to, const Operands& from) { to->bias = from.bias; });
    refused(&x, "mask", [](Operands* to, const Operands& from) { to->mask = from.mask; });
    refused(&x, "alibi", [](Operands* to, const Operands& from) { to->alibi = from.alibi; });
    refused(&x, "first_k", [](Operands* to, const Operands& from) { to->first_k = from.first_k; });
    refused(&x, "used_k", [](Operands* to, const Operands& from) { to->used_k = from.used_k; });
    static constexpr std::uint64_t at[2] = {};
    Instance dropped = make_instance(Case{"x", 2, 40, 90, 4, 2, 64, 64}.dropout(0.5F), dtype);
    refused(&dropped, "rng.at", [](Operands* to, const Operands&) { to->rng.at = at; });
    refused(&packed, "cu_seqlens_q", [](Operands* to, const Operands& from) { to->cu_seqlens_q = from.cu_seqlens_q; });
    refused(&packed, "cu_seqlens_k", [](Operands* to, const Operands& from) { to->cu_seqlens_k = from.cu_seqlens_k; });
  });
}

/// Both sides may use such memory, and kernels read it where it lies.
TEST(CudaOperands, PinnedAndManagedMemoryIsTaken) {
  on_every_path([](const Path& path, DType dtype) {
    Instance x = make_instance(Case{"x", 2, 40, 90, 4, 2, 64, 64}, dtype);
    for (const bool managed : {false, true}) {
      OnDevice device(path, &x);
      ASSERT_OK(device.status());
      void* shared = nullptr;
      const std::size_t bytes = x.k.memory_bytes();
      ASSERT_CUDA(managed ? cudaMallocManaged(&shared, bytes) : cudaMallocHost(&shared, bytes));
      std::memcpy(shared, x.k.memory(), bytes);
      Operands operands = device.operands();
      const auto offset =
          static_cast<const std::byte*>(x.operands().k.data) - reinterpret_cast<const std::byte*>(x.k.memory());
      operands.k.data = static_cast<std::byte*>(shared) + offset;
      EXPECT_EQ(cuda::place_of(shared), managed ? cuda::Place::managed : cuda::Place::pinned);
      ASSERT_OK(device.run(operands));
      ASSERT_OK(device.download());
      EXPECT_TRUE(matches(x, Reference(x)));
      ASSERT_CUDA(managed ? cudaFree(shared) : cudaFreeHost(shared));
    }
  });
}

/// The opposite of the test above: a plan for the host gets memory of the device.
TEST(CudaOperands, DevicePointersAreRefusedByPlansOfTheHost) {
  on_every_path([](const Path& path, DType dtype) {
    Instance x = make_instance(Case{"x", 2, 40, 90, 4, 2, 64, 64}, dtype);
    OnDevice device(path, &x);
    ASSERT_OK(device.status());
    for (const Backend backend : {Backend::ref, host_target().backend}) {
      Plan plan;
      if (!Plan::make(x.problem, Pass::forward, backend, &plan)) continue;  // This build has no variant of the type.
      const Workspace workspace(plan.workspace_bytes());
      const Status status = plan.run(device.operands(), workspace.data(), workspace.size());
      EXPECT_EQ(status.why.rfind("q lies on a GPU, where backend = ", 0), 0u) << status.why;
    }
  });
}

/// This plan needs a workspace, because few rows see many keys.
TEST(CudaOperands, WorkspaceTooSmall) {
  on_every_path([](const Path& path, DType dtype) {
    Instance x = make_instance(Case{"x", 1, 1, 20000, 4, 1, 64, 64}, dtype);
    const OnDevice device(path, &x);
    ASSERT_OK(device.status());
    const Plan& plan = device.plan();
    ASSERT_GT(plan.workspace_bytes(), 64u);
    cuda::Memory memory;
    ASSERT_OK(cuda::Memory::make(plan.workspace_bytes() + 64, &memory));
    const std::string needs = std::to_string(plan.workspace_bytes());
    EXPECT_EQ(plan.run(device.operands(), nullptr, 0).why, "workspace is null, but the plan needs " + needs + " bytes");
    const Status small = plan.run(device.operands(), memory.data(), 64);
    EXPECT_EQ(small.code, Code::workspace);
    EXPECT_EQ(small.why, "workspace has 64 bytes, but the plan needs " + needs);
    const Status crooked = plan.run(device.operands(), memory.data() + 8, memory.size() - 8);
    EXPECT_NE(crooked.why.find(" is 8 past a multiple of 64: it must be aligned to 64 bytes"), std::string::npos)
        << crooked.why;
    const Workspace host(plan.workspace_bytes());
    const Status on_host = plan.run(device.operands(), host.data(), host.size());
    EXPECT_FALSE(on_host);
    EXPECT_NE(on_host.why.find("workspace"), std::string::npos) << on_host.why;
  });
}

TEST(CudaOperands, LengthsOfTheDeviceAreValidated) {
  on_every_path([](const Path& path, DType dtype) {
    Instance x = make_instance(Case{"x", 3, 40, 50, 1, 1, 16, 16}.packed({40, 3, 5}, {50, 20, 9}), dtype);
    OnDevice device(path, &x);
    ASSERT_OK(device.status());
    const auto why = [&] {
      const Status uploaded = device.upload();
      return uploaded ? validate_lengths(x.problem, device.operands()).why : uploaded.why;
    };
    x.cu_q = {0, 40, 43, 51};
    x.cu_k = {0, 50, 70, 82};
    EXPECT_EQ(why(), "");
    x.cu_q = {0, 40, 30, 51};
    EXPECT_EQ(why(), "cu_seqlens_q[2] = 30 is below cu_seqlens_q[1] = 40: it must be sorted");
    Instance used = make_instance(Case{"x", 2, 4, 5, 1, 1, 16, 16}.used_k({5, 6}), dtype);
    const OnDevice other(path, &used);
    ASSERT_OK(other.status());
    EXPECT_EQ(validate_lengths(used.problem, other.operands()).why, "used_k[1] = 6: it must be in [0, 5]");
  });
}

/// The lengths lie in the device's memory and may change between two runs of one plan.
TEST(CudaOperands, LengthsAreReadAtEachRun) {
  on_every_path([](const Path& path, DType dtype) {
    Instance x = make_instance(Case{"x", 3, 60, 90, 2, 1, 64, 64}.used_q({60, 5, 0}).used_k({90, 40, 7}), dtype);
    OnDevice device(path, &x);
    ASSERT_OK(device.status());
    for (const std::vector<std::int32_t>& used : {std::vector<std::int32_t>{60, 5, 0}, {-7, 1 << 30, 33}, {0, 0, 0}}) {
      x.used_q = used;  // The vector stays the same one, because its memory is what is copied.
      ASSERT_OK(device.upload());
      ASSERT_OK(device.run());
      ASSERT_OK(device.download());
      EXPECT_TRUE(matches(x, Reference(x)));
    }
  });
}

/// The same sequences as a batch and packed give the same bits. 250 keys are too few for the dense plan to split them,
/// so both sum in the same order.
TEST(CudaBits, PackedAndDenseAgree) {
  on_every_path([](const Path& path, DType dtype) {
    for (const bool causal : {false, true}) {
      Case dense_row{"dense", 3, 250, 250, 4, 2, 64, 64};
      Case packed_row = Case{"packed", 3, 250, 250, 4, 2, 64, 64}.packed({250, 250, 250}, {250, 250, 250});
      if (causal) {
        dense_row = std::move(dense_row).causal();
        packed_row = std::move(packed_row).causal();
      }
      Instance dense = make_instance(dense_row, dtype), packed = make_instance(packed_row, dtype);
      const auto fill = [](const HostTensor& from, HostTensor* to) {
        from.for_each([&](auto b, auto s, auto h, auto d) { to->set(0, b * 250 + s, h, d, from.get(b, s, h, d)); });
      };
      fill(dense.q, &packed.q);
      fill(dense.k, &packed.k);
      fill(dense.v, &packed.v);
      ASSERT_OK(run(path, &dense));
      ASSERT_OK(run(path, &packed));
      EXPECT_TRUE(matches(packed, Reference(packed)));
      std::int64_t different = 0;
      dense.o.for_each([&](auto b, auto s, auto h, auto d) {
        different += dense.o.get(b, s, h, d) != packed.o.get(0, b * 250 + s, h, d) ? 1 : 0;
      });
      EXPECT_EQ(different, 0) << "of " << 3 * 250 * 4 * 64;
    }
  });
}

TEST(CudaBits, EachRunGivesTheSame) {
  on_every_path([](const Path& path, DType dtype) {
    for (const std::int64_t s_q : {1, 300}) {
      Instance x = make_instance(Case{"x", 2, s_q, 5000, 8, 2, 128, 128}.causal(), dtype);
      OnDevice device(path, &x);
      ASSERT_OK(device.status());
      std::string first;
      for (int i = 0; i < 5; ++i) {
        ASSERT_OK(device.upload());
        ASSERT_OK(device.run());
        ASSERT_OK(device.download());
        if (i == 0) first = output_bytes(x);
        ASSERT_TRUE(output_bytes(x) == first) << "run " << i;
      }
    }
  });
}

TEST(CudaOneCall, TakesSizesFromTheTensors) {
  on_every_path([](const Path& path, DType dtype) {
    for (const Case& row : cases()) {
      if (row.b == 0 || row.s_q * row.s_k > 20000) continue;
      SCOPED_TRACE(row.name);
      Instance x = make_instance(row, dtype);
      OnDevice device(path, &x);
      ASSERT_OK(device.status());
      Attention options;
      options.b = x.problem.b;
      options.band = x.problem.band;
      options.score = x.problem.score;
      options.dropout = x.problem.dropout;
      ASSERT_OK(attention(device.operands(), options, path.target()));
      ASSERT_OK(device.download());
      EXPECT_TRUE(matches(x, Reference(x)));
    }
  });
}

TEST(CudaOneCall, TheBestBackendIsTheGpu) {
  on_every_path([](const Path&, DType dtype) {
    Instance x = make_instance(Case{"x", 1, 40, 50, 2, 1, 64, 64}, dtype);
    Plan plan;
    ASSERT_OK(Plan::make(x.problem, Pass::forward, Backend::best, &plan));
    // In f32 so small a problem runs sooner on sm80's kernel.
    const auto all = variants();
    const bool sm90 =
        dtype != DType::f32 && std::any_of(all.begin(), all.end(), [dtype = dtype](const Variant& v) {
          return v.backend == Backend::sm90 && v.dtype == dtype && v.kernel_as<gpu::AttentionKernel>() != nullptr;
        });
    EXPECT_EQ(data_of(plan)->backend, sm90 && cuda::current_device().sm == 90 ? Backend::sm90 : Backend::sm80);
  });
}

/// FALCHION_CPU names a level of the CPU while q lies on the device. The call must stay on the device.
TEST(CudaOneCall, StaysOnTheDeviceWhateverTheEnvironmentSays) {
  on_every_path([](const Path&, DType dtype) {
    Instance x = make_instance(Case{"x", 1, 40, 50, 2, 1, 64, 64}, dtype);
    OnDevice device(Path{Backend::best, ""}, &x);
    ASSERT_OK(device.status());
    const ForcedByTheEnvironment level("generic");
    ASSERT_OK(attention(device.operands()));
    ASSERT_OK(device.download());
    EXPECT_TRUE(matches(x, Reference(x)));
  });
}

/// Nobody reads lengths on the device, so they are clamped there as a plan clamps them. On the host they are refused.
TEST(CudaOneCall, LengthsOnTheDeviceAreClamped) {
  on_every_path([](const Path& path, DType dtype) {
    Instance x = make_instance(
        Case{"x", 3, 20, 30, 2, 1, 64, 64}.used_q({-5, 99, 3}).used_k({7, -1, 1000}).first_k({40, 0, -3}), dtype);
    OnDevice device(path, &x);
    ASSERT_OK(device.status());
    ASSERT_OK(attention(device.operands(), {}, path.target()));
    ASSERT_OK(device.download());
    EXPECT_TRUE(matches(x, Reference(x)));
  });
}

/// Empty tensors have no memory and are given all the same; what has memory says that the device is meant.
TEST(CudaOneCall, EmptyTensorsAreGiven) {
  on_every_path([](const Path&, DType dtype) {
    Instance x = make_instance(Case{"x", 2, 5, 0, 4, 2, 64, 64}.bias(Case::Bias::f32).mask().row_max(), dtype);
    OnDevice device(Path{Backend::best, ""}, &x);
    ASSERT_OK(device.status());
    Operands operands = device.operands();
    for (Tensor* tensor : {&operands.k, &operands.v, &operands.bias, &operands.mask}) tensor->data = nullptr;
    ASSERT_OK(attention(operands));
    ASSERT_OK(device.download());
    EXPECT_TRUE(matches(x, Reference(x)));
    operands.bias.shape[2] = 7;
    EXPECT_EQ(attention(operands).why, "bias.shape[2] = 7, but the problem's is 5 (or 1)");
    cuda::Memory weight;
    ASSERT_OK(cuda::Memory::make(4 * 64, &weight));
    NormOperands rows;
    rows.x = rows.residual = rows.y = rows.residual_out = Tensor::dense(nullptr, dtype, {1, 0, 1, 64});
    rows.weight = Tensor::dense(weight.data(), DType::f32, {1, 1, 1, 64});
    ASSERT_OK(norm(rows, {.kind = NormKind::rms, .zero_centered = true}));
  });
}

/// A part of the keys whose weight is negligible still counts where its values are not finite. The split plan must
/// answer as the unsplit one does.
TEST(CudaSplits, NanInVOfAPartThatWeighsNothing) {
  on_every_path([](const Path& path, DType dtype) {
    Instance x = make_instance(Case{"x", 1, 1, 8192, 1, 1, 64, 64}, dtype);
    for (std::int64_t d = 0; d < 64; ++d) {
      x.q.set(0, 0, 0, d, 4);
      x.k.set(0, 8000, 0, d, 8);  // This key has a score of 256, so all others weigh 2^-300.
    }
    x.v.set(0, 5, 0, 3, std::numeric_limits<float>::quiet_NaN());
    OnDevice device(path, &x);
    ASSERT_OK(device.status());
    const AttentionPlan& plan = data_of(device.plan())->attention();
    EXPECT_TRUE(plan.splits > 1 || plan.walkers > 1) << "kind decode cuts the keys by itself";
    ASSERT_OK(device.run());
    ASSERT_OK(device.download());
    EXPECT_TRUE(std::isnan(x.o.get(0, 0, 0, 3)));
    EXPECT_TRUE(matches(x, Reference(x)));
  });
}

/// One thread uses two streams. Each call of the one-call form needs a workspace of its own.
TEST(CudaOneCall, StreamsDoNotShareAWorkspace) {
  on_every_path([](const Path& path, DType dtype) {
    Instance a = make_instance(Case{"a", 1, 1, 8192, 8, 2, 64, 64}, dtype, 1);
    Instance b = make_instance(Case{"b", 1, 1, 8192, 8, 2, 64, 64}, dtype, 2);
    OnDevice on_a(path, &a), on_b(path, &b);
    ASSERT_OK(on_a.status());
    ASSERT_OK(on_b.status());
    OwnStream stream_a, stream_b;
    for (int i = 0; i < 20; ++i) {
      ASSERT_OK(attention(on_a.operands(), a.problem, path.target(), stream_a));
      ASSERT_OK(attention(on_b.operands(), b.problem, path.target(), stream_b));
    }
    ASSERT_OK(cuda::synchronize());
    ASSERT_OK(on_a.download());
    ASSERT_OK(on_b.download());
    EXPECT_TRUE(matches(a, Reference(a)));
    EXPECT_TRUE(matches(b, Reference(b)));
  });
}

}  // namespace
}  // namespace falchion::testing
