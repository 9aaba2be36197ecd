// src/cpu/gemm/kernel.hpp: a GEMM on the CPU. src/ref defines the result; this file gives the order of the steps: each
// work item is a tile of D, whose sums over all of k stay with one worker, and its store is fused. docs/design/gemm.md
// gives the reasons and the measurements.
#pragma once

#include <type_traits>

#include "cpu/blocks/workers.hpp"
#include "cpu/gemm/few.hpp"
#include "cpu/gemm/store.hpp"
#if FALCHION_TILES
  #include "cpu/gemm/products_amx.hpp"
#endif
#if FALCHION_VNNI
  #include "cpu/gemm/products_vnni.hpp"
#endif

namespace falchion::cpu::FALCHION_LEVEL {

/// How D is cut into items: rows fastest, so that concurrent workers share columns of b.
struct GemmItems {
  std::int64_t rows, columns;  // of one item
  std::int64_t down, across;   // items along m, along n

  static GemmItems of(const GemmArgs& a, bool few) {
    const std::int64_t rows = few ? a.m : a.rows, columns = few ? a.few_columns : a.columns;
    return {rows, columns, ceil_div(a.m, rows), ceil_div(a.n, columns)};
  }
  std::int64_t count(const GemmArgs& a) const { return a.batch * down * across; }
};

/// One worker with its slice of the scratch memory. Product: SimdGemm and its like.
template <class T, class Product>
class GemmWorker {
 public:
  GemmWorker(const GemmArgs& a, const GemmItems& items, Arena& arena)
      : a_(a),
        items_(items),
        product_(arena, items.rows, items.columns),
        store_(a, arena, items.columns),
        scales_(a, arena, items.rows, items.columns, Product::kDepth),
        sums_(take(arena)),
        up_(swiglu() ? take(arena) : GemmSums{}) {}

  void run(std::int64_t item) {
    const std::int64_t down = item % items_.down, rest = item / items_.down;
    const std::int64_t b = rest / items_.across, i = down * items_.rows, j = rest % items_.across * items_.columns;
    const std::int64_t rows = min(items_.rows, a_.m - i), columns = min(items_.columns, a_.n - j);
    const auto a = GemmRows<T>::of(a_.a, b, a_.k, a_.k1).from(i);
    const auto of_b = GemmRows<T>::of(a_.b, b, a_.k, a_.k1);
    const auto multiply = [&](std::int64_t row_of_b, GemmSums sums) {
      scales_.move_to(b, i, rows, row_of_b, columns);
      product_.multiply(a, of_b.from(row_of_b), rows, columns, a_.k, sums);
    };
    multiply(j, sums_);  // sums = A B^T
    if (swiglu()) multiply(a_.n + j, up_);
    store_.run(b, i, rows, j, columns, sums_, up_);  // D = activation(alpha sums + beta C + bias) + R
  }

 private:
  bool swiglu() const { return a_.activation == GemmActivation::swiglu; }
  /// Rows are an odd number of cache lines apart. Whole register tiles, of at most 32 rows and 64 columns, may be
  /// written.
  GemmSums take(Arena& arena) {
    const std::int64_t ld = round_up(items_.columns, 64) + 16;
    return {arena.take<float>(round_up(items_.rows, 32) * ld), ld, a_.block_scales ? &scales_ : nullptr};
  }

  const GemmArgs& a_;
  const GemmItems items_;
  Product product_;
  GemmStore<T> store_;
  BlockScales scales_;
  GemmSums sums_, up_;
};

template <class T, class Product, class FewProduct>
struct GemmOnCpu {
  using Packed = GemmWorker<T, Product>;
  using Few = GemmWorker<T, FewProduct>;

  template <class Worker>
  static std::size_t bytes(const GemmArgs& a, bool few) {
    Arena arena(nullptr);
    Worker(a, GemmItems::of(a, few), arena);
    return arena.used();
  }
  /// Which of them runs depends on b's strides, which the plan does not know.
  static std::size_t scratch(const GemmArgs& a) {
    const std::size_t packed = bytes<Packed>(a, false), few = a.m <= kFewRows ? bytes<Few>(a, true) : 0;
    return packed > few ? packed : few;
  }
  template <class Worker, class Scope>
  static void run_items(const GemmArgs& a, bool few) {
    const GemmItems items = GemmItems::of(a, few);
    const std::int64_t count = items.count(a);
    for_each_worker(a, count, [&](int worker, Counter& next) {
      [[maybe_unused]] Scope scope{};
      Arena arena(a.scratch + static_cast<std::size_t>(worker) * a.scratch_bytes);
      Worker work(a, items, arena);
      for (std::int64_t item = next.take(); item < count; item = next.take()) work.run(item);
    });
  }
  static void run(const GemmArgs& a) {
    if (a.m <= kFewRows && GemmRows<T>::of(a.b, 0, a.k, a.k1).whole(a.k)) return run_items<Few, int>(a, true);
    run_items<Packed, typename Product::Scope>(a, false);
  }
};

template <class T>
constexpr GemmKernel gemm_kernel() {
#if FALCHION_TILES
  // f16 would take three products of bf16 parts and f32 six, with their packing. They use avx512's kernel.
  using Product = AmxGemm<T>;
#elif FALCHION_VNNI
  static_assert(std::is_same_v<T, i8>);
  using Product = VnniGemm;
#else
  using Product = SimdGemm<T>;
#endif
#if FALCHION_VNNI
  using Few = std::conditional_t<std::is_same_v<T, i8>, FewVnniGemm, FewGemm<T>>;
#else
  using Few = FewGemm<T>;
#endif
  using Kernel = GemmOnCpu<T, Product, Few>;
  return {&Kernel::scratch, &Kernel::run, Product::tile(kFewRows)};
}

}  // namespace falchion::cpu::FALCHION_LEVEL
