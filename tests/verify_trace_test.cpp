// tests/verify_trace_test.cpp: FALCHION_TRACE and FALCHION_TRACE_DUMP on problems that a storm draws: the line of a run
// repeats that run, and what a dump holds gives the same results again. The variables are read once a process, so they
// are set before main(). tests/command_trace_test.cpp tests what the command's users see.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "plan/plan_data.hpp"
#include "problem/files.hpp"
#include "problem/levels.hpp"
#include "run/dump.hpp"
#include "tool.hpp"
#include "verify/draw.hpp"
#include "verify/paths.hpp"
#include "verify/storage.hpp"
#include "verify/subject.hpp"

namespace falchion::tools::storm {
namespace {

namespace fs = std::filesystem;

const std::string folder = (fs::temp_directory_path() / ("falchion_trace_" + std::to_string(getpid()))).string();
const std::string dump_file = folder + "/dump.safetensors", out_file = folder + "/out.safetensors";
[[maybe_unused]] const bool set = fs::create_directories(folder) && setenv("FALCHION_TRACE", "1", 1) == 0 &&
                                  setenv("FALCHION_TRACE_DUMP", dump_file.c_str(), 1) == 0;

class VerifyTrace : public ::testing::Test {
 protected:
  static void TearDownTestSuite() { fs::remove_all(folder); }
};

/// The line of the trace that begins so, without its time.
struct Line {
  std::string describe, problem;
};
Line line_of(const std::string& trace, const std::string& kind) {
  const std::string begin = "falchion: " + kind + " ", command = "; falchion verify --problem '";
  const std::size_t from = trace.rfind(begin);
  if (from == std::string::npos) return {};
  const std::string line = trace.substr(from + begin.size(), trace.find('\n', from) - from - begin.size());
  const std::size_t at = line.find(command), end = line.find('\'', at + command.size());
  EXPECT_EQ(line.substr(end + 1), "") << "a note where all is on the host: " << line;
  const std::string before = line.substr(0, at);
  EXPECT_TRUE(before.ends_with(" us")) << line;
  return {before.substr(0, before.rfind("; ")), line.substr(at + command.size(), end - at - command.size())};
}

/// Runs a problem on a copy of its image. Returns the trace.
struct Ran {
  std::unique_ptr<Subject> subject;
  std::vector<std::byte> copy;
  Status status;
  std::string trace;
};
Ran run(const Problem& problem) {
  Ran out{make_subject(problem), {}, {}, ""};
  Target target = Path{problem.backend, problem.level}.target(problem.threads);
  target.segments = problem.segments;
  out.copy.assign(out.subject->image().data(), out.subject->image().data() + out.subject->image().size());
  Plan plan;
  ::testing::internal::CaptureStderr();
  out.status = make_plan(problem, target, &plan);
  if (out.status) {
    const Buffer workspace(plan.workspace_bytes());
    out.status = out.subject->run(plan, out.copy.data(), workspace.data(), plan.workspace_bytes());
  }
  out.trace = ::testing::internal::GetCapturedStderr();
  return out;
}

bool same_number(double x, double y) { return x == y || (x != x && y != y); }

/// Every element that the run wrote has the same bits in what `falchion run --dump` wrote.
void expect_same_outputs(const Ran& ran, const std::string& what) {
  const io::Archive archive = read_archive(out_file);
  const Image& image = ran.subject->image();
  for (const auto& operand : image.operands()) {
    const std::string& name = operand.first;
    const Image::Place& place = operand.second;
    if (place.empty || !place.there) continue;
    const Tensor wrote = place.on(ran.copy.data());
    const io::Array* array = archive.find(name);
    std::int64_t written = 0, differ = 0, at = 0;
    for_each_index(wrote.shape, [&](auto i, auto j, auto k, auto l) {
      const std::int64_t here = at++;
      if (image.same(ran.copy.data(), place, i, j, k, l)) return;
      ++written;
      if (array == nullptr) return;
      const Tensor flat{const_cast<std::byte*>(array->bytes.data()), wrote.dtype, {1, 1, 1, at}, {0, 0, 0, 1}};
      differ += !same_number(load_element(wrote, i, j, k, l), load_element(flat, 0, 0, 0, here));
    });
    EXPECT_EQ(differ, 0) << name << " of " << what;
    EXPECT_TRUE(written == 0 || array != nullptr) << name << " of " << what;
  }
}

TEST_F(VerifyTrace, ALineRepeatsItsRunAndADumpItsResults) {
  int ran_count = 0;
  for (const CommandOperation& entry : command_operations()) {
    const std::vector<DType> types = entry.kind == Kind::gemm
                                         ? std::vector<DType>{DType::f32, DType::bf16, DType::e4m3, DType::i8}
                                         : std::vector<DType>{DType::f32, DType::f16, DType::bf16};
    for (std::uint64_t n = 0; n < 25; ++n) {
      Problem problem = draw_problem(40, n, entry.op, types);
      problem.backend = n % 3 == 0 ? Backend::ref : Backend::best;
      problem.lent = false;
      problem.attention.any_order = false;
      const std::string what = to_text(problem);
      SCOPED_TRACE(what);
      const Ran first = run(problem);
      if (!first.status) continue;  // what is unsupported, and lengths beyond the hint
      ++ran_count;
      const Line line = line_of(first.trace, "run");
      EXPECT_NE(first.trace.find("falchion: plan " + line.describe), std::string::npos) << first.trace;
      RunOptions again;
      again.dump = dump_file;
      again.out = out_file;
      again.no_limit = true;
      ::testing::internal::CaptureStdout();
      ::testing::internal::CaptureStderr();
      const std::string kept = folder + "/kept.safetensors";  // since this run is dumped too
      fs::copy_file(dump_file, kept, fs::copy_options::overwrite_existing);
      again.dump = kept;
      EXPECT_EQ(run_dump(again), exit_ok);
      EXPECT_NE(::testing::internal::GetCapturedStdout().find("plan     " + line.describe), std::string::npos);
      ::testing::internal::GetCapturedStderr();
      expect_same_outputs(first, what);
      const Line second = line_of(run(parse_problem(line.problem)).trace, "run");
      EXPECT_EQ(second.problem, line.problem);
      EXPECT_EQ(second.describe, line.describe);
    }
  }
  EXPECT_GT(ran_count, 100);
}

/// The one-call form keeps its plan, so a second call has no line for one.
TEST_F(VerifyTrace, TheOneCallFormIsTold) {
  const HostTensor q = make_random(DType::f32, {1, 9, 2, 8}, 1), o = make_tensor(DType::f32, {1, 9, 2, 8});
  Operands x;
  x.q = x.k = x.v = q.view;
  x.o = o.view;
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(attention(x, {}, Target{}));
  EXPECT_TRUE(attention(x, {}, Target{}));
  const std::string trace = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(trace.find("falchion: plan "), trace.rfind("falchion: plan ")) << trace;
  EXPECT_NE(trace.find("falchion: run "), trace.rfind("falchion: run ")) << trace;
  EXPECT_EQ(parse_problem(line_of(trace, "run").problem).attention.s_q, 9);
}

/// A refused plan has its line too.
TEST_F(VerifyTrace, ARefusalIsToldWithItsReason) {
  Plan plan;
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(Plan::make(Attention{.b = 1, .s_q = 8, .s_k = 8, .h_q = 2, .h_k = 2, .d_qk = 512, .d_v = 8},
                          Pass::forward, {}, &plan));
  const std::string trace = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(trace.find("falchion: plan attention_forward; unsupported: d_qk = 512 is over the limit of 256; "), 0u)
      << trace;
  EXPECT_EQ(parse_problem(line_of(trace, "plan").problem).attention.d_qk, 512);
}

/// Strides of every kind are written so that they can be read back.
TEST(VerifyStorage, StridesComeBack) {
  const std::array<std::int64_t, 4> shapes[] = {{2, 3, 4, 8}, {1, 3, 1, 8}, {2, 1, 4, 1}, {1, 1, 1, 1}, {5, 2, 2, 2}};
  for (const char* text : {"dense", "0213", "0213+pad3+gap5", "3210", "1302+gap2", "pad8", "flip2", "0213+flip15+pad1",
                           "zero6", "zero15", "0132+zero1+gap3"})
    for (const auto& shape : shapes) {
      const Strides strides = strides_of(parse_storage(text), shape);
      const Tensor x{reinterpret_cast<void*>(std::uintptr_t{1 << 20}), DType::f32, shape, strides.stride};
      Storage found;
      ASSERT_TRUE(line::storage_of(x, &found)) << text;
      const Strides again = strides_of(found, shape);
      for (std::size_t axis = 0; axis < 4; ++axis) {
        const std::int64_t wanted = shape[axis] > 1 ? strides.stride[axis] : again.stride[axis];
        EXPECT_EQ(again.stride[axis], wanted) << text << " as " << to_text(found);
      }
    }
  Storage storage;
  const Tensor every_other{nullptr, DType::f32, {1, 1, 2, 4}, {0, 0, 100, 2}};  // a gap behind each run of one element
  EXPECT_TRUE(line::storage_of(every_other, &storage));
  const Tensor everywhere{nullptr, DType::f32, {2, 2, 2, 4}, {1000, 300, 100, 2}};
  EXPECT_FALSE(line::storage_of(everywhere, &storage));
  const Tensor off{reinterpret_cast<void*>(std::uintptr_t{(1 << 20) + 6}), DType::bf16, {1, 1, 2, 4}, {8, 8, 4, 1}};
  ASSERT_TRUE(line::storage_of(off, &storage));
  EXPECT_EQ(to_text(storage), "start3");
}

}  // namespace
}  // namespace falchion::tools::storm
