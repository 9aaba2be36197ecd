// tests/door_best_test.cpp: where `best` of the one-call forms runs, in a process with a fake CUDA driver
// (tests/fake_cuda): all operands are checked, not the first alone (docs/contract.md, "`best` in the one-call form").
#include <cstddef>
#include <cstdint>

#include "api/operand_list.hpp"
#include "fake_cuda/load.hpp"
#include "plan/text.hpp"
#include "problem/device_copy.hpp"
#include "support/contract.hpp"
#include "support/gemm.hpp"
#include "support/gradients.hpp"
#include "support/linear.hpp"
#include "support/norm.hpp"

namespace falchion::testing {
namespace {

class DoorBest : public ::testing::Test {
 protected:
  void SetUp() override { cuda.forget(); }
  void TearDown() override { cuda.forget(); }
  const FakeDriver& cuda = FakeDriver::loaded();
};

/// Takes the memory of every operand away but one's, which lies on a GPU, and expects that the call says so.
template <class Problem, class AnyOperands, class Call>
void expect_each_to_decide(const Problem& problem, const OperandList& list, const AnyOperands& x, const Call& call) {
  const DeviceMemory memory;
  const auto in = [&x](AnyOperands* copy, const void* field) {
    return reinterpret_cast<std::byte*>(copy) +
           (static_cast<const std::byte*>(field) - reinterpret_cast<const std::byte*>(&x));
  };
  AnyOperands none = x, all = x;
  for (Tensor* tensor : cuda::tensors_of(&none)) tensor->data = nullptr;
  cuda::for_each_array(problem, &none, [](auto* pointer, std::size_t) { *pointer = nullptr; });
  const auto expect = [&](const char* name, const AnyOperands& operands) {
    const Status status = call(problem, operands);
    EXPECT_EQ(status.code, Code::unsupported) << name;
    EXPECT_EQ(status.why.rfind(text(name, " lies on a GPU, and no GPU path takes the problem"), 0), 0u)
        << name << ": " << status.why;
  };
  for (const Operand& operand : list.tensors()) {
    if (!operand.wanted) continue;
    AnyOperands one = none;
    reinterpret_cast<Tensor*>(in(&one, operand.x))->data = memory.data();
    expect(operand.name, one);
  }
  cuda::for_each_array(problem, &all, [&](auto* pointer, std::size_t) {
    AnyOperands one = none;
    const auto offset = reinterpret_cast<std::byte*>(pointer) - reinterpret_cast<std::byte*>(&all);
    *reinterpret_cast<const void**>(reinterpret_cast<std::byte*>(&one) + offset) = memory.data();
    for (const Array& array : list.arrays()) {
      if (array.wanted && array.data == static_cast<const void*>(*pointer)) expect(array.name, one);
    }
  });
}

/// Whichever operand is the first that has memory, lengths among them: `best` goes to the device on which it lies.
TEST_F(DoorBest, GoesWhereAnyOperandIs) {
  const auto attend = [](const Attention& a, const Operands& x) { return attention(x, a); };
  const Gradients x(Case{"x", 2, 5, 7, 4, 2, 16, 16}
                        .alibi()
                        .mask()
                        .bias(Case::Bias::f32)
                        .dropout(0.5F)
                        .used_q({4, 5})
                        .used_k({7, 3})
                        .first_k({1, 0}),
                    DType::f32, {.grad_lse = true, .grad_bias = {2, 4, 5, 7}, .grad_alibi = {1, 1, 4, 1}});
  const std::uint64_t numbers[2] = {};
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    Operands operands = pass == Pass::forward ? x.x.operands() : x.operands();
    operands.rng.at = numbers;
    expect_each_to_decide(x.x.problem, operands_of(x.x.problem, pass, operands), operands, attend);
    const LinearInstance l =
        make_linear_instance(LinearCase{"x", 2, 9, 1, 2, 16, 16}.normalise().states().decay(Decay::token), DType::f32);
    const LinearOperands linear = l.operands(pass);
    expect_each_to_decide(l.problem, operands_of(l.problem, pass, linear), linear,
                          [](const LinearAttention& a, const LinearOperands& y) { return linear_attention(y, a); });
  }
  const GemmInstance g = make_gemm_instance(GemmCase{"x", 2, 4, 40, 70}.beta(1).biases().residual(), DType::bf16);
  const GemmOperands product = g.operands();
  expect_each_to_decide(g.problem, operands_of(g.problem, Pass::forward, product), product,
                        [](const Gemm& a, const GemmOperands& y) { return gemm(y, a); });
  Norm terms{.weight = true, .bias = true, .residual = true, .residual_out = true};
  terms.mean = terms.rstd = true;
  const NormInstance n = make_norm_instance({"x", 2, 3, 2, 40, terms}, DType::bf16);
  const NormOperands rows = n.operands();
  expect_each_to_decide(n.problem, operands_of(n.problem, Pass::forward, rows), rows,
                        [](const Norm& a, const NormOperands& y) { return norm(y, a); });
}

/// The first operand says where all lie. The run then asks for the others, and neither for that one again nor for the
/// workspace, which is the library's own.
TEST_F(DoorBest, AsksForEachPointerOnce) {
  const auto expect_once = [this](auto operands) {
    for (const Tensor* tensor : cuda::tensors_of(&operands)) {
      if (tensor->data != nullptr) { EXPECT_EQ(cuda.times_asked(tensor->data), 1); }
    }
    cuda.forget();
  };
  Instance x = make_instance(Case{"x", 1, 40, 50, 2, 1, 32, 32}, DType::f32);
  for (int call = 0; call < 2; ++call) {
    x.poison_outputs();
    EXPECT_TRUE(attention(x.operands()));
    expect_once(x.operands());
  }
  const LinearInstance l = make_linear_instance(LinearCase{"x", 1, 40, 1, 2, 16, 24}, DType::f32);
  EXPECT_TRUE(linear_attention(l.operands(Pass::forward), l.problem));
  expect_once(l.operands(Pass::forward));
  const GemmInstance g = make_gemm_instance(GemmCase{"x", 1, 4, 40, 70}, DType::f32);
  EXPECT_TRUE(gemm(g.operands(), g.problem));
  expect_once(g.operands());
  const NormInstance n = make_norm_instance({"x", 1, 4, 2, 40, {}}, DType::f32);
  EXPECT_TRUE(norm(n.operands(), n.problem));
  expect_once(n.operands());
}

/// Packed sequences without a row have nothing but their lengths.
TEST_F(DoorBest, GoesWhereTheLengthsAre) {
  const DeviceMemory memory;
  Operands x;
  x.q.shape = x.k.shape = x.v.shape = x.o.shape = {1, 0, 2, 16};
  x.cu_seqlens_q = x.cu_seqlens_k = memory.data<const std::int32_t>();
  EXPECT_EQ(attention(x, {.b = 2}).why.rfind("cu_seqlens_q lies on a GPU, and no GPU path takes the problem", 0), 0u)
      << attention(x, {.b = 2}).why;
  LinearOperands l;
  l.q.shape = l.k.shape = l.v.shape = l.o.shape = {1, 0, 2, 16};
  l.cu_seqlens = memory.data<const std::int32_t>();
  EXPECT_EQ(linear_attention(l, {.b = 2}).why.rfind("cu_seqlens lies on a GPU, and no GPU path", 0), 0u);
}

/// Both sides can use pinned and managed memory, so it does not say where a problem lies; the next operand does.
TEST_F(DoorBest, AsksOnWhereBothSidesCanUseAnOperand) {
  Instance x = make_instance(Case{"x", 1, 40, 50, 2, 1, 32, 32}.used_k({50}), DType::f32);
  const DeviceMemory memory;
  for (const FakeKind kind : {FakeKind::pinned, FakeKind::managed}) {
    x.poison_outputs();
    cuda.add(x.q.memory(), x.q.memory_bytes(), kind, true);
    EXPECT_EQ(attention(x.operands()).why, "") << "k lies in the host's memory";
    EXPECT_TRUE(matches(x, Reference(x)));
    for (const HostTensor* tensor : x.tensors()) cuda.add(tensor->memory(), tensor->memory_bytes(), kind, true);
    Operands operands = x.operands();
    operands.used_k = memory.data<const std::int32_t>();
    EXPECT_EQ(attention(operands).why.rfind("used_k lies on a GPU, and no GPU path takes the problem", 0), 0u)
        << attention(operands).why;
    cuda.forget();
    cuda.add(memory.data(), 64, FakeKind::device, true);
  }
}

}  // namespace
}  // namespace falchion::testing
