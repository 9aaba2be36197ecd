// tools/verify/attention/cases.cpp: see cases.hpp.
#include "verify/attention/cases.hpp"

#include <limits>
#include <type_traits>

#include "base/fields.hpp"
#include "problem/work.hpp"

namespace falchion::tools {
namespace {

constexpr Align kBottomRight = Align::bottom_right, kTopLeft = Align::top_left;

struct Size {
  std::int64_t b, h_q, h_k, s_q, s_k, d_qk, d_v;
};

Attention sized(const Size& size) {
  Attention a;
  a.b = size.b;
  a.h_q = size.h_q;
  a.h_k = size.h_k;
  a.s_q = size.s_q;
  a.s_k = size.s_k;
  a.d_qk = size.d_qk;
  a.d_v = size.d_v;
  a.lse = true;
  return a;
}

template <class Change>
VerifyCase make_case(const char* name, const Size& size, const Change& change) {
  VerifyCase out{name, sized(size), {}, {}, nullptr};
  change(out);
  return out;
}
VerifyCase make_case(const char* name, const Size& size) {
  return make_case(name, size, [](VerifyCase&) {});
}

void fill_row(const Tensor& t, std::int64_t row, double value) {
  for (std::int64_t b = 0; b < t.shape[0]; ++b)
    for (std::int64_t h = 0; h < t.shape[2]; ++h)
      for (std::int64_t d = 0; d < t.shape[3]; ++d) store_element(t, b, row, h, d, value);
}

void add_corners(std::vector<VerifyCase>* out) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const auto causal = [](VerifyCase& c) { c.problem.band = Band::causal(kBottomRight); };
  out->push_back(make_case("no keys", {1, 2, 2, 5, 0, 64, 64}));
  out->push_back(make_case("one key", {2, 3, 3, 17, 1, 64, 64}));
  out->push_back(make_case("one of each", {1, 1, 1, 1, 1, 1, 1}));
  out->push_back(make_case("more queries than keys", {1, 2, 2, 70, 33, 64, 64}, causal));
  out->push_back(make_case("window that misses every key", {1, 2, 2, 64, 8, 32, 32},
                           [](VerifyCase& c) { c.problem.band = Band::window(2, 0, kTopLeft); }));
  out->push_back(make_case("packed, an empty sequence", {1, 4, 2, 0, 0, 64, 64}, [](VerifyCase& c) {
    c.lengths_q = {5, 0, 40, 1, 77};
    c.lengths_k = {9, 3, 0, 64, 77};
    c.problem.band = Band::causal(kBottomRight);
  }));
  out->push_back(make_case("used lengths from 0", {4, 2, 1, 50, 66, 40, 40},
                           [](VerifyCase& c) { c.problem.used_q = c.problem.used_k = true; }));
  out->push_back(make_case("left padding", {4, 4, 2, 50, 66, 40, 40}, [](VerifyCase& c) {
    c.problem.first_k = c.problem.used_k = true;
    c.problem.band = Band::causal(kBottomRight);
  }));
  out->push_back(make_case("NaN in masked keys", {1, 2, 2, 48, 48, 64, 64}, [=](VerifyCase& c) {
    c.problem.band = Band::causal(kBottomRight);
    c.plant = [=](Instance* x) {
      fill_row(x->k.view, 40, nan);
      fill_row(x->v.view, 41, nan);
    };
  }));
  out->push_back(make_case("NaN in a query", {1, 2, 2, 48, 48, 64, 64}, [=](VerifyCase& c) {
    c.plant = [=](Instance* x) { store_element(x->q.view, 0, 7, 1, 3, nan); };
  }));
  out->push_back(make_case("Inf in V", {1, 2, 2, 48, 48, 64, 64}, [=](VerifyCase& c) {
    c.plant = [=](Instance* x) { store_element(x->v.view, 0, 9, 0, 3, inf); };
  }));
  out->push_back(make_case("bias of -Inf, a whole row too", {1, 2, 2, 33, 47, 64, 64}, [=](VerifyCase& c) {
    c.problem.bias = true;
    c.plant = [=](Instance* x) {
      for (std::int64_t j = 0; j < 47; ++j) store_element(x->bias.view, 0, 0, 11, j, -inf);
      for (std::int64_t i = 0; i < 33; ++i) store_element(x->bias.view, 0, 1, i, 5, -inf);
    };
  }));
  out->push_back(
      make_case("scores of some +-1000", {1, 2, 2, 64, 96, 64, 64}, [](VerifyCase& c) { c.problem.score.scale = 40; }));
  out->push_back(
      make_case("dropout of everything", {1, 2, 2, 16, 16, 32, 32}, [](VerifyCase& c) { c.problem.dropout = 1; }));
}

struct Feature {
  const char* name;
  void (*apply)(Attention*);
};
constexpr Feature kFeatures[] = {
    {"full", [](Attention*) {}},
    {"causal", [](Attention* a) { a->band = Band::causal(kBottomRight); }},
    {"causal, top-left", [](Attention* a) { a->band = Band::causal(kTopLeft); }},
    {"window", [](Attention* a) { a->band = Band::window(20, 0, kBottomRight); }},
    {"window, both sides", [](Attention* a) { a->band = Band::window(13, 9, kTopLeft); }},
    {"negative scale", [](Attention* a) { a->score.scale = -0.2F; }},
    {"softcap", [](Attention* a) { a->score.softcap = 5; }},
    {"ALiBi", [](Attention* a) { a->alibi = true; }},
    {"bias", [](Attention* a) { a->bias = true; }},
    {"mask", [](Attention* a) { a->mask = true; }},
    {"sinks", [](Attention* a) { a->sinks = true; }},
    {"dropout", [](Attention* a) { a->dropout = 0.2F; }},
    {"everything at once",
     [](Attention* a) {
       a->band = Band::window(40, 3, kBottomRight);
       a->score = {0.15F, 20};
       a->dropout = 0.1F;
       a->alibi = a->bias = a->mask = a->sinks = true;
     }},
};

void add_shapes(std::vector<VerifyCase>* out) {
  out->push_back(make_case("GQA", {2, 8, 2, 65, 129, 64, 64}));
  out->push_back(make_case("MQA", {1, 8, 1, 100, 100, 128, 128}));
  for (const std::int64_t d : {3, 20, 37, 80, 96, 160, 256})
    out->push_back(make_case("head dim", {1, 2, 2, 50, 70, d, d}));
  out->push_back(make_case("d_v apart", {1, 2, 1, 60, 70, 192, 128}));
  out->push_back(make_case("decode", {1, 32, 8, 1, 700, 128, 128}));
  out->push_back(make_case("decode, four rows", {3, 4, 4, 4, 333, 64, 64},
                           [](VerifyCase& c) { c.problem.band = Band::causal(kBottomRight); }));
}

constexpr Feature kBackwardFeatures[] = {
    {"a gradient of lse", [](Attention* a) { a->grad_lse = true; }},
    {"gradients of bias and slopes", [](Attention* a) { a->alibi = a->bias = a->grad_alibi = a->grad_bias = true; }},
    {"the gradient of sinks", [](Attention* a) { a->sinks = a->grad_sinks = a->grad_lse = true; }},
    {"gradients in f32", [](Attention* a) { a->grads = Grads::f32; }},
    {"gradients that are added", [](Attention* a) { a->grads = Grads::accumulate; }},
    {"grad_q alone", [](Attention* a) { a->frozen = 2; }},
    {"grad_k and grad_v alone", [](Attention* a) { a->frozen = 1; }},
};

}  // namespace

Instance VerifyCase::make(DType dtype, std::uint64_t seed) const {
  Attention a = problem;
  a.dtype = dtype;
  Instance x = lengths_q.empty() ? make_instance(a, seed) : make_packed_instance(a, lengths_q, lengths_k, seed);
  if (plant) plant(&x);
  return x;
}

std::vector<VerifyCase> verify_cases(bool full) {
  std::vector<VerifyCase> out;
  add_corners(&out);
  add_shapes(&out);
  std::vector<Size> sizes = {{1, 4, 2, 75, 110, 64, 64}};
  if (full)
    sizes.insert(sizes.end(), {{2, 6, 3, 129, 257, 128, 128}, {1, 2, 2, 300, 300, 72, 40}, {1, 4, 1, 3, 500, 96, 96}});
  for (const Size& size : sizes)
    for (const Feature& feature : kFeatures) {
      out.push_back(make_case(feature.name, size));
      feature.apply(&out.back().problem);
    }
  if (full) {
    out.push_back(make_case("long", {1, 2, 1, 1000, 1500, 64, 64}));
    out.push_back(make_case("long, causal", {1, 1, 1, 1500, 1500, 128, 128},
                            [](VerifyCase& c) { c.problem.band = Band::causal(kBottomRight); }));
  }
  return out;
}

std::vector<VerifyCase> verify_backward_cases(bool full) {
  std::vector<VerifyCase> out = verify_cases(full);
  for (const Feature& feature : kBackwardFeatures) {
    out.push_back(make_case(feature.name, {1, 4, 2, 75, 110, 64, 40}));
    feature.apply(&out.back().problem);
  }
  // Each flag of this pass by itself, with rows that belong to no used length.
  VerifyCase one = make_case("", {3, 4, 2, 75, 110, 64, 40});
  one.problem.used_q = one.problem.used_k = true;
  each_field(one.problem, [&](const Field& field, auto& x) {
    if constexpr (std::is_same_v<decltype(x), bool&>) {
      if (field.kind != FieldKind::flag || field.forward) return;
      one.name = field.word();
      x = true;
      out.push_back(one);
      x = false;
    }
  });
  return out;
}

}  // namespace falchion::tools
