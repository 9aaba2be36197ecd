// tests/one_call_empty_test.cpp: the one-call forms of every operation where b, s, h, d or rows are 0. An empty tensor
// may have no memory, as a framework's has none, and is given all the same: its shape says so.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "api/operand_list.hpp"
#include "base/size.hpp"
#include "problem/device_copy.hpp"
#include "support/contract.hpp"
#include "support/gemm.hpp"
#include "support/gradients.hpp"
#include "support/linear.hpp"
#include "support/norm.hpp"
#include "support/to_c.hpp"

namespace falchion::testing {
namespace {

// ---- the one-call form of each operation, with what tensors cannot say ----------------------------------------------

Status call(const Attention& a, Pass, const Operands& x) {
  Attention options;
  options.b = a.packed ? a.b : 0;
  options.band = a.band;
  options.score = a.score;
  options.dropout = a.dropout;
  options.grads = a.grads;
  options.zero_unused = a.zero_unused;
  options.frozen = a.frozen;
  return attention(x, options, host_target());
}
Status call(const LinearAttention& a, Pass, const LinearOperands& x) {
  LinearAttention options;
  options.b = a.packed ? a.b : 0;
  options.scale = a.scale;
  options.feature_map = a.feature_map;
  options.normalise = a.normalise;
  options.eps = a.eps;
  options.reverse = a.reverse;
  return linear_attention(x, options, host_target());
}
Status call(const Gemm& g, Pass, const GemmOperands& x) {
  Gemm options;
  options.alpha = g.alpha;
  options.beta = g.beta;
  options.activation = g.activation;
  return gemm(x, options, host_target());
}
Status call(const Norm& n, Pass, const NormOperands& x) {
  Norm options;
  options.kind = n.kind;
  options.eps = n.eps;
  options.zero_centered = n.zero_centered;
  return norm(x, options, host_target());
}

/// Are the sizes of the problem taken from this operand? Then no extent of it can be wrong.
bool says_sizes(const std::string& name) {
  for (const char* one : {"q", "k", "v", "a", "d", "x"}) {
    if (name == one) return true;
  }
  return false;
}

/// Takes the memory of every empty tensor away and calls. Afterwards the shape of each empty operand is spoilt in turn,
/// which the call must notice although there is no memory.
template <class Problem, class AnyOperands>
void expect_shapes_to_count(const Problem& problem, Pass pass, AnyOperands x) {
  for (Tensor* tensor : cuda::tensors_of(&x)) {
    if (is_empty(*tensor)) tensor->data = nullptr;
  }
  const Status status = call(problem, pass, x);
  ASSERT_TRUE(status) << status.why;
  const OperandList list = operands_of(problem, pass, x);
  for (const Operand& operand : list.tensors()) {
    if (!operand.wanted || !is_empty(*operand.x) || says_sizes(operand.name)) continue;
    AnyOperands spoilt = x;
    const auto offset = reinterpret_cast<const std::byte*>(operand.x) - reinterpret_cast<const std::byte*>(&x);
    auto* tensor = reinterpret_cast<Tensor*>(reinterpret_cast<std::byte*>(&spoilt) + offset);
    tensor->shape[0] += 4;
    const Status refusal = call(problem, pass, spoilt);
    EXPECT_EQ(refusal.code, Code::invalid) << operand.name;
    EXPECT_EQ(refusal.why.rfind(text(operand.name, ".shape["), 0), 0u) << operand.name << ": " << refusal.why;
  }
}

// ---- the cases ------------------------------------------------------------------------------------------------------

struct Extents {
  std::int64_t b, s_q, s_k, h_q, h_k;
};
constexpr Extents kExtents[] = {{0, 5, 7, 4, 2}, {2, 0, 7, 4, 2}, {2, 5, 0, 4, 2}, {2, 0, 0, 4, 2},
                                {2, 5, 7, 0, 2}, {2, 5, 7, 0, 0}, {0, 0, 0, 0, 0}};

std::vector<Case> attention_cases(const Extents& e) {
  const Case plain{"plain", e.b, e.s_q, e.s_k, e.h_q, e.h_k, 16, 24};
  const auto lengths = [&](std::int64_t s) {
    return std::vector<std::int32_t>(static_cast<std::size_t>(e.b), static_cast<std::int32_t>(s));
  };
  return {plain, Case(plain).row_max().probabilities().causal(), Case(plain).bias(Case::Bias::f32).mask(),
          Case(plain).bias(Case::Bias::same).alibi().dropout(0.5F),
          Case(plain).alibi_by_batch().used_q(lengths(e.s_q)).used_k(lengths(e.s_k)).first_k(lengths(0))};
}

TEST(OneCallEmpty, Attention) {
  for (const Extents& e : kExtents) {
    for (const Case& row : attention_cases(e)) {
      SCOPED_TRACE(text("b ", e.b, ", s_q ", e.s_q, ", s_k ", e.s_k, ", h_q ", e.h_q));
      Instance x = make_instance(row, DType::f32);
      x.poison_outputs();
      expect_shapes_to_count(x.problem, Pass::forward, x.operands());
      EXPECT_TRUE(matches(x, Reference(x)));
    }
  }
}

TEST(OneCallEmpty, BackwardOfAttention) {
  for (const Extents& e : kExtents) {
    for (const Case& row : attention_cases(e)) {
      SCOPED_TRACE(text("b ", e.b, ", s_q ", e.s_q, ", s_k ", e.s_k, ", h_q ", e.h_q));
      if (row.options.probabilities) continue;
      Wanted wanted;
      wanted.grad_lse = true;
      if (row.bias_ != Case::Bias::none) wanted.grad_bias = {1, e.h_q, e.s_q, e.s_k};
      if (row.options.alibi) wanted.grad_alibi = {1, 1, e.h_q, 1};
      Gradients x(row, DType::f32, wanted), planned(row, DType::f32, wanted);
      planned.run(host_target());
      expect_shapes_to_count(x.x.problem, Pass::backward, x.operands());
      for_each_gradient(x, planned, expect_same);
    }
  }
}

TEST(OneCallEmpty, LinearAttention) {
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    for (const auto& [b, s, h] : {std::array<std::int64_t, 3>{0, 5, 2}, {2, 0, 2}, {2, 5, 0}, {0, 0, 0}}) {
      const LinearCase plain{"plain", b, s, h / 2, h, 16, 24};
      std::vector<LinearCase> all{plain, LinearCase(plain).states().decay(Decay::token),
                                  LinearCase(plain).elu().normalise().states().decay(Decay::head).reverse()};
      if (b > 0 && s == 0) all.push_back(LinearCase(plain).packed({0, 0}).spare(0).states().decay(Decay::token));
      for (const LinearCase& row : all) {
        SCOPED_TRACE(text(pass == Pass::forward ? "forward" : "backward", ", b ", b, ", s ", s, ", h ", h));
        LinearInstance x = make_linear_instance(row, DType::f32);
        const LinearInstance exact = linear_reference(x, pass);
        x.poison_outputs();
        expect_shapes_to_count(x.problem, pass, x.operands(pass));
        EXPECT_TRUE(matches(x, exact, pass));
      }
    }
  }
}

TEST(OneCallEmpty, Gemm) {
  for (const auto& [batch, m, n, k] :
       {Shape{0, 4, 40, 70}, Shape{3, 0, 40, 70}, Shape{3, 4, 0, 70}, Shape{3, 4, 40, 0}}) {
    SCOPED_TRACE(text("batch ", batch, ", m ", m, ", n ", n, ", k ", k));
    const GemmInstance x = make_gemm_instance(GemmCase{"x", batch, m, n, k}.beta(1).biases().residual(), DType::bf16);
    expect_shapes_to_count(x.problem, Pass::forward, x.operands());
    EXPECT_TRUE(matches(x, x));
    for (const Scaling scaling : {Scaling::tensor, Scaling::row_col}) {
      const GemmInstance scaled = make_gemm_instance(GemmCase{"x", batch, m, n, k}.scaling(scaling), DType::e4m3);
      expect_shapes_to_count(scaled.problem, Pass::forward, scaled.operands());
      EXPECT_TRUE(matches(scaled, scaled));
    }
  }
}

TEST(OneCallEmpty, Norm) {
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    for (const auto& [b, s, h, d] :
         {Shape{0, 3, 2, 40}, Shape{2, 0, 3, 40}, Shape{2, 3, 0, 40}, Shape{2, 3, 2, 0}, Shape{0, 0, 0, 0}}) {
      SCOPED_TRACE(text("b ", b, ", s ", s, ", h ", h, ", d ", d));
      Norm terms{.kind = kind, .zero_centered = true, .weight = true, .bias = true, .residual = true};
      terms.residual_out = terms.rstd = true;
      terms.mean = kind == NormKind::layer;
      const NormInstance x = make_norm_instance({"x", b, s, h, d, terms, Layout::dense, {b, s, h}}, DType::bf16);
      expect_shapes_to_count(x.problem, Pass::forward, x.operands());
      EXPECT_TRUE(matches(x, x));
    }
  }
}

/// A tensor of zeroes is what a framework hands over for a tensor of the shape (0, 0, 0, 0). Then the option says that
/// it is there. In C the two are told apart in the same way.
TEST(OneCallEmpty, AnOptionStandsForATensorOfZeroes) {
  NormOperands x;
  x.x.dtype = x.residual.dtype = x.y.dtype = x.residual_out.dtype = DType::bf16;
  x.residual_out.stride = {0, 0, 0, 1};
  EXPECT_EQ(norm(x, {}, host_target()).why, "residual_out without residual: it is the sum of x and residual");
  EXPECT_EQ(norm(x, {.residual = true}, host_target()).why, "");
  EXPECT_EQ(norm(x, {.zero_centered = true, .weight = true, .residual = true}, host_target()).why, "");
  Operands grad;
  grad.q.shape = grad.k.shape = grad.v.shape = grad.o.shape = grad.grad_o.shape = {0, 0, 0, 8};
  grad.lse.shape = {0, 0, 0, 1};
  grad.grad_bias.stride = {0, 0, 0, 1};
  EXPECT_EQ(attention(grad, {.dtype = DType::f32}, host_target()).why,
            "grad_bias without bias: there is no bias to have a gradient");
  EXPECT_EQ(attention(grad, {.bias = true}, host_target()).why, "");
  const fal_operands in_c = to_c(grad);
  fal_attention options = FAL_ATTENTION_INIT;
  EXPECT_EQ(fal_attention_run(&in_c, &options, nullptr, nullptr), FAL_INVALID);
  options.bias = 1;
  EXPECT_EQ(fal_attention_run(&in_c, &options, nullptr, nullptr), FAL_OK) << fal_why();
}

/// What an option asks for and no operand brings is missed. It was left out in silence.
TEST(OneCallEmpty, AnOptionWithoutItsOperandIsRefused) {
  const Instance x = make_instance(Case{"x", 1, 5, 7, 4, 2, 16, 24}, DType::f32);
  const auto why = [&](const Attention& options) { return attention(x.operands(), options, host_target()).why; };
  EXPECT_EQ(why({.used_k = true}), "used_k is null, but the problem was planned with used_k");
  EXPECT_EQ(why({.mask = true}), "mask.dtype = f32, but the problem's is boolean");
  EXPECT_EQ(why({.bias = true}), "bias.shape[0] = 0, but the problem's is 1");
  EXPECT_EQ(why({.b = 1, .packed = true}), "cu_seqlens_q is null, but the problem was planned with packed");
  const LinearInstance l = make_linear_instance(LinearCase{"x", 2, 9, 1, 2, 16, 24}, DType::f32);
  EXPECT_EQ(linear_attention(l.operands(Pass::forward), {.decay = Decay::head}, host_target()).why,
            "decay.shape[0] = 0, but the problem's is 1");
}

/// A plan asks likewise: a tensor that it was made without is refused, memory or not.
TEST(OneCallEmpty, APlanRefusesWhatItWasMadeWithout) {
  const Instance x = make_instance(Case{"x", 2, 5, 0, 4, 2, 16, 24}, DType::f32);
  Plan plan;
  ASSERT_TRUE(Plan::make(x.problem, Pass::forward, Backend::ref, &plan));
  Operands operands = x.operands();
  operands.bias.shape = {2, 4, 5, 0};
  EXPECT_EQ(plan.run(operands, nullptr, 0).why,
            "bias is given, but the problem was planned without it: set Attention::bias");
}

}  // namespace
}  // namespace falchion::testing
