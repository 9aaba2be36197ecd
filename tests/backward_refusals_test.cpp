// tests/backward_refusals_test.cpp: tests what Plan::make and Plan::run refuse in the backward pass of attention.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "plan/operation.hpp"
#include "plan/plan_data.hpp"
#include "support/gradients.hpp"

namespace falchion::testing {
namespace {

Case small(const char* name) { return Case{name, 2, 4, 5, 4, 2, 8, 8}; }

Status make(const Attention& a) {
  Plan plan;
  return Plan::make(a, Pass::backward, Backend::ref, &plan);
}

TEST(BackwardRefusals, ProblemsThatMeanNothing) {
  const Attention good = make_instance(small("good"), DType::bf16).problem;
  ASSERT_TRUE(make(good));
  Attention a = good;
  a.frozen = 4;
  EXPECT_EQ(make(a).why, "frozen = 4: it must be 0 (nothing), 1 (no grad_q), 2 (no grad_k and grad_v) or 3");
  a = good;
  a.grads = static_cast<Grads>(3);
  EXPECT_EQ(make(a).why, "grads = 3 is no Grads");
  a = good;
  a.grads = Grads::accumulate;
  a.zero_unused = true;
  EXPECT_EQ(make(a).why,
            "zero_unused with grads = accumulate: gradients are added to what is there, so nothing is set to 0");
  a = good;
  a.grad_bias = true;
  EXPECT_EQ(make(a).why, "grad_bias without bias: there is no bias to have a gradient");
  a = good;
  a.grad_alibi = true;
  EXPECT_EQ(make(a).why, "grad_alibi without alibi: there are no slopes to have a gradient");
}

TEST(BackwardRefusals, OperandsThatDoNotFit) {
  const auto why = [](const Wanted& wanted, const std::function<void(Operands*)>& change) {
    const Gradients all(small("operands"), DType::bf16, wanted);
    Operands operands = all.operands();
    change(&operands);
    Plan plan;
    EXPECT_TRUE(Plan::make(all.x.problem, Pass::backward, Backend::ref, &plan));
    const Status status = plan.run(operands, nullptr, 0);
    EXPECT_EQ(status.code, Code::invalid);
    return status.why;
  };
  EXPECT_EQ(why({}, [](Operands* x) { x->lse = {}; }), "lse.shape[0] = 0, but the problem's is 2");
  EXPECT_EQ(why({}, [](Operands* x) { x->grad_o.data = nullptr; }), "grad_o.data is null");
  EXPECT_EQ(why({}, [](Operands* x) { x->grad_q.shape[1] = 3; }), "grad_q.shape[1] = 3, but the problem's is 4");
  EXPECT_EQ(why({.grads = Grads::f32}, [](Operands* x) { x->grad_k.dtype = DType::bf16; }),
            "grad_k.dtype = bf16, but the problem's is f32");
  EXPECT_EQ(why({}, [](Operands* x) { x->grad_lse = x->lse; }),
            "grad_lse is given, but the problem was planned without it: set Attention::grad_lse");
  EXPECT_EQ(why({.frozen = 1}, [](Operands* x) { x->grad_q = x->q; }),
            "grad_q is given, but the problem was planned without it: set Attention::frozen to 0 or 2");
  EXPECT_EQ(why({}, [](Operands* x) { x->grad_q.data = x->q.data; }), "grad_q overlaps q");
  EXPECT_EQ(why({}, [](Operands* x) { x->grad_v.data = x->grad_k.data; }), "grad_k overlaps grad_v");
  EXPECT_EQ(why({}, [](Operands* x) { x->grad_v.stride[1] = 0; }),
            "grad_v.stride[1] = 0: strides of an output must be above 0");
}

/// A build without variants for a GPU says so of each of them, and `best` takes the CPU or the definition.
TEST(BackwardRefusals, BackendsWithoutThePass) {
  const Attention a = make_instance(small("backends"), DType::bf16).problem;
  Plan plan;
  EXPECT_TRUE(Plan::make(a, Pass::backward, Backend::best, &plan));
  for (const Backend backend : {Backend::sm80, Backend::sm90}) {
    if (Path{backend, ""}.has(DType::bf16, kAttentionBackward)) continue;
    const Status status = Plan::make(a, Pass::backward, backend, &plan);
    EXPECT_EQ(status.code, Code::unsupported);
    EXPECT_EQ(status.why, text("no path for attention_backward bf16; ", name(backend), " bf16: this build has no such ",
                               "variant (FALCHION_CUDA is off, or FALCHION_VARIANTS left it out)"));
  }
}

/// The workspace of a GPU has a place for b * s_q packed rows, so the plan must know s_q.
TEST(BackwardRefusals, PackedLengthsWithoutAHintOnAGpu) {
  Attention a = make_instance(small("hint"), DType::bf16).problem;
  a.packed = true;
  a.s_q = 0;
  for (const Backend backend : {Backend::sm80, Backend::sm90}) {
    PlanData plan;
    const Status status = plan_problem(a, Pass::backward, Target(backend), &plan, true);
    EXPECT_EQ(status.code, Code::unsupported);
    EXPECT_NE(status.why.find("packed lengths without a hint"), std::string::npos) << status.why;
  }
}

}  // namespace
}  // namespace falchion::testing
