// tests/verify_eight_test.cpp: tests the problems of q of 8 bits that storms draw: that all kinds are there, what lies
// in scales that nobody uses, and that a path which takes a wrong scale is found.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/fields.hpp"
#include "base/names.hpp"
#include "plan/text.hpp"
#include "support/faulty_path.hpp"
#include "tool.hpp"
#include "verify/draw.hpp"
#include "verify/paths.hpp"
#include "verify/storm.hpp"
#include "verify/subject.hpp"

namespace falchion::tools::storm {
namespace {

const std::vector<DType> kTypes = {DType::f32, DType::bf16};

Problem draw_eight(std::uint64_t index) {
  return draw_problem(12, index, Op::attention, kTypes, {.caches = 0, .eight = 1});
}

TEST(VerifyEight, TheWholeSpaceIsDrawn) {
  std::set<std::string> seen;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const Problem p = draw_eight(i);
    const Attention& a = p.attention;
    ASSERT_TRUE(is_8bit(a.dtype) && !a.cache && !a.first_k && !a.alibi) << to_text(p);
    EXPECT_EQ(to_text(parse_problem(to_text(p))), to_text(p));
    Plan plan;
    const Status status = Plan::make(a, Pass::forward, Target(Backend::ref), &plan);
    ASSERT_TRUE(status) << status.why << ": " << to_text(p);
    const auto note = [&](bool is, const std::string& what) {
      if (is) seen.insert(what);
    };
    seen.insert(falchion::text(falchion::name(a.dtype), " ", falchion::name(dtype_of_v(a)), " ",
                               falchion::name(dtype_of_o(a))));
    note(a.q_scale && p.q_scale.one == 7, "a scale of all");
    note(a.q_scale && p.q_scale.one == 3, "scales of heads");
    note(a.q_scale && p.q_scale.one == 0, "scales of tokens");
    note(!a.q_scale && !a.k_scale && !a.v_scale, "no scales");
    note(a.k_scale_rows == 128 && p.k_scale.one == 0 && a.packed, "packed blocks");
    note(a.k_scale_rows == 1024 && p.k_scale.one == 0 && !a.packed, "large blocks");
    note(a.k_scale && (p.k_scale.one & 2U) == 0 && a.k_scale_rows == 0, "keys that share by a stride of 0");
    note(p.storage_of("k_scale").order != "0123" && a.k_scale, "scales in another order");
    note(a.packed, "packed");
    note(a.used_q, "used queries");
    note(a.used_k, "used keys");
    note(a.sinks && a.lse, "sinks, lse");
    note(a.score.softcap > 0, "softcap");
    note(a.split_keys > 0, "parts of the keys");
    note(a.band.left >= 0, "window");
    note(a.band.right == 0, "causal");
    note(a.h_q > a.h_k, "groups");
    note(a.d_qk % 16 != 0, "an odd head dim");
    note(a.s_k > 4000, "many keys");
    note(p.data.shape == "codes", "all codes");
  }
  EXPECT_EQ(seen.size(), 20U + 6U) << ::testing::PrintToString(seen);
}

TEST(VerifyEight, AllProblemsWithoutOneStayAsTheyWere) {
  int eight = 0;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const Problem none = draw_problem(11, i, Op::attention, kTypes, {.eight = 0}),
                  some = draw_problem(11, i, Op::attention, kTypes);
    EXPECT_FALSE(is_8bit(none.attention.dtype));
    if (!is_8bit(some.attention.dtype)) { EXPECT_EQ(to_text(some), to_text(none)); }
    eight += is_8bit(some.attention.dtype) ? 1 : 0;
    EXPECT_FALSE(is_8bit(draw_problem(11, i, Op::attention, kTypes, {.eight = 1, .bytes = {}}).attention.dtype));
  }
  EXPECT_GT(eight, 25);
  EXPECT_LT(eight, 100);
}

template <class F>
void change(const char* operand, const Image& image, std::byte* copy, const F& f) {
  const Tensor x = image.find(operand)->on(copy);
  for (std::int64_t b = 0; b < x.shape[0]; ++b)
    for (std::int64_t j = 0; j < x.shape[1]; ++j)
      for (std::int64_t h = 0; h < x.shape[2]; ++h) {
        auto* at = static_cast<float*>(x.data) + b * x.stride[0] + j * x.stride[1] + h * x.stride[2];
        f(at, j + 1 < x.shape[1] ? at[x.stride[1]] : *at, h + 1 < x.shape[2] ? at[x.stride[2]] : *at);
      }
}

bool differs(const Problem& p, const char* operand, bool wanted, const Broadcast& ones, unsigned axis) {
  return wanted && (ones.one & axis) == 0 && (p.storage_of(operand).zero & axis) == 0;
}

const Fault kFaults[] = {
    {"takes the next block's scale",
     [](const Problem& p) {
       const Attention& a = p.attention;
       return a.k_scale_rows > 0 && a.s_k > a.k_scale_rows && differs(p, "k_scale", a.k_scale, p.k_scale, 2);
     },
     [](const Problem&, const Image& image, std::byte* copy) {
       change("k_scale", image, copy, [](float* at, float next, float) { *at = next; });
     }},
    {"takes the next token's scale",
     [](const Problem& p) { return differs(p, "q_scale", p.attention.q_scale, p.q_scale, 2); },
     [](const Problem&, const Image& image, std::byte* copy) {
       change("q_scale", image, copy, [](float* at, float next, float) { *at = next; });
     }},
    {"takes the next head's scale of v",
     [](const Problem& p) { return p.attention.h_k > 1 && differs(p, "v_scale", p.attention.v_scale, p.v_scale, 4); },
     [](const Problem&, const Image& image, std::byte* copy) {
       change("v_scale", image, copy, [](float* at, float, float next) { *at = next; });
     }},
    {"is off by a tenth in q",
     [](const Problem& p) { return p.attention.q_scale && p.data.shape == "normal" && p.attention.score.softcap == 0; },
     [](const Problem&, const Image& image, std::byte* copy) {
       change("q_scale", image, copy, [](float* at, float, float) { *at *= 1.1F; });
     }},
    {"leaves out the last key", [](const Problem& p) { return p.attention.used_k; },
     [](const Problem& p, const Image& image, std::byte* copy) {
       auto* lengths = reinterpret_cast<std::int32_t*>(copy + image.find_array("used_k"));
       for (std::int64_t i = 0; i < p.attention.b; ++i) --lengths[i];
     }},
};

TEST(VerifyEight, APathThatTakesAWrongScaleIsFound) { expect_found(kFaults, draw_eight, 100000); }

/// Sequences of 3, 200 and 0 keys, of blocks of 128: rows 0, 1, 2 of k_scale, and 3 and 4 belong to nobody.
TEST(VerifyEight, ScalesOfNoKeyAreNan) {
  const Problem p = parse_problem(
      "op=attention dtype=i8 dtype_v=e4m3 b=3 s_q=2 s_k=200 d_qk=8 d_v=8 packed=1 lengths_q=1,2,2 lengths_k=3,200,120 "
      "uses_k=1 used_k=3,200,0 k_scale=1 k_scale_rows=128 q_scale=1 uses_q=1 used_q=1,1,2");
  const auto subject = make_subject(p);
  const Image& image = subject->image();
  const auto nans = [&](const char* operand) {
    const Tensor x = image.find(operand)->on(image.data());
    std::string out;
    for (std::int64_t j = 0; j < x.shape[1]; ++j)
      out += std::isnan(static_cast<float*>(x.data)[j * x.stride[1]]) ? "-" : "x";
    return out;
  };
  EXPECT_EQ(nans("k_scale"), "xxx--");
  EXPECT_EQ(nans("q_scale"), "xx-xx");
}

TEST(VerifyEight, FailuresAreMadeSmall) {
  const Problem large = parse_problem(
      "op=attention dtype=i8 dtype_v=bf16 b=4 s_q=30 s_k=500 h_q=12 h_k=3 d_qk=64 d_v=96 lse=1 k_scale=1 "
      "k_scale_rows=256 q_scale=1 scores=codes split_keys=128");
  const auto small = [&](const std::function<bool(const Problem&)>& fails) { return to_text(shrink(large, fails)); };
  EXPECT_EQ(small([](const Problem&) { return true; }), "op=attention dtype=bf16 d_qk=1 d_v=1");
  EXPECT_EQ(small([](const Problem& p) { return p.attention.k_scale_rows > 0 && p.attention.s_k > 128; }),
            "op=attention dtype=i8 dtype_v=e4m3 s_k=129 d_qk=1 d_v=1 k_scale=1 k_scale_ones=7 k_scale_rows=128");
  EXPECT_EQ(small([](const Problem& p) { return dtype_of_v(p.attention) == DType::bf16 && is_8bit(p.dtype()); }),
            "op=attention dtype=i8 dtype_v=bf16 d_qk=1 d_v=1");
}

TEST(VerifyEight, AnUnknownKeyOrValueIsRefused) {
  for (const char* bad : {"op=attention dtype=i8 k_scale_rows=-1", "op=attention dtype=i8 q_scale=1 q_scale_ones=8",
                          "op=attention-backward q_scale=1", "op=attention dtype=i8 dtype_v=e5"})
    EXPECT_THROW(parse_problem(bad), UsageError) << bad;
}

}  // namespace
}  // namespace falchion::tools::storm
