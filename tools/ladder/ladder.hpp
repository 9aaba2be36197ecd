// tools/ladder/ladder.hpp: common to the ladders of `falchion ladder`: where a step runs, its row of results, and
// printing the rows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "falchion/falchion.hpp"
#include "judge/rule.hpp"
#include "measure/measure.hpp"
#include "plan/json.hpp"
#include "problem/buffer.hpp"

namespace falchion::tools {

struct LadderOptions {
  std::string kind, step, cublas;
  std::int64_t b = 0, h = 0, s = 0, s_k = 0, d = 0, d_v = 0, m = 0, n = 0, k = 0, runs = 0, seed = 1;
  bool cpu = false, gpu = false, causal = false, reverse = false, branches = false, as_json = false, brief = false;

  /// x, or the default where x is 0.
  static int given(std::int64_t x, int otherwise) { return x > 0 ? static_cast<int>(x) : otherwise; }
  int runs_on(bool gpu_side) const { return given(runs, gpu_side ? 15 : 5); }
};

/// The last step of every ladder.
inline constexpr const char* kLibrary = "library";

/// Where a ladder runs.
enum class Side { cpu, gpu };

/// Memory on that side. Throws UsageError if there is not enough.
class SideMemory {
 public:
  SideMemory(Side side, std::size_t bytes);
  ~SideMemory();
  SideMemory(const SideMemory&) = delete;
  SideMemory& operator=(const SideMemory&) = delete;

  void* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  void put(const void* host) const;
  void get(void* host) const;
  void poison() const;  ///< 0xFF: a NaN in f32 and bf16

 private:
  Side side_;
  std::size_t bytes_;
  Buffer host_;
  void* data_ = nullptr;
};

/// The median of runs. On the GPU they are timed by events, with several launches in each run where one is short.
Samples time_on(Side side, int runs, const std::function<void()>& run);
/// The same for several functions in turns, at the same clocks: a GPU slows down under load.
std::vector<Samples> time_in_turns(Side side, int runs, const std::vector<std::function<void()>>& all);

/// Threads of the CPU's steps; the library gets as many.
int thread_count();
std::string device_name(Side side);
/// Whether this build has a kernel of this back end: "attention_forward".
bool library_has(const char* operation, Backend backend, DType dtype);

/// Throws UsageError where b x h is more than a grid can have in y.
void require_grid(int b, int h);

/// One step, measured and checked.
struct LadderRow {
  std::string name, title, file, why;
  std::string not_built{};  // why there is nothing to measure
  Samples time{};
  double rival_seconds = 0;                            // of the rival's kernel for the same; 0: there is none
  double work = 0;                                     // of a run, in the ladder's unit
  double error = 0, share = 0;                         // of its limit
  std::string problem{};                               // that this row has run; empty: the report's
  Json problem_json = nullptr;                         // likewise
  std::string wrong{};                                 // empty: passed
  std::vector<std::pair<const char*, Json>> errors{};  // of each result, by its name, for --json

  bool passed() const { return wrong.empty(); }
};

/// Notes in a row what the judge found in its only output.
void note_error(const char* output, const judge::ErrorReport& error, LadderRow* row);

/// Fills a row: check() runs once on a poisoned result and returns the error, time() runs often. The result is checked
/// before and after the timed runs, since an error may only show if a run finds leftovers of others in the workspace,
/// such as counters that were not reset.
void check_and_time(const std::function<void()>& check, const std::function<void()>& time, LadderRow* row);

/// A step that can be selected by its name.
struct Rung {
  std::string name;
  std::function<LadderRow()> run;
};
/// All steps, or only options.step. left_out is a sentence, or nothing. Throws UsageError if there is no such step.
std::vector<LadderRow> climb(const LadderOptions& options, const std::vector<Rung>& rungs,
                             const std::string& left_out = "");

/// The steps that the device of a side can run. left_out is a sentence about the others, or nothing.
template <class Step>
struct StepsHere {
  std::vector<const Step*> steps{};
  std::string left_out{};
};
/// One line: "Left out, for they run on sm_90 alone and this is sm_80: warp-roles, ..."; empty where there are none.
std::string left_out_text(const std::vector<const char*>& names, int only_sm);
int sm_of(Side side);  ///< 0 on the CPU

template <class Step>
StepsHere<Step> steps_here(Side side, std::span<const Step* const> all) {
  StepsHere<Step> out;
  std::vector<const char*> left_out;
  int only_sm = 0;
  for (const Step* step : all) {
    if (step->runs_on(sm_of(side))) {
      out.steps.push_back(step);
    } else {
      left_out.push_back(step->name);
      only_sm = step->only_sm;
    }
  }
  out.left_out = left_out_text(left_out, only_sm);
  return out;
}

/// The contents of the output besides the rows.
struct LadderReport {
  Side side;
  std::string dtype, problem;      // "bf16", "b8 h16 s2048 d64 full"
  Json problem_json;               // null: each row has its own
  const char *unit, *unit_json;    // of LadderRow::work: "FLOP/s", "flops_per_second"
  const char* error_title;         // "max error"
  std::vector<std::string> notes;  // sentences without their full stop
  const char* folder;              // of the steps
  std::string rival{};             // "cuBLAS 13.1.0", or empty
  bool climbs = true;              // each row is meant to be faster than the one before it
};
/// Prints the rows as the options say. Returns the exit code.
int tell(const LadderOptions& options, const LadderReport& report, const std::vector<LadderRow>& rows);

// The ladders.
int climb_attention(const LadderOptions& options, Side side);
int climb_backward(const LadderOptions& options, Side side);
int climb_linear(const LadderOptions& options, Side side);
int climb_gemm(const LadderOptions& options, Side side);

}  // namespace falchion::tools
