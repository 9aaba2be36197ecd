// tests/empty_extents_test.cpp: tests b, s and h of 0, with null pointers for every operand that has no element, for
// every pass, path and feature of attention and linear attention (of a GEMM: gemm_memory_test.cpp). Outputs that still
// have elements must hold what the definition says.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/size.hpp"
#include "problem/device_copy.hpp"
#include "support/compare.hpp"
#include "support/linear.hpp"
#include "support/paths.hpp"

namespace falchion::testing {
namespace {

/// Which of the operands without an element lose their memory. They then have a null pointer and strides of 0.
enum class Drop { all, inputs, outputs };
constexpr Drop kDrops[] = {Drop::all, Drop::inputs, Drop::outputs};

/// The packed tensors of the tests have `rows_of_nobody` rows behind the last sequence. Without these rows such a
/// tensor has no element when all lengths are 0.
template <class AnyOperands>
void drop_empty(Drop drop, std::int64_t rows_of_nobody, AnyOperands* x) {
  const auto outputs = cuda::outputs_of(x);
  for (Tensor* tensor : cuda::tensors_of(x)) {
    if (rows_of_nobody > 0 && tensor->shape[0] == 1 && tensor->shape[1] == rows_of_nobody) tensor->shape[1] = 0;
    if (rows_of_nobody > 0 && tensor->shape[0] == 1 && tensor->shape[2] == rows_of_nobody) tensor->shape[2] = 0;
    const bool output = std::find(outputs.begin(), outputs.end(), tensor) != outputs.end();
    const bool wanted = drop == Drop::all || output == (drop == Drop::outputs);
    if (wanted && is_empty(*tensor)) {
      tensor->data = nullptr;
      tensor->stride = {};
    }
  }
}

template <class Problem, class AnyOperands>
Status run_plain(const Path& path, const Problem& problem, Pass pass, int segments, const AnyOperands& operands) {
  Plan plan;
  Target target = path.target();
  target.segments = segments;
  if (Status status = Plan::make(problem, pass, target, &plan); !status) return status;
  if (path.on_gpu()) return cuda::run_on_device(plan, problem, operands);
  const Workspace workspace(plan.workspace_bytes());
  return plan.run(operands, workspace.size() == 0 ? nullptr : workspace.data(), workspace.size());
}

// ---- attention ------------------------------------------------------------------------------------------------------

std::vector<Case> attention_cases() {
  std::vector<Case> all;
  const auto add = [&](std::int64_t b, std::int64_t s_q, std::int64_t s_k, std::int64_t h_q, std::int64_t h_k) {
    const auto of = [&](const char* name) { return Case{name, b, s_q, s_k, h_q, h_k, 16, 24}; };
    const auto lengths = [&](std::int64_t s) {
      return std::vector<std::int32_t>(static_cast<std::size_t>(b), static_cast<std::int32_t>(s));
    };
    all.push_back(of("plain"));
    all.push_back(of("no_lse").no_lse().causal());
    all.push_back(of("row_max").row_max().window(3, 2));
    all.push_back(of("probabilities").row_max().probabilities());
    all.push_back(of("bias_and_mask").bias(Case::Bias::f32).mask());
    all.push_back(of("scores").alibi().softcap(2).dropout(0.5f));
    all.push_back(of("used").used_q(lengths(s_q)).used_k(lengths(s_k)));
    if (b > 0) all.push_back(of("packed").packed(lengths(s_q), lengths(s_k)).causal().row_max());
  };
  for (const std::int64_t b : {0, 2}) {
    for (const std::int64_t s_q : {0, 2, 40}) {
      for (const std::int64_t s_k : {0, 5, 600}) {
        for (const std::int64_t h_q : {0, 4}) {
          if (b * s_q * s_k * h_q == 0) add(b, s_q, s_k, h_q, 2);
          if (h_q == 0) add(b, s_q, s_k, 0, 0);
        }
      }
    }
  }
  return all;
}

TEST(Contract, EmptyExtentsOfAttentionNeedNoMemory) {
  const std::vector<Case> cases = attention_cases();
  on_every_path([&](const Path& path, DType dtype) {
    for (const Case& row : cases) {
      SCOPED_TRACE(::testing::Message() << row.name << ": b " << row.b << ", s_q " << row.s_q << ", s_k " << row.s_k
                                        << ", h_q " << row.h_q << ", h_k " << row.h_k);
      Instance x = make_instance(row, dtype);
      const Reference exact(x);
      for (const Drop drop : kDrops) {
        x.poison_outputs();
        Operands operands = x.operands();
        drop_empty(drop, x.problem.packed && row.s_q * row.s_k == 0 ? 3 : 0, &operands);
        const Status status = run_plain(path, x.problem, Pass::forward, 0, operands);
        ASSERT_TRUE(status) << status.why;
        EXPECT_TRUE(matches(x, exact));
      }
    }
  });
}

/// Extents beside one of 0 take no memory, so they may be as large as the contract allows.
TEST(Contract, GradientsOfNothingTakeNoTime) {
  constexpr std::int64_t kMost = 2147483647;
  Attention many_heads{.b = 1, .s_q = 0, .s_k = 0, .h_q = 0, .h_k = kMost, .d_qk = 16, .d_v = 16};
  Attention many_sequences{.b = kMost / 2, .s_q = 0, .s_k = 0, .h_q = 2, .h_k = 2, .d_qk = 16, .d_v = 16};
  many_sequences.alibi = many_sequences.grad_alibi = true;
  for (const Attention& a : {many_heads, many_sequences}) {
    float slopes[2] = {1, 2}, grad_alibi[2] = {3, 4};
    const auto empty = [&](std::int64_t h) { return Tensor::dense(nullptr, DType::bf16, {a.b, 0, h, 16}); };
    Operands x;
    x.q = x.o = x.grad_o = x.grad_q = empty(a.h_q);
    x.k = x.v = x.grad_k = x.grad_v = empty(a.h_k);
    x.lse = Tensor::dense(nullptr, DType::f32, {a.b, a.h_q, 0, 1});
    if (a.alibi) x.alibi = Tensor::dense(slopes, DType::f32, {1, 1, 2, 1});
    if (a.alibi) x.grad_alibi = Tensor::dense(grad_alibi, DType::f32, {1, 1, 2, 1});
    for (const Backend backend : {Backend::ref, Backend::cpu}) {
      Target target;
      target.backend = backend;
      Plan plan;
      const Status made = Plan::make(a, Pass::backward, target, &plan);
      ASSERT_TRUE(made) << made.why;
      const Workspace workspace(plan.workspace_bytes());
      const Status status = plan.run(x, workspace.size() == 0 ? nullptr : workspace.data(), workspace.size());
      ASSERT_TRUE(status) << status.why;
      EXPECT_EQ(grad_alibi[0], a.alibi ? 0 : 3);
      EXPECT_EQ(grad_alibi[1], a.alibi ? 0 : 4);
    }
  }
}

// ---- linear attention -----------------------------------------------------------------------------------------------

std::vector<LinearCase> linear_attention_cases() {
  std::vector<LinearCase> all;
  for (const std::int64_t b : {0, 2}) {
    for (const std::int64_t s : {0, 3, 200}) {
      for (const std::int64_t h : {0, 4}) {
        if (b * s * h != 0) continue;
        const auto of = [&](const char* name) { return LinearCase{name, b, s, h / 2, h, 16, 24}; };
        all.push_back(of("plain"));
        all.push_back(of("normalise").elu().normalise());
        all.push_back(of("states").states());
        all.push_back(of("decay_token").decay(Decay::token));
        all.push_back(of("decay_head").decay(Decay::head).reverse());
        all.push_back(of("everything").elu().normalise().states().decay(Decay::token));
        all.push_back(of("everything_head").elu().normalise().states().decay(Decay::head));
        all.push_back(of("segments").segments(3).states().decay(Decay::token));
        if (b == 0 || s > 0) continue;
        all.push_back(of("packed").packed({0, 0}).decay(Decay::token));
        all.push_back(of("packed_everything").packed({0, 0}).elu().normalise().states().decay(Decay::head));
      }
    }
  }
  return all;
}

TEST(LinearContract, EmptyExtentsNeedNoMemory) {
  const std::vector<LinearCase> cases = linear_attention_cases();
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    on_every_path(
        [&](const Path& path, DType dtype) {
          for (const LinearCase& row : cases) {
            SCOPED_TRACE(::testing::Message() << row.name << ": b " << row.b << ", s " << row.s << ", h " << row.h_v
                                              << (pass == Pass::forward ? ", forward" : ", backward"));
            LinearInstance x = make_linear_instance(row, dtype);
            const LinearInstance exact = linear_reference(x, pass);
            for (const Drop drop : kDrops) {
              x.poison_outputs();
              LinearOperands operands = x.operands(pass);
              drop_empty(drop, x.problem.packed ? 3 : 0, &operands);
              const Status status = run_plain(path, x.problem, pass, row.segments_, operands);
              ASSERT_TRUE(status) << status.why;
              EXPECT_TRUE(matches(x, exact, pass));
            }
          }
        },
        pass == Pass::forward ? kLinearForward : kLinearBackward);
  }
}

}  // namespace
}  // namespace falchion::testing
