// tests/cuda/backward_kinds_test.cpp: the backward pass on a GPU where the kinds of kernels differ from each other:
// head dims above 128, whose kernel on Hopper has CTAs of two kinds, and sums of grad_q in any order. All results are
// judged by the tolerance rule.
#include <cstdint>
#include <utility>
#include <vector>

#include "backward.hpp"

namespace falchion::testing {
namespace {

// ---- Head dims above 128 --------------------------------------------------------------------------------------------

/// Without keys only CTAs with rows are launched, and without queries only CTAs with keys.
TEST(CudaBackwardWide, NoKeysAndNoQueries) {
  judged({Case{"no keys", 2, 130, 0, 4, 2, 256, 256}, Case{"no keys, causal", 1, 65, 0, 2, 2, 192, 192}.causal(),
          Case{"no queries", 2, 0, 130, 4, 2, 256, 256}, Case{"no queries, causal", 1, 0, 65, 2, 2, 192, 192}.causal(),
          Case{"no keys in a sequence", 3, 150, 150, 2, 1, 256, 256}.used_k({0, 150, 0}),
          Case{"no queries in a sequence", 3, 150, 150, 2, 1, 256, 256}.used_q({0, 150, 0}).causal()});
}

/// What is frozen is neither computed nor written, and the rest has the bits that it has beside it.
TEST(CudaBackwardWide, FrozenAsFull) {
  const std::vector<Case> rows = {Case{"full", 1, 200, 330, 4, 2, 256, 256},
                                  Case{"causal", 2, 300, 300, 2, 1, 192, 192}.causal(),
                                  Case{"window", 1, 200, 330, 2, 2, 256, 192}.window(100, 20)};
  for (const std::uint8_t frozen : {1, 2}) judged(rows, {.grad_lse = true, .frozen = frozen});
  for (const Case& row : rows) {
    on_every_backward_path([&](const Path& path, DType dtype) {
      SCOPED_TRACE(row.name);
      Gradients full(row, dtype);
      full.run(path);
      for (const std::uint8_t frozen : {1, 2, 3}) {
        Gradients part(row, dtype, {.frozen = frozen});
        part.run(path);
        for_each_gradient(full, part, expect_same);
      }
    });
  }
}

TEST(CudaBackwardWide, F32AndAddedToWhatIsThere) {
  const std::vector<Case> rows = {
      Case{"full", 1, 200, 330, 4, 2, 256, 256},
      Case{"causal", 2, 150, 150, 2, 1, 192, 192}.causal(),
      Case{"used", 2, 150, 200, 2, 1, 256, 256}.used_q({150, 70}).used_k({129, 200}).causal(),
      Case{"packed", 3, 150, 200, 2, 1, 200, 256}.packed({150, 3, 40}, {200, 100, 0}),
      Case{"no keys", 1, 65, 0, 2, 2, 256, 256},
      Case{"no queries", 1, 0, 65, 2, 2, 256, 256}};
  judged(rows, {.grad_lse = true, .grads = Grads::f32});
  judged(rows, {.grads = Grads::accumulate});
}

/// Columns past d_qk and past d_v of a tile hold zeros, each in its own operands.
TEST(CudaBackwardWide, PairsOfHeadDims) {
  std::vector<Case> rows;
  for (const auto& [d_qk, d_v] :
       {std::pair<std::int64_t, std::int64_t>{136, 256}, {256, 136}, {192, 136}, {136, 192}, {256, 8}, {8, 256}}) {
    rows.push_back(Case{"full", 1, 200, 330, 4, 2, d_qk, d_v});
    rows.push_back(Case{"causal", 2, 150, 150, 2, 1, d_qk, d_v}.causal());
  }
  judged(rows, {.grad_lse = true});
}

// ---- Sums of grad_q in any order
// --------------------------------------------------------------------------------------

/// The sums are cleared before CTAs add to them, and each CTA begins with a tile of its own: packed and used lengths,
/// windows, groups of heads and rows that count for nothing change which tiles these are.
TEST(CudaBackwardAnyOrder, LengthsWindowsAndGroups) {
  const auto in_any_order = [](Gradients* x) { x->x.problem.any_order = true; };
  const auto nothing = [](const Gradients&) {};
  for (const std::int64_t d : {128, 64}) {
    const std::vector<Case> rows = {
        Case{"full", 1, 300, 700, 4, 2, d, d},
        Case{"causal", 2, 500, 500, 4, 1, d, d}.causal(),
        Case{"window", 1, 600, 600, 2, 2, d, d}.window(100, 30),
        Case{"left", 1, 300, 300, 2, 1, d, d}.window(65, Band::unbounded, Align::top_left),
        Case{"right", 1, 300, 500, 2, 1, d, d}.window(Band::unbounded, 130),
        Case{"rows that see nothing", 1, 400, 150, 2, 1, d, d}.causal(),
        Case{"packed", 5, 260, 330, 4, 2, d, d}.packed({150, 0, 1, 260, 64}, {200, 100, 0, 330, 65}),
        Case{"packed, causal", 4, 260, 260, 2, 1, d, d}.packed({129, 3, 260, 64}, {129, 70, 260, 1}).causal(),
        Case{"packed, window", 3, 300, 300, 2, 2, d, d}.packed({300, 128, 65}, {300, 128, 65}).window(70, 70),
        Case{"used", 4, 200, 330, 4, 2, d, d}.used_q({200, 0, 1, 130}).used_k({330, 50, 129, 0}),
        Case{"used, causal", 3, 200, 330, 4, 2, d, d}.used_q({77, 200, 128}).used_k({330, 1, 128}).causal(),
        Case{"first", 3, 200, 330, 2, 1, d, d}.first_k({0, 129, 330}).window(90, 9)};
    judged(rows, {.grad_lse = true}, in_any_order, nothing);
    judged({rows[6], rows[9]}, {.zero_unused = true}, in_any_order, nothing);
    judged({rows[1], rows[7]}, {.grads = Grads::accumulate}, in_any_order, nothing);
    judged({rows[1], rows[6]}, {.frozen = 1}, in_any_order, nothing);
  }
}

/// A workspace that holds NaN, or the sums of the run before, must not reach grad_q.
TEST(CudaBackwardAnyOrder, WhateverTheWorkspaceHolds) {
  on_every_backward_path([](const Path& path, DType dtype) {
    for (const std::int64_t d : {128, 64}) {
      Gradients x(Case{"causal", 2, 300, 500, 4, 2, d, d}.causal(), dtype);
      x.x.problem.any_order = true;
      const judge::GradientReference reference(x.x.problem, x.operands());
      GradientsOnDevice device(path, &x);
      ASSERT_OK(device.status());
      for (std::uint64_t i = 0; i < 5; ++i) {
        ASSERT_OK(device.upload());
        if (i < 3) ASSERT_OK(device.spoil_workspace(i));
        ASSERT_OK(cuda::synchronize());
        ASSERT_OK(device.run());
        ASSERT_OK(device.download());
        expect_judged(x, reference);
      }
    }
  });
}

}  // namespace
}  // namespace falchion::testing
