// tests/support/wild_cache.hpp: caches whose tables name pages that are not there, for tests of what is read beside a
// pool.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "plan/text.hpp"
#include "support/cache.hpp"

namespace falchion::testing {

/// Three sequences in pages of a pool whose first and last slots are read. Every slot holds numbers. Some entries of
/// the table are no page, nor near one.
inline Instance wild_cache(const Case& row, DType dtype, const Pages& pages, bool append) {
  Instance x = in_pages(make_instance(row, dtype), pages);
  if (append) x = with_new_keys(x);
  for (HostTensor* tensor : {&x.k, &x.v, &x.k_new, &x.v_new})
    tensor->for_each([&](auto b, auto s, auto h, auto d) {
      if (std::isnan(tensor->get(b, s, h, d))) tensor->set(b, s, h, d, 0.25F * static_cast<float>((b + s + d) % 7));
    });
  const auto count = static_cast<std::int32_t>(x.k.shape()[0]);
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max(), kLeast = -kMost - 1;
  *entry(&x, 0, 0) = 0;
  *entry(&x, 0, 1) = count - 1;
  *entry(&x, 1, 0) = -1;
  *entry(&x, 1, 2) = kMost;
  *entry(&x, 1, 3) = count;
  *entry(&x, 2, 0) = kLeast;
  *entry(&x, 2, x.page_table.shape()[1] - 1) = count + 5;
  return x;
}

/// Calls f(make) for few rows and many, page sizes that end elsewhere in a tile, and new keys; make(dtype) is the
/// instance.
template <class F>
void each_wild_cache(std::initializer_list<std::int64_t> head_dims, const F& f) {
  for (const std::int64_t d : head_dims) {
    for (const std::int64_t s_q : {1, 5, 70}) {
      for (const Pages& pages : {Pages{1, 3}, Pages{3, 3}, Pages{16, 3, false, Layout::heads_first}}) {
        const bool append = pages.size != 3;
        SCOPED_TRACE(text("d ", d, ", s_q ", s_q, ", pages of ", pages.size, append ? ", new keys" : ""));
        const Case row = Case{"wild", 3, s_q, 200, 4, 2, d, d}.causal().used_k({200, 197, 200});
        f([&](DType dtype) { return wild_cache(row, dtype, pages, append); });
      }
    }
  }
}

}  // namespace falchion::testing
