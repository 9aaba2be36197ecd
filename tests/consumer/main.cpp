// tests/consumer/main.cpp: a user's program around the C++ examples of README.md and docs/calls.md (readme.cpp, cut
// out of them).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <falchion/falchion.hpp>
#include <vector>

falchion::Status attend(void* q, void* k, void* v, void* o);
falchion::Status forward_and_backward(void* q, void* k, void* v, void* o, float* lse,
                                      void (*loss)(const void* o, void* grad_o), void* grad_o, void* grad_q,
                                      void* grad_k, void* grad_v);
falchion::Status decode(falchion::Operands x, std::int32_t* used, int tokens,
                        void (*model)(const falchion::Operands& x, int token));
falchion::Status project(void* o, void* weight, void* bias, void* x, void* y);

namespace {

constexpr std::size_t kRows = 1024, kRow = 8 * 128, kCount = kRows * kRow;
constexpr std::uint16_t kHalf = 0x3F00, kQuarter = 0x3E80, kOneAndAHalf = 0x3FC0, kPoison = 0xFFFF;  // bf16
using Elements = std::vector<std::uint16_t>;

double value(std::uint16_t bf16) {
  const std::uint32_t bits = static_cast<std::uint32_t>(bf16) << 16;
  float out = 0;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

int refused(const falchion::Status& status) {
  std::printf("refused: %s\n", status.why.c_str());
  return 1;
}

int check_forward() {
  Elements q(kCount, kHalf), k(kCount, kQuarter), v(kCount, kOneAndAHalf), o(kCount, kPoison);
  if (const falchion::Status status = attend(q.data(), k.data(), v.data(), o.data()); !status) return refused(status);
  for (const std::uint16_t x : o) {  // Each element is a weighted mean of 1.5s.
    if (x == kOneAndAHalf) continue;
    std::printf("expected 1.5, got bits %04x\n", x);
    return 1;
  }
  return 0;
}

/// A build may lack the kernels of a type for this machine's CPU, as the one of add_subdirectory has none for f32. Then
/// the definition computes it.
int check_f32() {
  std::vector<float> q(5 * 8, 0.5F), o(q.size());
  const auto view = [](std::vector<float>& x) {
    return falchion::Tensor::dense(x.data(), falchion::DType::f32, {1, 5, 1, 8});
  };
  const falchion::Status status = falchion::attention({.q = view(q), .k = view(q), .v = view(q), .o = view(o)});
  if (!status) return refused(status);
  for (const float x : o) {
    if (std::abs(x - 0.5F) < 1e-6F) continue;
    std::printf("expected 0.5, got %g\n", static_cast<double>(x));
    return 1;
  }
  return 0;
}

/// The loss is the sum of all elements of o, half of each.
void half_of_the_sum(const void*, void* grad_o) {
  Elements halves(kCount, kHalf);
  std::memcpy(grad_o, halves.data(), kCount * sizeof(std::uint16_t));
}

/// All keys are alike, so query i gives each of the i + 1 keys that it sees the weight 1 / (i + 1). The loss does not
/// change with q and k then, and with v_j it changes by half the sum of the weights that key j gets.
int check_backward() {
  Elements q(kCount, kHalf), k(kCount, kQuarter), v(kCount, kOneAndAHalf), o(kCount, kPoison);
  Elements grad_o(o), grad_q(o), grad_k(o), grad_v(o);
  std::vector<float> lse(8 * kRows);
  const falchion::Status status =
      forward_and_backward(q.data(), k.data(), v.data(), o.data(), lse.data(), half_of_the_sum, grad_o.data(),
                           grad_q.data(), grad_k.data(), grad_v.data());
  if (!status) return refused(status);
  double expected = 0;
  for (std::size_t row = kRows; row-- > 0;) {
    expected += 0.5 / static_cast<double>(row + 1);
    for (std::size_t i = row * kRow; i < (row + 1) * kRow; ++i) {
      const double x = value(grad_q[i]), y = value(grad_k[i]), z = value(grad_v[i]);
      if (std::abs(x) < 1e-3 && std::abs(y) < 1e-3 && std::abs(z - expected) < 0.01 * expected) continue;
      std::printf("row %zu: expected gradients of 0, 0, %g, got %g, %g, %g\n", row, expected, x, y, z);
      return 1;
    }
  }
  return 0;
}

/// Each sum is 1024 * 0.5 / 32 = 16, which the bias makes 8; the GELU of 8 is 8, and the residual makes it 9.5.
int check_gemm() {
  constexpr std::uint16_t kOneOf32 = 0x3D00, kMinus8 = 0xC100, kNineAndAHalf = 0x4118;
  Elements o(16 * kRow, kHalf), weight(512 * kRow, kOneOf32), bias(512, kMinus8), x(16 * 512, kOneAndAHalf), y(x);
  const falchion::Status status = project(o.data(), weight.data(), bias.data(), x.data(), y.data());
  if (!status) return refused(status);
  for (const std::uint16_t got : y) {
    if (got == kNineAndAHalf) continue;
    std::printf("expected 9.5, got %g\n", value(got));
    return 1;
  }
  return 0;
}

/// A model whose keys are all alike, and whose values are the number of the token.
void count_tokens(const falchion::Operands& x, int token) {
  std::fill_n(static_cast<float*>(x.k_new.data), 2 * 64, 0.5F);
  std::fill_n(static_cast<float*>(x.v_new.data), 2 * 64, static_cast<float>(token));
  ++*const_cast<std::int32_t*>(x.used_k);
}

/// After n tokens each element of O is the mean of 0 ... n - 1. The pages lie in no order, and their free slots hold
/// NaN.
int check_decode() {
  using falchion::DType, falchion::Tensor;
  std::vector<float> q(8 * 64, 0.25F), o(q.size()), k(3 * 16 * 2 * 64, std::nanf("")), v(k);
  std::int32_t pages[] = {2, 0, -1}, used = 0;
  falchion::Operands x{.q = Tensor::dense(q.data(), DType::f32, {1, 1, 8, 64})};
  x.k = Tensor::dense(k.data(), DType::f32, {3, 16, 2, 64});
  x.v = Tensor::dense(v.data(), DType::f32, {3, 16, 2, 64});
  x.o = Tensor::dense(o.data(), DType::f32, {1, 1, 8, 64});
  std::vector<float> k_new(2 * 64), v_new(k_new);
  x.k_new = Tensor::dense(k_new.data(), DType::f32, {1, 1, 2, 64});
  x.v_new = Tensor::dense(v_new.data(), DType::f32, {1, 1, 2, 64});
  x.page_table = Tensor::dense(pages, DType::i32, {1, 3, 1, 1});
  if (const falchion::Status status = decode(x, &used, 20, count_tokens); !status) return refused(status);
  for (const float got : o) {
    if (used == 20 && std::abs(got - 9.5F) < 1e-4F) continue;
    std::printf("expected 9.5 after 20 tokens, got %g after %d\n", static_cast<double>(got), used);
    return 1;
  }
  return 0;
}

}  // namespace

int main() {
  if (check_decode() != 0 || check_forward() != 0 || check_f32() != 0 || check_backward() != 0 || check_gemm() != 0)
    return 1;
  std::printf("falchion %s: ok\n", falchion::version());
}
