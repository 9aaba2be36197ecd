// tests/support/banks.hpp: works out on the host, with CuTe, which bytes of shared memory the threads of a CTA touch,
// and how often they meet in a bank.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <vector>

#include <cute/tensor.hpp>

namespace falchion::testing {

using namespace cute;

/// How many words the busiest bank must give in one phase; 1 is free of conflicts. There are 32 banks
/// of 4 bytes. A warp's 16-byte accesses take four phases of 8 lanes, and those of 8 bytes take two. A
/// word that several lanes want counts once.
inline int ways(const std::vector<std::ptrdiff_t>& addresses, int width) {
  std::array<std::set<std::ptrdiff_t>, 32> words;
  for (const std::ptrdiff_t address : addresses) {
    for (std::ptrdiff_t word = address / 4; word < (address + width) / 4; ++word)
      words[static_cast<std::size_t>(word % 32)].insert(word);
  }
  std::size_t most = 0;
  for (const auto& bank : words) most = std::max(most, bank.size());
  return static_cast<int>(most);
}

/// How all threads access one tile.
struct Access {
  int worst = 0;      // The number of words of the busiest bank in the worst phase.
  bool whole = true;  // Whether each access has `width` contiguous bytes and is aligned to them.
  std::vector<std::set<std::ptrdiff_t>> warp;  // The addresses that each warp touches, divided by `width`.
};

/// at(thread, i) is the byte address of the i-th access of a thread, of `count` in all.
template <class At>
Access walk(int threads, int count, int width, At at) {
  Access access;
  access.warp.resize(static_cast<std::size_t>(threads / 32));
  const int lanes = width > 4 ? 128 / width : 32;
  for (int first = 0; first < threads; first += lanes) {
    for (int i = 0; i < count; ++i) {
      std::vector<std::ptrdiff_t> addresses;
      for (int lane = 0; lane < lanes; ++lane) {
        addresses.push_back(at(first + lane, i));
        access.whole = access.whole && addresses.back() % width == 0;
        access.warp[static_cast<std::size_t>(first / 32)].insert(addresses.back() / width);
      }
      access.worst = std::max(access.worst, ways(addresses, width));
    }
  }
  return access;
}

/// The same where thread_tensor(thread) is the part of sX that CuTe gives to a thread, `width` bytes at a time.
template <class Tensor, class ThreadTensor>
Access walk(int threads, int width, const Tensor& sX, ThreadTensor thread_tensor) {
  using Element = typename Tensor::value_type;
  const Element* base = raw_pointer_cast(sX.data());
  const int each = width / static_cast<int>(sizeof(Element));
  bool contiguous = true;
  const auto address = [&](int thread, int i) {
    const auto part = thread_tensor(thread);
    const Element* from = &part(i * each);
    for (int j = 1; j < each; ++j) contiguous = contiguous && &part(i * each + j) == from + j;
    return (from - base) * static_cast<std::ptrdiff_t>(sizeof(Element));
  };
  Access access = walk(threads, static_cast<int>(size(thread_tensor(0))) / each, width, address);
  access.whole = access.whole && contiguous;
  return access;
}

/// A tile in memory, of which only the addresses are used.
template <class Config, class Layout_>
auto tile(Layout_ layout) {
  alignas(1024) static typename Config::Element memory[cosize_v<Layout_>];
  return make_tensor(make_smem_ptr(memory), layout);
}

}  // namespace falchion::testing
