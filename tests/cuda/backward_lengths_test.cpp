// tests/cuda/backward_lengths_test.cpp: the backward pass on a GPU for groups of heads, bands and lengths that cut its
// tiles in every way, and for rows that hold NaN and count for nothing. All results are judged by the tolerance rule.
#include <cstdint>
#include <limits>
#include <vector>

#include "backward.hpp"

namespace falchion::testing {
namespace {

constexpr float kQuietNan = std::numeric_limits<float>::quiet_NaN();

/// Whether rows and keys of no sequence still hold poison, and no other row does.
void expect_only_rows_written(const Gradients& x) {
  const auto check = [](const char* name, const HostTensor& gradient, const auto& is_row) {
    std::int64_t wrong = 0;
    gradient.for_each([&](auto b, auto s, auto h, auto d) { wrong += gradient.is_poison(b, s, h, d) == is_row(b, s); });
    EXPECT_EQ(wrong, 0) << name;
  };
  check("grad_q", x.grad_q, [&](auto b, auto s) { return x.is_row(b, s); });
  check("grad_k", x.grad_k, [&](auto b, auto s) { return x.is_key(b, s); });
  check("grad_v", x.grad_v, [&](auto b, auto s) { return x.is_key(b, s); });
}

TEST(CudaBackwardShapes, GroupsOfHeads) {
  judged({Case{"gqa 1", 2, 200, 330, 4, 4, 64, 64}.causal(), Case{"gqa 4", 1, 200, 330, 8, 2, 64, 64}.causal(),
          Case{"gqa 8", 1, 130, 200, 8, 1, 64, 64}, Case{"mqa 16", 1, 70, 140, 16, 1, 128, 128}.causal(),
          Case{"gqa 4, wide", 1, 200, 330, 8, 2, 192, 192}.causal(), Case{"mqa 8, wide", 1, 130, 200, 8, 1, 256, 256},
          Case{"gqa 3", 1, 130, 200, 9, 3, 40, 64}.window(50, 50)},
         {.grad_lse = true});
}

TEST(CudaBackwardShapes, Bands) {
  std::vector<Case> rows;
  for (const Align align : {Align::top_left, Align::bottom_right}) {
    for (const auto& [s_q, s_k] : {std::pair<std::int64_t, std::int64_t>{400, 150}, {150, 400}, {257, 257}, {1, 300}}) {
      rows.push_back(Case{"causal", 1, s_q, s_k, 2, 1, 64, 64}.causal(align));
      rows.push_back(Case{"window", 1, s_q, s_k, 2, 2, 64, 64}.window(100, 3, align));
    }
    rows.push_back(Case{"left", 1, 300, 300, 2, 1, 128, 128}.window(65, Band::unbounded, align));
    rows.push_back(Case{"right", 1, 300, 300, 2, 1, 128, 128}.window(Band::unbounded, 130, align));
    rows.push_back(Case{"left, wide", 1, 300, 300, 2, 1, 256, 256}.window(65, Band::unbounded, align));
    rows.push_back(Case{"right, wide", 1, 300, 300, 2, 1, 192, 128}.window(Band::unbounded, 130, align));
    rows.push_back(Case{"diagonal", 1, 300, 300, 1, 1, 64, 64}.window(0, 0, align));
    rows.push_back(Case{"nothing seen", 1, 200, 200, 1, 1, 64, 64}.window(10, 10, align).used_k({3}));
  }
  judged(rows);
}

/// Lengths of batches of 1 to 300 sequences, among them 0, 1 and those around the sizes of tiles. s_q leaves room for
/// the rows of no sequence.
TEST(CudaBackwardLengths, PackedBatchesOfAnySize) {
  constexpr std::int32_t kLengths[] = {0, 1, 65, 2, 128, 0, 64, 129, 17, 1, 200, 63, 127, 256, 33};
  std::vector<Case> rows;
  for (const int count : {1, 2, 31, 33}) {
    std::vector<std::int32_t> q, k;
    for (int b = 0; b < count; ++b) {
      q.push_back(kLengths[(b + count) % 15]);
      k.push_back(kLengths[(7 * b + 2) % 15]);
    }
    rows.push_back(Case{"packed", count, 260, 260, 2, 1, 64, 64}.packed(q, k).causal());
    rows.push_back(Case{"packed, wide", count, 260, 260, 2, 1, 256, 256}.packed(q, k).causal());
    rows.push_back(
        Case{"packed, top left", count, 260, 260, 2, 2, 40, 40}.packed(q, k).window(70, 70, Align::top_left));
  }
  for (const int count : {100, 300}) {
    std::vector<std::int32_t> q, k;
    for (int b = 0; b < count; ++b) {
      q.push_back(b % 7 == 0 ? 0 : b % 11 == 0 ? 70 : b % 5);
      k.push_back(b % 6 == 1 ? 0 : b % 13 == 0 ? 140 : b % 9);
    }
    rows.push_back(Case{"many", count, 150, 150, 2, 1, 16, 16}.packed(q, k).causal());
  }
  judged(
      rows, {}, [](Gradients*) {}, expect_only_rows_written);
  judged({rows[3], rows.back()}, {.zero_unused = true});
}

TEST(CudaBackwardLengths, PackedBatchesOfEmptySequences) {
  judged(
      {Case{"empty", 3, 4, 4, 2, 1, 64, 64}.packed({0, 0, 0}, {0, 0, 0}),
       Case{"no keys", 3, 150, 4, 2, 1, 64, 64}.packed({130, 1, 150}, {0, 0, 0}),
       Case{"no queries", 3, 4, 150, 2, 1, 64, 64}.packed({0, 0, 0}, {130, 1, 150})},
      {}, [](Gradients*) {}, expect_only_rows_written);
}

/// Rows and keys beyond a length hold NaN in every operand (support/gradients.hpp).
TEST(CudaBackwardLengths, UsedRowsAndKeys) {
  const std::vector<Case> rows = {
      Case{"used", 4, 200, 330, 2, 1, 64, 64}.used_q({200, 0, 1, 130}).used_k({330, 50, 129, 0}),
      Case{"used, causal", 3, 200, 330, 4, 2, 128, 128}.used_q({77, 200, 128}).used_k({330, 1, 128}).causal(),
      Case{"used, wide", 3, 200, 330, 4, 2, 256, 256}.used_q({77, 200, 128}).used_k({330, 1, 128}).causal(),
      Case{"used, top left", 2, 200, 330, 2, 1, 64, 64}.used_q({199, 65}).used_k({100, 329}).causal(Align::top_left),
      Case{"first", 3, 200, 330, 2, 1, 64, 64}.first_k({0, 129, 330}).causal(),
      Case{"first and used", 3, 200, 330, 2, 2, 40, 40}.first_k({7, 129, 64}).used_k({200, 300, 70}).window(90, 9),
      Case{"packed", 3, 150, 330, 2, 1, 64, 64}
          .packed({150, 129, 60}, {330, 130, 60})
          .used_q({149, 3, 0})
          .used_k({130, 129, 60}),
      Case{"packed, first", 3, 150, 330, 2, 1, 64, 64}
          .packed({150, 129, 60}, {330, 130, 60})
          .first_k({130, 1, 59})
          .causal()};
  judged(
      rows, {.grad_lse = true}, [](Gradients*) {}, expect_only_rows_written);
  judged(rows, {.zero_unused = true});
  judged({Case{"features", 3, 150, 200, 4, 2, 40, 24}
              .used_q({150, 70, 1})
              .used_k({200, 3, 129})
              .first_k({3, 1, 129})
              .bias(Case::Bias::f32)
              .alibi()
              .mask()},
         {.grad_bias = {3, 1, 150, 200}, .grad_alibi = {1, 1, 4, 1}});
}

/// A row whose lse is -inf adds nothing, though its q, o, grad_o and grad_lse hold NaN. A NaN of q or of grad_o may
/// reach its column of grad_k or of grad_v, so each is in one column alone.
TEST(CudaBackwardLengths, DeadRowsThatHoldNan) {
  const auto plant = [](Gradients* x) {
    const Shape n = x->grad_o.shape();
    for (std::int64_t b = 0; b < n[0]; ++b) {
      for (std::int64_t h = 0; h < n[2]; ++h) {
        for (std::int64_t i = h; i < n[1]; i += i % 3 == 0 ? 1 : 29) {
          if (!x->is_row(b, i)) continue;
          x->x.lse.set(b, h, i, 0, -std::numeric_limits<float>::infinity());
          x->grad_lse.set(b, h, i, 0, kQuietNan);
          x->x.q.set(b, i, h, 3, kQuietNan);
          x->grad_o.set(b, i, h, 5, kQuietNan);
          for (std::int64_t d = 0; d < n[3]; ++d) x->x.o.set(b, i, h, d, kQuietNan);
        }
      }
    }
  };
  const auto clean = [](const Gradients& x) {
    std::int64_t wrong = 0;
    x.grad_q.for_each([&](auto b, auto i, auto h, auto d) {
      const bool dead = x.is_row(b, i) && x.x.lse.get(b, h, i, 0) == -std::numeric_limits<float>::infinity();
      wrong += dead && x.grad_q.get(b, i, h, d) != 0 ? 1 : 0;
    });
    EXPECT_EQ(wrong, 0) << "grad_q of rows that see no key";
  };
  judged({Case{"full", 2, 200, 330, 4, 2, 64, 64}, Case{"causal", 1, 300, 300, 2, 1, 128, 128}.causal(),
          Case{"wide", 1, 300, 300, 2, 1, 256, 256}.causal(),
          Case{"packed", 3, 150, 330, 2, 1, 64, 64}.packed({150, 1, 60}, {330, 130, 60}),
          Case{"features", 1, 150, 200, 4, 2, 40, 24}.alibi().softcap(5).dropout(0.2F)},
         {.grad_lse = true}, plant, clean);
}

}  // namespace
}  // namespace falchion::testing
