// examples/minimal/plan.cpp: a plan and its workspace are made once, and each step of a decoder runs the plan. A run
// allocates nothing.
#include <falchion/falchion.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

constexpr std::int64_t kCache = 64, kHeads = 8, kHeadsOfKeys = 2, kDim = 32;

struct alignas(64) Line {  // what a workspace is aligned to
  unsigned char bytes[64];
};

int failed(const falchion::Status& status) {
  std::fprintf(stderr, "refused: %s\n", status.why.c_str());
  return 1;
}

falchion::Tensor view(std::vector<float>* x, std::int64_t s, std::int64_t h) {
  return falchion::Tensor::dense(x->data(), falchion::DType::f32, {1, s, h, kDim});
}

}  // namespace

int main() {
  // The problem: one query for each of 8 heads against a cache of up to 64 keys, of which used_k count.
  falchion::Attention problem;
  problem.dtype = falchion::DType::f32;
  problem.b = 1;
  problem.s_q = 1;
  problem.s_k = kCache;
  problem.h_q = kHeads;
  problem.h_k = kHeadsOfKeys;
  problem.d_qk = problem.d_v = kDim;
  problem.used_k = true;

  falchion::Plan plan;
  if (const auto status = falchion::Plan::make(problem, falchion::Pass::forward, falchion::Backend::cpu, &plan);
      !status)
    return failed(status);
  std::printf("%s\n", plan.describe().c_str());
  std::vector<Line> workspace(plan.workspace_bytes() / sizeof(Line) + 1);

  std::vector<float> q(kHeads * kDim, 0.25F), o(q.size());
  std::vector<float> k(kCache * kHeadsOfKeys * kDim), v(k.size());
  std::int32_t used = 0;
  falchion::Operands operands;
  operands.q = view(&q, 1, kHeads);
  operands.k = view(&k, kCache, kHeadsOfKeys);
  operands.v = view(&v, kCache, kHeadsOfKeys);
  operands.o = view(&o, 1, kHeads);
  operands.used_k = &used;

  for (int step = 0; step < 5; ++step) {
    // The model would write the new token's key and value here. All keys are alike, and each value is its step.
    const std::size_t row = static_cast<std::size_t>(used) * kHeadsOfKeys * kDim;
    for (std::size_t i = row; i < row + kHeadsOfKeys * kDim; ++i) {
      k[i] = 0.5F;
      v[i] = static_cast<float>(step);
    }
    ++used;
    if (const auto status = plan.run(operands, workspace.data(), workspace.size() * sizeof(Line)); !status)
      return failed(status);
    std::printf("%d keys: %.2f\n", used, static_cast<double>(o[0]));
    if (std::abs(o[0] - 0.5F * static_cast<float>(step)) > 1e-5F) return 1;  // the mean of 0 ... step
  }
}
