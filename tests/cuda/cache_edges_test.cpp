// tests/cuda/cache_edges_test.cpp: nothing is read or written beside the pool of a KV cache on a GPU: K and V end where
// the mapped memory ends, and the table names pages that are not there. Under compute-sanitizer's memcheck the
// beginning is watched, too.
#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "device.hpp"
#include "support/wild_cache.hpp"

namespace falchion::testing {
namespace {

template <class F>
F* driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  EXPECT_EQ(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &result), cudaSuccess) << name;
  EXPECT_EQ(result, cudaDriverEntryPointSuccess) << name;
  return reinterpret_cast<F*>(function);
}

/// Device memory whose last byte is the last one that is mapped: the addresses behind it are reserved and have no
/// memory.
class Last {
 public:
  explicit Last(std::size_t bytes) {
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    std::size_t unit = 0;
    EXPECT_EQ(granularity_(&unit, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM), CUDA_SUCCESS);
    if (unit == 0) return;
    mapped_ = (bytes + unit - 1) / unit * unit;
    reserved_ = mapped_ + unit;
    EXPECT_EQ(reserve_(&base_, reserved_, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(create_(&memory_, mapped_, &wanted, 0), CUDA_SUCCESS);
    EXPECT_EQ(map_(base_, mapped_, 0, memory_, 0), CUDA_SUCCESS);
    const CUmemAccessDesc access{wanted.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_EQ(allow_(base_, mapped_, &access, 1), CUDA_SUCCESS);
    data_ = reinterpret_cast<std::byte*>(base_ + mapped_ - bytes);
  }
  ~Last() {
    if (base_ == 0) return;
    unmap_(base_, mapped_);
    release_(memory_);
    free_(base_, reserved_);
  }
  Last(const Last&) = delete;
  Last& operator=(const Last&) = delete;
  std::byte* data() const { return data_; }

 private:
#define FALCHION_DRIVER(name) driver_function<decltype(name)>(#name)
  decltype(cuMemGetAllocationGranularity)* granularity_ = FALCHION_DRIVER(cuMemGetAllocationGranularity);
  decltype(cuMemAddressReserve)* reserve_ = FALCHION_DRIVER(cuMemAddressReserve);
  decltype(cuMemCreate)* create_ = FALCHION_DRIVER(cuMemCreate);
  decltype(cuMemMap)* map_ = FALCHION_DRIVER(cuMemMap);
  decltype(cuMemSetAccess)* allow_ = FALCHION_DRIVER(cuMemSetAccess);
  decltype(cuMemUnmap)* unmap_ = FALCHION_DRIVER(cuMemUnmap);
  decltype(cuMemRelease)* release_ = FALCHION_DRIVER(cuMemRelease);
  decltype(cuMemAddressFree)* free_ = FALCHION_DRIVER(cuMemAddressFree);
#undef FALCHION_DRIVER
  CUdeviceptr base_ = 0;
  CUmemGenericAllocationHandle memory_ = 0;
  std::size_t mapped_ = 0, reserved_ = 0;
  std::byte* data_ = nullptr;
};

/// The same view of the tensor's bytes at the end of mapped memory.
Tensor moved(const HostTensor& x, const Last& to) {
  EXPECT_EQ(cudaMemcpy(to.data(), x.memory(), x.memory_bytes(), cudaMemcpyHostToDevice), cudaSuccess);
  Tensor view = x.view();
  view.data = to.data() + (static_cast<std::byte*>(x.view().data) - x.memory());
  return view;
}

void run_at_the_end(const Path& path, Instance x) {
  const Reference reference(x);
  x.shares_tiles = true;
  x.poison_outputs();
  Plan plan;
  const Status made = Plan::make(x.problem, Pass::forward, path.target(), &plan);
  std::vector<cuda::Bytes> whole;
  for (const HostTensor* tensor : x.tensors()) whole.push_back({tensor->memory(), tensor->memory_bytes()});
  PlanOnDevice<Operands> device(made, std::move(plan), x.problem, x.operands(), whole);
  ASSERT_OK(device.status());
  const Last k(x.k.memory_bytes()), v(x.v.memory_bytes());
  ASSERT_NE(k.data(), nullptr);
  ASSERT_NE(v.data(), nullptr);
  Operands operands = device.operands();
  operands.k = moved(x.k, k);
  operands.v = moved(x.v, v);
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_OK(device.run(operands));
  ASSERT_OK(device.download());
  EXPECT_TRUE(matches(x, reference));
}

TEST(CudaCacheEdges, NothingBehindThePoolIsTouched) {
  if (usable_paths().empty()) GTEST_SKIP() << Path{Backend::sm80, ""}.why_not();
  each_wild_cache({40, 64, 128}, [](const auto& make) {
    on_every_path([&](const Path& path, DType dtype) {
      const Instance x = make(dtype);
      expect_decode(path, x.problem);
      run_at_the_end(path, x);
    });
  });
}

}  // namespace
}  // namespace falchion::testing
