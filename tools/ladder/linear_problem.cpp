// tools/ladder/linear_problem.cpp
#include "ladder/linear_problem.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/size.hpp"
#include "plan/text.hpp"
#include "ref/linear_attention.hpp"

namespace falchion::tools {
namespace {

constexpr std::int64_t kTokens = 64;  // whose errors are taken together: O grows along the sequence

std::vector<float> widened(const HostTensor& bf16) {
  const auto* numbers = bf16.memory.as<std::uint16_t>();
  std::vector<float> out(static_cast<std::size_t>(element_count(bf16.view.shape)));
  std::transform(numbers, numbers + out.size(), out.begin(),
                 [](std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); });
  return out;
}

std::size_t bytes_of(const Shape& shape, DType dtype) {
  return static_cast<std::size_t>(element_count(shape) * size_of(dtype));
}

/// LINEAR_ATTENTION's tolerances. f32: a sum of s terms, each rounded, has an error of about the root of s.
double limit_of(DType dtype, std::int64_t s) {
  return dtype == DType::f32 ? std::max(5e-6, 5e-8 * std::sqrt(static_cast<double>(s))) : 5e-3;
}

}  // namespace

LinearLadderProblem::LinearLadderProblem(Side side, const ladder::linear::Problem& problem, std::uint64_t seed)
    : side_(side),
      problem_(problem),
      f32_(side, bytes_of(qk_shape(), DType::f32), bytes_of(v_shape(), DType::f32)),
      heads_(std::min<std::int64_t>(4, std::int64_t{problem.b} * problem.h)) {
  const HostTensor q = make_random(DType::bf16, qk_shape(), seed), k = make_random(DType::bf16, qk_shape(), seed + 1),
                   v = make_random(DType::bf16, v_shape(), seed + 2);
  const std::vector<float> wide_q = widened(q), wide_k = widened(k), wide_v = widened(v);
  f32_.q.put(wide_q.data());
  f32_.k.put(wide_k.data());
  f32_.v.put(wide_v.data());
  if (side == Side::gpu) {
    bf16_ = std::make_unique<Memory>(side, bytes_of(qk_shape(), DType::bf16), bytes_of(v_shape(), DType::bf16));
    bf16_->q.put(q.memory.data());
    bf16_->k.put(k.memory.data());
    bf16_->v.put(v.memory.data());
  }
  make_exact(wide_q, wide_k, wide_v);
}

int LinearLadderProblem::head(std::int64_t n) const {
  const std::int64_t all = std::int64_t{problem_.b} * problem_.h;
  return static_cast<int>(heads_ > 1 ? n * (all - 1) / (heads_ - 1) : 0);
}

void LinearLadderProblem::make_exact(const std::vector<float>& q, const std::vector<float>& k,
                                     const std::vector<float>& v) {
  exact_ = make_tensor(DType::f32, {heads_, problem_.s, 1, problem_.d_v});
  LinearAttention a = attention();
  a.dtype = DType::f32;
  a.b = 1;
  a.h_qk = a.h_v = 1;
  const Buffer workspace(ref::linear_attention_workspace(a, Pass::forward));
  const auto view = [&](const float* data, std::int64_t d, int bh) {  // one head, where it lies
    const std::int64_t first = (std::int64_t{bh / problem_.h} * problem_.s * problem_.h + bh % problem_.h) * d;
    Tensor t = Tensor::dense(const_cast<float*>(data + first), DType::f32, {1, problem_.s, 1, d});
    t.stride[1] = problem_.h * d;
    return t;
  };
  for (std::int64_t n = 0; n < heads_; ++n) {
    LinearOperands x;
    x.q = view(q.data(), problem_.d_qk, head(n));
    x.k = view(k.data(), problem_.d_qk, head(n));
    x.v = view(v.data(), problem_.d_v, head(n));
    x.o = Tensor::dense(exact_.memory.as<float>() + n * problem_.s * problem_.d_v, DType::f32,
                        {1, problem_.s, 1, problem_.d_v});
    ref::linear_attention_forward(a, x, workspace.data());
  }
}

ladder::linear::Tensors LinearLadderProblem::tensors(DType dtype, void* workspace) const {
  const Memory& m = memory(dtype);
  return {m.q.data(), m.k.data(), m.v.data(), m.o.data(), workspace};
}

LinearAttention LinearLadderProblem::attention() const {
  LinearAttention a;
  a.dtype = library_dtype();
  a.b = problem_.b;
  a.s = problem_.s;
  a.h_qk = a.h_v = problem_.h;
  a.d_qk = problem_.d_qk;
  a.d_v = problem_.d_v;
  a.scale = 1;
  a.reverse = problem_.reverse;
  return a;
}

LinearOperands LinearLadderProblem::operands() const {
  const DType dtype = library_dtype();
  const Memory& m = memory(dtype);
  LinearOperands x;
  x.q = Tensor::dense(m.q.data(), dtype, qk_shape());
  x.k = Tensor::dense(m.k.data(), dtype, qk_shape());
  x.v = Tensor::dense(m.v.data(), dtype, v_shape());
  x.o = Tensor::dense(m.o.data(), dtype, v_shape());
  return x;
}

double LinearLadderProblem::bytes(DType dtype) const {
  return 2.0 * static_cast<double>(bytes_of(qk_shape(), dtype) + bytes_of(v_shape(), dtype));
}

LinearLadderProblem::Check LinearLadderProblem::check(DType dtype) const {
  const HostTensor o = make_tensor(dtype, v_shape());
  memory(dtype).o.get(o.memory.data());
  Check out{.limit = limit_of(dtype, problem_.s)};
  std::int64_t bad = 0;  // inputs are finite, so every element of O is; poison is not
  const Tensor flat = Tensor::dense(o.memory.data(), dtype, {1, 1, 1, element_count(v_shape())});
  for (std::int64_t i = 0; i < flat.shape[3]; ++i) bad += !std::isfinite(load_element(flat, 0, 0, 0, i));
  if (bad > 0) out.wrong = fmt::format("{} elements of O were not written, or are not finite", bad);
  for (std::int64_t n = 0; n < heads_; ++n) {
    for (std::int64_t j0 = 0; j0 < problem_.s; j0 += kTokens) {
      double error = 0, sum = 0;
      for (std::int64_t j = j0; j < std::min<std::int64_t>(j0 + kTokens, problem_.s); ++j) {
        for (std::int64_t m = 0; m < problem_.d_v; ++m) {
          const double wanted = load_element(exact_.view, n, j, 0, m);
          const double off = load_element(o.view, head(n) / problem_.h, j, head(n) % problem_.h, m) - wanted;
          error += off * off;
          sum += wanted * wanted;
        }
      }
      const double ratio = std::sqrt(error / sum);
      if (!(ratio <= out.limit) && out.wrong.empty())
        out.wrong = fmt::format("tokens {} to {} of head {} are off by {:.1e} of their RMS, the limit is {:.1e}", j0,
                                std::min<std::int64_t>(j0 + kTokens, problem_.s) - 1, head(n), ratio, out.limit);
      out.error = std::max(out.error, ratio);
    }
  }
  return out;
}

std::string LinearLadderProblem::what_is_checked() const {
  return fmt::format(
      "Error: the worst RMS of {} tokens, over that of the definition in double, in {} of the {} heads; all other "
      "elements only for having been written",
      kTokens, heads_, problem_.b * problem_.h);
}

}  // namespace falchion::tools
