// examples/train_gpt/attention.hpp: causal attention by Falchion, forward and backward. Both plans are made once.
#pragma once

#include <algorithm>
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

class CausalAttention {
 public:
  CausalAttention(std::int64_t batch, std::int64_t context, std::int64_t heads, std::int64_t d, falchion::Target target)
      : batch_(batch), context_(context), heads_(heads), d_(d) {
    falchion::Attention problem;
    problem.dtype = falchion::DType::f32;
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
    run(forward_, operands(qkv, *o, *lse));
  }

  /// Returns the gradient of qkv, which lies as qkv does: each of the three is written where it belongs.
  Matrix backward(Matrix& qkv, Matrix& o, std::vector<float>& lse, Matrix& grad_o) {
    Matrix grad_qkv(qkv.rows, qkv.columns);
    falchion::Operands x = operands(qkv, o, lse);
    x.grad_o = part(grad_o, 0);
    x.grad_q = part(grad_qkv, 0);
    x.grad_k = part(grad_qkv, 1);
    x.grad_v = part(grad_qkv, 2);
    run(backward_, x);
    return grad_qkv;
  }

  std::string describe() const { return forward_.describe() + "\n" + backward_.describe(); }

 private:
  /// The view (b, s, h, d) of the n-th h d columns of m.
  falchion::Tensor part(Matrix& m, std::int64_t n) const {
    return {m.data.data() + n * heads_ * d_,
            falchion::DType::f32,
            {batch_, context_, heads_, d_},
            {context_ * m.columns, m.columns, d_, 1}};
  }
  falchion::Operands operands(Matrix& qkv, Matrix& o, std::vector<float>& lse) const {
    falchion::Operands x;
    x.q = part(qkv, 0);
    x.k = part(qkv, 1);
    x.v = part(qkv, 2);
    x.o = part(o, 0);
    x.lse = falchion::Tensor::dense(lse.data(), falchion::DType::f32, {batch_, heads_, context_, 1});
    return x;
  }
  void run(const falchion::Plan& plan, const falchion::Operands& x) {
    const auto address = reinterpret_cast<std::uintptr_t>(workspace_.data());
    check(plan.run(x, workspace_.data() + (64 - address % 64) % 64, plan.workspace_bytes()));
  }

  std::int64_t batch_, context_, heads_, d_;
  falchion::Plan forward_, backward_;
  std::vector<unsigned char> workspace_;
};

}  // namespace train_gpt
