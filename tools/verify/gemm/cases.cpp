// tools/verify/gemm/cases.cpp: see cases.hpp.
#include "verify/gemm/cases.hpp"
#include "api/data_of.hpp"

#include <limits>
#include <string_view>

#include "base/size.hpp"
#include "plan/plan_data.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

using enum Activation;

struct Size {
  std::int64_t batch, m, n, k;
};

GemmVerifyCase of(const char* name, const Size& size, GemmShape shape = {}) {
  return {name, {.batch = size.batch, .m = size.m, .n = size.n, .k = size.k}, shape};
}
template <class Change>
GemmVerifyCase of(const char* name, const Size& size, const Change& change, GemmShape shape = {}) {
  GemmVerifyCase out = of(name, size, shape);
  change(out.problem);
  return out;
}

struct Feature {
  const char* name;
  void (*apply)(Gemm*);
};
constexpr Feature kFeatures[] = {
    {"plain", [](Gemm*) {}},
    {"alpha", [](Gemm* g) { g->alpha = -0.3F; }},
    {"beta", [](Gemm* g) { g->beta = 0.5F; }},
    {"biases", [](Gemm* g) { g->bias_n = g->bias_m = true; }},
    {"relu", [](Gemm* g) { g->activation = relu; }},
    {"gelu_tanh", [](Gemm* g) { g->activation = gelu_tanh; }},
    {"gelu_erf", [](Gemm* g) { g->activation = gelu_erf; }},
    {"silu", [](Gemm* g) { g->activation = silu; }},
    {"swiglu", [](Gemm* g) { g->activation = swiglu; }},
    {"residual", [](Gemm* g) { g->residual = true; }},
    {"d in f32", [](Gemm* g) { g->dtype_d = DType::f32; }},
    {"everything at once",
     [](Gemm* g) {
       g->alpha = 0.7F;
       g->beta = -2;
       g->activation = gelu_tanh;
       g->bias_n = g->bias_m = g->residual = true;
     }},
};

void add_corners(std::vector<GemmVerifyCase>* out) {
  out->push_back(of("no k", {1, 5, 6, 0}, [](Gemm& g) { g.bias_n = true; }));
  out->push_back(of("one of each", {1, 1, 1, 1}));
  out->push_back(of("one column", {1, 40, 1, 70}));
  out->push_back(of("no product", {1, 20, 30, 40}, [](Gemm& g) {
    g.alpha = 0;
    g.beta = 2;
  }));
  for (const char* operand : {"a", "b", "c"}) {
    out->push_back(of("NaN", {1, 33, 45, 70}, [](Gemm& g) { g.beta = 1; }));
    out->back().name += std::string(" in ") + operand;
    out->back().nan = operand;
  }
}

void add_shapes(std::vector<GemmVerifyCase>* out) {
  for (const std::int64_t m : {1, 3, 16}) out->push_back(of("few rows", {1, m, 300, 520}));
  out->push_back(of("few rows, swiglu", {1, 5, 37, 100}, [](Gemm& g) { g.activation = swiglu; }));
  out->push_back(of("register tiles", {1, 29, 33, 257}));
  out->push_back(of("work items", {1, 300, 270, 70}));
  out->push_back(of("blocks of k", {1, 70, 50, 1030}));
  out->push_back(of("a batch over one b", {5, 33, 20, 40}));
  out->push_back(of("decode of a batch", {20, 1, 45, 90}));
  out->push_back(of("a batch, each its own b", {3, 33, 20, 40}, {.own_b = true}));
  out->push_back(of("heads", {2, 33, 48, 96}, {.k2 = 6, .n2 = 3}));
}

}  // namespace

GemmInstance GemmVerifyCase::make(DType dtype, std::uint64_t seed) const {
  Gemm g = problem;
  g.dtype = dtype;
  if (is_8bit(dtype) && g.dtype_d == DType::as_q) g.dtype_d = DType::bf16;
  GemmInstance out = make_gemm_instance(g, seed, shape);
  const std::string_view where = nan;
  const HostTensor* planted = where == "a" ? &out.a : where == "b" ? &out.b : where == "c" ? &out.c : nullptr;
  if (planted != nullptr)
    store_element(planted->view, 0, 7, 0, planted->view.shape[3] - 1, std::numeric_limits<double>::quiet_NaN());
  return out;
}

std::vector<GemmVerifyCase> gemm_verify_cases(bool full) {
  std::vector<GemmVerifyCase> out;
  add_corners(&out);
  add_shapes(&out);
  std::vector<Size> sizes = {{1, 40, 50, 60}};
  if (full) sizes.insert(sizes.end(), {{1, 16, 129, 700}, {2, 65, 130, 300}, {1, 257, 200, 128}});
  for (const Size& size : sizes)
    for (const Feature& feature : kFeatures) out.push_back(of(feature.name, size, [&](Gemm& g) { feature.apply(&g); }));
  if (full) {
    out.push_back(of("large", {1, 512, 512, 512}));
    out.push_back(of("long", {1, 64, 64, 20000}));
  }
  return out;
}

Verdict verify_gemm(const GemmInstance& instance, const judge::GemmReference& reference, const Target& target) {
  Verdict verdict;
  try {
    const Prepared prepared(instance.problem, target);
    GemmOperands x = instance.operands();
    const HostTensor d = make_poisoned(x.d.dtype, x.d.shape);
    x.d = d.view;
    const Status status = prepared.run(x);
    verdict.ran = static_cast<bool>(status);
    verdict.why = status.why;
    const bool promoted = data_of(prepared.plan())->backend == Backend::sm90;
    if (verdict.ran) verdict.add("d", reference.check(d.view, promoted ? judge::Sums::promoted : judge::Sums::f32));
  } catch (const UsageError& refusal) { verdict.why = refusal.what; }
  return verdict;
}

}  // namespace falchion::tools
