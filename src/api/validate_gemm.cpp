// src/api/validate_gemm.cpp: validates a GEMM, and its tensors.
#include <cmath>
#include <cstdint>

#include "api/operand_checks.hpp"
#include "api/sizes.hpp"
#include "api/validate.hpp"
#include "base/size.hpp"
#include "plan/gemm.hpp"

namespace falchion {
namespace {

constexpr std::int64_t kMaxExtent = kMaxSequence;  // m, n and k: an index is rounded up to tiles, and swiglu has 2 n
constexpr std::int64_t kMostK = ((std::int64_t{1} << 31) - 1) >> 14;  // of i8: products are up to 2^14, sums are i32
constexpr std::int64_t kMaxElements = std::int64_t{1} << 60;          // of d: no tensor reaches further

/// The types of d and c if a has 8 bits.
void check_results_of_8bit(const Gemm& g, Check* check) {
  const DType d = g.dtype_d;
  const bool sums = g.dtype == DType::i8 && d == DType::i32;
  check->supported(sums || d == DType::bf16 || d == DType::f16 || d == DType::f32, "dtype_d = ", d,
                   d == DType::as_q ? " (the type of a)" : "", " with dtype = ", g.dtype,
                   " is not built yet; nearest: bf16, f16, f32", g.dtype == DType::i8 ? ", i32" : "");
  check->supported(g.dtype_c == DType::as_q || g.dtype_c == d || g.dtype_c == DType::f32, "dtype_c = ", g.dtype_c,
                   " with dtype_d = ", d, " is not built yet; nearest: as_q, f32");
}

void check_gemm_dtypes(const Gemm& g, Check* check) {
  check->require(g.dtype <= kLastDType, "dtype = ", static_cast<int>(g.dtype), " is no DType");
  check->require(g.dtype != DType::as_q,
                 "dtype = as_q (0): the type of a is unset; it must be f32, f16, bf16, e4m3 or i8");
  check->require(g.dtype != DType::boolean, "dtype = boolean: a, b are numbers");
  for (const auto& [name, dtype] : {std::pair{"dtype_b", g.dtype_b}, {"dtype_c", g.dtype_c}, {"dtype_d", g.dtype_d}}) {
    check->require(dtype <= kLastDType, name, " = ", static_cast<int>(dtype), " is no DType");
    check->require(dtype != DType::boolean, name, " = boolean: a, b, c, d are numbers");
  }
  if (!check->ok()) return;
  const bool wide = g.dtype == DType::f32 || g.dtype == DType::f16 || g.dtype == DType::bf16;
  const bool built = wide || g.dtype == DType::e4m3 || g.dtype == DType::i8;
  check->supported(built, "dtype = ", g.dtype, " is not built yet; nearest: f32, f16, bf16, e4m3, i8");
  check->supported(g.dtype_b == DType::as_q || g.dtype_b == g.dtype, "dtype_b = ", g.dtype_b, " with dtype = ", g.dtype,
                   ": operands of different types are not built yet; nearest: as_q");
  if (!wide) return check_results_of_8bit(g, check);
  const auto check_result = [&](const char* name, DType dtype) {
    check->supported(dtype == DType::as_q || dtype == g.dtype || dtype == DType::f32, name, " = ", dtype,
                     " with dtype = ", g.dtype, " is not built yet; nearest: ", g.dtype,
                     g.dtype == DType::f32 ? "" : ", f32");
  };
  check_result("dtype_d", g.dtype_d);
  check_result("dtype_c", g.dtype_c);
}

/// The features of 8-bit types only: scales; sums of i8, which must not overflow; and d in i32, which is these sums
/// alone.
void check_8bit(const Gemm& g, Check* check) {
  check->require(g.scaling <= Scaling::block128, "scaling = ", static_cast<int>(g.scaling), " is no Scaling");
  check->supported(g.scaling == Scaling::none || is_8bit(g.dtype), "scaling = ", name(g.scaling),
                   " with dtype = ", g.dtype, ": scales are for e4m3 and i8; nearest: none");
  check->supported(g.scaling != Scaling::block128 || g.dtype != DType::i8, "scaling = block128 with dtype = i8",
                   ": scales of blocks are for e4m3; nearest: row_col");
  check->supported(g.dtype != DType::i8 || g.k <= kMostK, "k = ", g.k,
                   " with dtype = i8: sums in i32 could overflow; the limit is ", kMostK);
  if (g.dtype_d != DType::i32) return;
  const bool plain = g.alpha == 1 && g.beta == 0 && !g.bias_n && !g.bias_m && !g.residual &&
                     g.activation == Activation::none && g.scaling == Scaling::none;
  check->supported(plain, "dtype_d = i32 is for the sums alone: alpha = 1 and beta = 0 without scaling, bias, ",
                   "activation or residual; nearest: dtype_d = f32");
}

/// The caller chooses the type of a bias: f32, or that of a, or of d if a has 8 bits.
DType dtype_of_bias(const Gemm& g, const Tensor& x) {
  return x.dtype == DType::f32 ? DType::f32 : is_8bit(g.dtype) ? dtype_of_d(g) : g.dtype;
}

/// The shape of scale_a or scale_b. With row_col one number may serve all rows.
Shape shape_of_scale(const Gemm& g, const Tensor& x, const ScaleCount& count) {
  const bool one = g.scaling == Scaling::row_col && x.shape[1] == 1;
  return {x.shape[0] == 1 ? 1 : g.batch, one ? 1 : count.rows, count.along_k, 1};
}

/// The axes k2 and k1 (or n2 and n1) of x, whose product must be the problem's.
void check_product(const char* name, const Tensor& x, const char* of, std::int64_t value, Check* check) {
  const std::int64_t outer = x.shape[2], inner = x.shape[3];
  const bool empty = value == 0 && (outer == 0 || inner == 0);
  const bool fits = inner > 0 && value % inner == 0 && value / inner == outer;
  check->require(empty || fits, name, ".shape[2] * ", name, ".shape[3] = ", outer, " * ", inner, ": the problem's ", of,
                 " is ", value);
}

}  // namespace

OperandList operands_of(const Gemm& g, Pass, const GemmOperands& x) {
  const std::int64_t b_rows = rows_of_b(g);
  const auto shared = [&](const Tensor& tensor) { return tensor.shape[0] == 1 ? 1 : g.batch; };
  const Shape d{g.batch, g.m, x.d.shape[2], x.d.shape[3]};
  OperandList list{"Gemm"};
  list.add({.name = "a", .x = &x.a, .dtype = g.dtype, .shape = {g.batch, g.m, kAnyExtent, kAnyExtent}, .moved = true});
  list.add({.name = "b",
            .x = &x.b,
            .dtype = g.dtype,
            .shape = {shared(x.b), b_rows, x.a.shape[2], x.a.shape[3]},
            .moved = true,
            .like = "a"});
  if (g.beta != 0) list.add({.name = "c", .x = &x.c, .dtype = dtype_of_c(g), .shape = d, .like = "d"});
  list.add({.name = "residual",
            .flag = "Gemm::residual",
            .x = &x.residual,
            .dtype = dtype_of_d(g),
            .shape = d,
            .wanted = g.residual,
            .like = "d"});
  list.add({.name = "bias_n",
            .flag = "Gemm::bias_n",
            .x = &x.bias_n,
            .dtype = dtype_of_bias(g, x.bias_n),
            .shape = {1, 1, 1, b_rows},
            .wanted = g.bias_n});
  list.add({.name = "bias_m",
            .flag = "Gemm::bias_m",
            .x = &x.bias_m,
            .dtype = dtype_of_bias(g, x.bias_m),
            .shape = {shared(x.bias_m), g.m, 1, 1},
            .wanted = g.bias_m});
  const bool scaled = g.scaling != Scaling::none;
  list.add({.name = "scale_a",
            .flag = "Gemm::scaling",
            .x = &x.scale_a,
            .shape = shape_of_scale(g, x.scale_a, scales_of_a(g)),
            .wanted = scaled});
  list.add({.name = "scale_b",
            .flag = "Gemm::scaling",
            .x = &x.scale_b,
            .shape = shape_of_scale(g, x.scale_b, scales_of_b(g)),
            .wanted = scaled});
  list.add({.name = "d",
            .x = &x.d,
            .dtype = dtype_of_d(g),
            .shape = {g.batch, g.m, kAnyExtent, kAnyExtent},
            .output = true,
            .in_place = {&x.c, &x.residual}});
  return list;
}

Status validate_problem(const Gemm& g, Pass pass) {
  Check check;
  check.require(pass == Pass::forward, "pass = ", static_cast<int>(pass), ": a GEMM has no other pass than forward");
  check_gemm_dtypes(g, &check);
  check_size("batch", g.batch, kMaxHeads, &check);
  check_size("m", g.m, kMaxExtent, &check);
  check_size("n", g.n, kMaxExtent, &check);
  check_size("k", g.k, kMaxExtent, &check);
  const bool countable = g.m <= 0 || g.n <= 0 || g.batch <= kMaxElements / g.m / g.n;
  check.require(countable, "batch = ", g.batch, " with m = ", g.m, " and n = ", g.n,
                ": the elements of d are over the limit of ", kMaxElements);
  check.require(std::isfinite(g.alpha), "alpha = ", g.alpha, ": it must be finite");
  check.require(std::isfinite(g.beta), "beta = ", g.beta, ": it must be finite");
  check_8bit(g, &check);
  check.require(g.activation <= Activation::swiglu, "activation = ", static_cast<int>(g.activation),
                " is no Activation");
  check.supported(g.activation != Activation::swiglu || g.beta == 0, "beta = ", g.beta,
                  " with swiglu: c would have 2 n columns, which is not built; nearest: beta = 0");
  return check.take();
}

Status validate_operands(const Gemm& g, const GemmOperands& x, const OperandList& list) {
  Check check;
  check_operands(list, &check);
  check_product("a", x.a, "k", g.k, &check);
  check_product("d", x.d, "n", g.n, &check);
  check_overlaps(list, &check);
  return check.take();
}

}  // namespace falchion
