// tests/cuda/sms_test.cpp: results of plans for fewer SMs than the GPU has (Target::sms): tiles that are dealt, drawn
// from a counter and cut into parts, decode, gradients, and products with clusters.
#include <string>

#include "backward.hpp"
#include "device.hpp"
#include "support/gemm.hpp"

namespace falchion::testing {
namespace {

TEST(CudaSms, AttentionOfFewerSms) {
  const Path path{Backend::sm80, ""};
  if (const std::string why = path.why_not(); !why.empty()) GTEST_SKIP() << why;
  for (const Case& row : {Case{"plain", 2, 600, 600, 8, 8, 128, 128},
                          Case{"causal", 2, 900, 900, 8, 2, 64, 64}.causal(), Case{"parts", 1, 70, 5000, 2, 1, 64, 64},
                          Case{"decode", 5, 1, 3000, 32, 8, 128, 128}.used_k({3000, 1, 0, 64, 777}),
                          Case{"packed", 3, 300, 300, 4, 2, 128, 128}.packed({300, 0, 77}, {300, 5, 200}).causal()}) {
    SCOPED_TRACE(row.name);
    for (const DType dtype : {DType::bf16, DType::f32}) {
      Instance x = make_instance(row, dtype);
      const Reference reference(x);
      for (const int sms : {1, 3, 50}) {
        Target target;
        target.device = 0;
        target.sms = sms;
        const Status status = run(target, &x);
        ASSERT_TRUE(status) << status.why;
        EXPECT_TRUE(matches(x, reference)) << sms << " SMs, " << name(dtype);
      }
    }
  }
}

/// On few SMs each CTA has many tiles of keys, some of which no row sees. In the default order the bits are the same
/// for any number of SMs.
TEST(CudaSms, GradientsOfFewerSms) {
  const Path path{Backend::sm90, ""};
  if (const std::string why = path.why_not(); !why.empty()) GTEST_SKIP() << why;
  for (const Case& row :
       {Case{"full", 2, 600, 900, 4, 4, 64, 64}, Case{"causal", 2, 900, 900, 8, 2, 64, 64}.causal(),
        Case{"window", 1, 700, 1300, 4, 4, 64, 64}.window(200, 30), Case{"few rows", 1, 5, 1500, 4, 4, 64, 64}.causal(),
        Case{"no rows", 1, 0, 700, 4, 4, 64, 64}, Case{"used", 3, 300, 400, 4, 2, 40, 40}.used_k({400, 0, 129}),
        Case{"packed", 3, 300, 300, 4, 2, 64, 64}.packed({300, 0, 77}, {300, 5, 200}).causal()}) {
    for (const bool any_order : {false, true}) {
      SCOPED_TRACE(std::string(row.name) + (any_order ? ", any order" : ""));
      Gradients x(row, DType::bf16, {}, 17);
      x.x.problem.any_order = any_order;
      const judge::GradientReference reference(x.x.problem, x.operands());
      std::string first;
      for (const int sms : {0, 1, 3, 50}) {
        Target target(Backend::sm90);
        target.device = 0;
        target.sms = sms;
        start_gradients(x);
        x.run(target);
        expect_judged(x, reference);
        if (first.empty()) first = gradient_bytes(x);
        EXPECT_TRUE(any_order || gradient_bytes(x) == first) << sms << " SMs";
      }
    }
  }
}

TEST(CudaSms, GemmOfFewerSms) {
  const Path path{Backend::sm80, ""};
  if (const std::string why = path.why_not(); !why.empty()) GTEST_SKIP() << why;
  for (const GemmCase& row : {GemmCase{"tiles", 1, 500, 700, 600}, GemmCase{"few rows", 1, 5, 900, 4000}}) {
    SCOPED_TRACE(row.name);
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const GemmInstance fresh = make_gemm_instance(row, dtype);
      for (const int sms : {1, 3, 50}) {
        const GemmInstance x = make_gemm_instance(row, dtype);
        Target target;
        target.device = 0;
        target.sms = sms;
        const Status status = run(target, x);
        ASSERT_TRUE(status) << status.why;
        EXPECT_TRUE(matches(x, fresh)) << sms << " SMs, " << name(dtype);
      }
    }
  }
}

}  // namespace
}  // namespace falchion::testing
