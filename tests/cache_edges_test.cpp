// tests/cache_edges_test.cpp: nothing is read or written beside the pool of a KV cache: K and V lie between two pages
// of memory that nobody may touch, and the table names pages that are not there. On a GPU:
// tests/cuda/cache_edges_test.cpp.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <utility>

#include "support/contract.hpp"
#include "support/wild_cache.hpp"

namespace falchion::testing {
namespace {

/// The bytes of a tensor at the beginning or at the end of memory, before and behind which every access is a fault.
class Fenced {
 public:
  Fenced(const HostTensor& x, bool at_end) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t bytes = x.memory_bytes(), room = (bytes + page - 1) / page * page;
    size_ = room + 2 * page;
    base_ = static_cast<std::byte*>(mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(base_, MAP_FAILED);
    EXPECT_EQ(mprotect(base_ + page, room, PROT_READ | PROT_WRITE), 0);
    std::byte* to = base_ + page + (at_end ? room - bytes : 0);
    std::memcpy(to, x.memory(), bytes);
    view_ = x.view();
    view_.data = to + (static_cast<std::byte*>(x.view().data) - x.memory());
  }
  ~Fenced() { munmap(base_, size_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  const Tensor& view() const { return view_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
  Tensor view_;
};

TEST(CacheEdges, NothingBesideThePoolIsTouched) {
  each_wild_cache({40, 64}, [](const auto& make) {
    std::map<DType, std::pair<Instance, Reference>> made;
    for (const DType dtype : kTypes) {
      const Instance x = make(dtype);
      made.try_emplace(dtype, x, Reference(x));
    }
    on_every_path([&](const Path& path, DType dtype) {
      auto& [x, reference] = made.at(dtype);
      for (const bool at_end : {false, true}) {
        const Fenced k(x.k, at_end), v(x.v, at_end);
        x.poison_outputs();
        Operands operands = x.operands();
        operands.k = k.view();
        operands.v = v.view();
        const Status status = run_with(path, x.problem, operands);
        ASSERT_TRUE(status) << status.why;
        EXPECT_TRUE(matches(x, reference));
      }
    });
  });
}

}  // namespace
}  // namespace falchion::testing
