// src/plan/gemm_gpu_launch.cpp: the layouts of the operands of a run -> the variant that can move them, and its
// arguments.
#include <algorithm>
#include <cstdint>

#include "base/divide.hpp"
#include "base/size.hpp"
#include "plan/gemm.hpp"
#include "plan/gemm_call.hpp"
#include "plan/gemm_gpu.hpp"
#include "plan/gemm_gpu_few.hpp"
#include "plan/launch.hpp"

namespace falchion {
namespace {

using gpu::Major;

/// Two axes that follow each other in memory, or of which the inner one has one element, are one in all of these
/// tensors.
template <class... Views>
void join_axes(std::int64_t whole, std::int64_t* inner, Views*... views) {
  if (*inner == 1 && whole > 1) {
    const auto outer_alone = [](View* x) { x->stride[3] = x->stride[2]; };
    (outer_alone(views), ...);
    *inner = whole;
    return;
  }
  const auto follows = [&](const View& x) { return x.data == nullptr || x.stride[2] == *inner * x.stride[3]; };
  if (*inner < whole && (follows(*views) && ...)) *inner = whole;
}

bool is_multiple(std::int64_t stride, std::int64_t of) { return stride % of == 0; }

/// The axis along which 16 bytes can be moved at a time. They must not cross the end of k1. up: rows from a gate to the
/// other half of its column, else 0.
Major major_of(const View& x, std::int64_t k, std::int64_t k1, std::int64_t up, int size) {
  const std::int64_t chunk = 16 / size;
  if (reinterpret_cast<std::uintptr_t>(x.data) % 16 != 0 || !is_multiple(x.stride[0], chunk)) return Major::neither;
  const bool by_k2 = k1 >= k || is_multiple(x.stride[2], chunk);
  const bool whole = k1 >= k || k1 % chunk == 0;
  if (x.stride[3] == 1 && is_multiple(x.stride[1], chunk) && by_k2 && whole) return Major::k;
  if (x.stride[1] == 1 && is_multiple(x.stride[3], chunk) && by_k2 && up % chunk == 0) return Major::rows;
  return Major::neither;
}

/// Whether four neighbouring columns can be moved at a time.
bool moves_four(const View& x, const GemmCall& call, std::int64_t size) {
  return x.data != nullptr && reinterpret_cast<std::uintptr_t>(x.data) % static_cast<std::uintptr_t>(4 * size) == 0 &&
         x.stride[3] == 1 && call.n1 % 4 == 0 && is_multiple(x.stride[0], 4) && is_multiple(x.stride[1], 4) &&
         (call.n1 >= call.n || is_multiple(x.stride[2], 4));
}

/// Whether TMA can load the operand, in boxes of 128 bytes of k1.
bool fits_tma(const View& x, Major major, std::int64_t rows, const GemmCall& call, std::int64_t size) {
  const std::int64_t most = (std::int64_t{1} << 40) / size - 1;
  const auto fits = [&](std::int64_t stride, std::int64_t extent, std::int64_t least) {
    return extent <= 1 || (stride >= least && stride <= most);
  };
  const std::int64_t k2 = call.k1 < call.k ? call.k / call.k1 : 1;
  const bool whole = k2 == 1 || call.k1 % (128 / size) == 0;
  const bool along_k = major == Major::k && fits(x.stride[1], rows, call.k1) && fits(x.stride[2], k2, call.k1);
  const bool along_rows = major == Major::rows && fits(x.stride[3], call.k1, rows) && fits(x.stride[2], k2, rows);
  // The last tile of rows begins inside and may extend by 2^9 rows; coordinates have 31 bits.
  return whole && rows < INT32_MAX - 512 && (along_k || along_rows) &&
         (x.stride[0] == 0 || fits(x.stride[0], call.batch, 1));
}

/// Whether TMA can move d, c or the residual, of so many bytes a number, in boxes of 128 bytes.
bool fits_boxes(const View& x, const GemmCall& call, int size) {
  if (x.data == nullptr) return true;
  const bool cut = call.n1 < call.n;
  View turned = x;
  if (!cut) turned.stride[2] = 0;
  GemmCall as_k = call;  // seen as an operand whose k is n
  as_k.k = call.n;
  as_k.k1 = call.n1;
  // TMA stores 16 bytes at a time: if a row ended within them, it would write past its end.
  return call.n1 % (16 / size) == 0 && (!cut || call.n1 % (128 / size) == 0) &&
         major_of(turned, call.n, call.n1, 0, size) == Major::k && fits_tma(turned, Major::k, call.m, as_k, size);
}

/// Whether d has 16 bits or is i32, c has its type, and TMA can move it and all operands of its shape.
bool d_fits_boxes(const Gemm& g, const GemmCall& call) {
  const DType d = dtype_of_d(g);
  const int size = static_cast<int>(size_of(d));
  const bool types = (size == 2 || d == DType::i32) && (g.beta == 0 || dtype_of_c(g) == d);
  return types && fits_boxes(call.d, call, size) && fits_boxes(call.c, call, size) &&
         fits_boxes(call.residual, call, size);
}

/// D in i32 is always plain. Otherwise operands of 8 bits may have scales, and sums of i8 have to become f32.
bool is_plain(const Gemm& g) {
  const bool sums = size_of(g.dtype) == 2 || dtype_of_d(g) == DType::i32;
  return sums && g.beta == 0 && !g.bias_n && !g.bias_m && !g.residual && g.activation == Activation::none;
}

/// The call, with the layouts of its operands. Returns whether it is that of merged(problem).
bool set_gpu_call(const Gemm& g, const GemmOperands& x, gpu::GemmArgs* args) {
  const bool one_matrix = set_call(g, x, args);
  join_axes(args->k, &args->k1, &args->a, &args->b);
  join_axes(args->n, &args->n1, &args->c, &args->d, &args->residual);
  const int size = static_cast<int>(size_of(g.dtype));
  const std::int64_t size_c = size_of(dtype_of_c(g)), size_d = size_of(dtype_of_d(g));
  args->a_major = major_of(args->a, args->k, args->k1, 0, size);
  args->b_major = major_of(args->b, args->k, args->k1, g.activation == Activation::swiglu ? g.n : 0, size);
  args->c_whole = moves_four(args->c, *args, size_c);
  args->d_whole = moves_four(args->d, *args, size_d);
  args->residual_whole = moves_four(args->residual, *args, size_d);
  return one_matrix;
}

}  // namespace

GemmLayout layout_of(const PlanData& plan, const GemmOperands& x) noexcept {
  const Gemm& g = plan.gemm().problem;
  GemmLayout layout;
  const gpu::GemmArgs& args = layout.args;
  layout.met.add_if(set_gpu_call(g, x, &layout.args), Condition::one_matrix);
  const bool moves = args.a_major != Major::neither && args.b_major != Major::neither, nothing = args.k == 0;
  layout.met.add_if(nothing || moves, Condition::aligned);
  if (plan.backend != Backend::sm90) return layout;
  const std::int64_t size = size_of(g.dtype);
  layout.met.add_if(nothing || (args.a_major == Major::k && args.b_major == Major::k), Condition::along_k);
  layout.met.add_if(nothing || (moves && fits_tma(args.a, args.a_major, args.m, args, size) &&
                                fits_tma(args.b, args.b_major, rows_of_b(g), args, size)),
                    Condition::tma);
  return layout;
}

gpu::GemmArgs to_gpu_gemm_args(const PlanData& plan, const Choice& taken, const GemmLayout& layout,
                               void* workspace) noexcept {
  const Gemm& g = plan.gemm().problem;
  const gpu::GemmFacts& facts = taken.variant->facts_as<gpu::GemmFacts>();
  const GemmGpuCut& cut = taken.cut_as<GemmGpuCut>();
  gpu::GemmArgs args = layout.args;
  // TMA loads a B that is contiguous along its rows 64 rows at a time.
  if (cut.columns > 0) args.columns = args.b_major == Major::rows ? ceil_div(cut.columns, 64) * 64 : cut.columns;
  args.tiles_m = ceil_div(args.m, facts.rows);
  args.tiles_n = ceil_div(rows_of_b(g), cut.columns > 0 ? args.columns : facts.columns);
  args.band = facts.band;
  args.whole = cut.whole;
  args.splits = cut.splits;
  args.set_divisors();
  args.depth = cut.depth;
  args.early = cut.early;
  args.part_rows = static_cast<int>(std::min<std::int64_t>(facts.rows, args.m));
  args.part_columns = facts.columns;
  args.walkers = std::max(plan.gpu.sms / (is_few_of_hopper(*taken.variant) ? cut.splits : facts.cluster), 1);
  // Boxes of tiles that do not begin at multiples of 64 would lie across the ends of n1.
  args.d_boxes = d_fits_boxes(g, args) && (args.n1 >= args.n || facts.columns % 64 == 0);
  args.plain = args.d_boxes && is_plain(g);
  args.partials = static_cast<float*>(workspace);
  return args;
}

}  // namespace falchion
