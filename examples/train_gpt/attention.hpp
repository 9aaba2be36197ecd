// examples/train_gpt/attention.hpp: causal attention by Falchion, forward and backward. Both plans are made once.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <falchion/falchion.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "matrix.hpp"

namespace train_gpt {

inline void check(const falchion::Status& status) {
  if (!status) throw std::runtime_error(status.why);
}

/// The nearest bf16, and of two that are as near the even one. A NaN may become an infinity; here there are none.
inline std::uint16_t rounded(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
inline float widened(std::uint16_t x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16); }

/// A matrix as attention takes it: the matrix itself in f32, and a rounded copy of it in bf16.
struct Operand {
  falchion::DType dtype;
  Matrix* matrix;
  std::vector<std::uint16_t> copy{};

  Operand(falchion::DType dtype, Matrix* matrix) : dtype(dtype), matrix(matrix) {
    if (dtype == falchion::DType::bf16)
      for (const float x : matrix->data) copy.push_back(rounded(x));
  }
  char* data() { return reinterpret_cast<char*>(copy.empty() ? static_cast<void*>(matrix->data.data()) : copy.data()); }
  std::int64_t size() const { return copy.empty() ? sizeof(float) : sizeof(std::uint16_t); }
  void write_back() {
    for (std::size_t i = 0; i < copy.size(); ++i) matrix->data[i] = widened(copy[i]);
  }
};

class CausalAttention {
 public:
  CausalAttention(std::int64_t batch, std::int64_t context, std::int64_t heads, std::int64_t d, falchion::DType dtype,
                  falchion::Target target)
      : batch_(batch), context_(context), heads_(heads), d_(d), dtype_(dtype) {
    falchion::Attention problem;
    problem.dtype = dtype;
    problem.grads = falchion::Grads::f32;
    problem.b = batch;
    problem.s_q = problem.s_k = context;
    problem.h_q = problem.h_k = heads;
    problem.d_qk = problem.d_v = d;
    problem.band = falchion::Band::causal(falchion::Align::bottom_right);
    problem.lse = true;  // the backward pass needs it
    check(falchion::Plan::make(problem, falchion::Pass::forward, target, &forward_));
    check(falchion::Plan::make(problem, falchion::Pass::backward, target, &backward_));
    workspace_.resize(std::max(forward_.workspace_bytes(), backward_.workspace_bytes()) + 63);
  }

  /// qkv is (b s, 3 h d): the heads of q, then those of k, then those of v. They are read where they lie.
  void forward(Matrix& qkv, Matrix* o, std::vector<float>* lse) {
    *o = Matrix(qkv.rows, heads_ * d_);
    lse->assign(static_cast<std::size_t>(batch_ * heads_ * context_), 0);
    Operand of_qkv(dtype_, &qkv), of_o(dtype_, o);
    run(forward_, operands(&of_qkv, &of_o, lse));
    of_o.write_back();
  }

  /// Returns the gradient of qkv, which lies as qkv does: each of the three is written where it belongs.
  Matrix backward(Matrix& qkv, Matrix& o, std::vector<float>& lse, Matrix& grad_o) {
    Matrix grad_qkv(qkv.rows, qkv.columns);
    Operand of_qkv(dtype_, &qkv), of_o(dtype_, &o), of_grad_o(dtype_, &grad_o);
    Operand of_grad_qkv(falchion::DType::f32, &grad_qkv);
    falchion::Operands x = operands(&of_qkv, &of_o, &lse);
    x.grad_o = part(&of_grad_o, 0);
    x.grad_q = part(&of_grad_qkv, 0);
    x.grad_k = part(&of_grad_qkv, 1);
    x.grad_v = part(&of_grad_qkv, 2);
    run(backward_, x);
    return grad_qkv;
  }

  std::string describe() const { return forward_.describe() + "\n" + backward_.describe(); }

 private:
  /// The view (b, s, h, d) of the n-th h d columns.
  falchion::Tensor part(Operand* x, std::int64_t n) const {
    const std::int64_t columns = x->matrix->columns;
    return {x->data() + n * heads_ * d_ * x->size(),
            x->dtype,
            {batch_, context_, heads_, d_},
            {context_ * columns, columns, d_, 1}};
  }
  falchion::Operands operands(Operand* qkv, Operand* o, std::vector<float>* lse) const {
    falchion::Operands x;
    x.q = part(qkv, 0);
    x.k = part(qkv, 1);
    x.v = part(qkv, 2);
    x.o = part(o, 0);
    x.lse = falchion::Tensor::dense(lse->data(), falchion::DType::f32, {batch_, heads_, context_, 1});
    return x;
  }
  void run(const falchion::Plan& plan, const falchion::Operands& x) {
    const auto address = reinterpret_cast<std::uintptr_t>(workspace_.data());
    check(plan.run(x, workspace_.data() + (64 - address % 64) % 64, plan.workspace_bytes()));
  }

  std::int64_t batch_, context_, heads_, d_;
  falchion::DType dtype_;
  falchion::Plan forward_, backward_;
  std::vector<unsigned char> workspace_;
};

}  // namespace train_gpt
