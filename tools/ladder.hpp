// tools/ladder.hpp: `falchion ladder`: one step measured and checked.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "errors.hpp"
#include "ladder/attention/step.hpp"
#include "measure.hpp"

namespace falchion::tools {

/// Where a ladder runs.
enum class Side { cpu, gpu };

/// Bytes on that side. Throws UsageError where there are not as many.
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

/// The problem with its tensors, and sampled rows of it with what they must give.
class LadderProblem {
 public:
  LadderProblem(Side side, const ladder::Problem& problem, std::uint64_t seed);

  const ladder::Problem& sizes() const { return problem_; }
  Side side() const { return side_; }
  DType dtype() const { return side_ == Side::gpu ? DType::bf16 : DType::f32; }
  Attention attention() const;  ///< the same for the library, whose own scale is 1 / sqrt(d) too
  Operands operands() const;    ///< likewise
  ladder::Tensors tensors(void* workspace) const;

  void poison() const { o_.poison(); }
  /// O as it is now: every element written, the sampled rows by the tolerance rule.
  ErrorReport check() const;
  std::string what_is_checked() const;

 private:
  /// Row r of the sample's head number n: which row of q and o.
  std::int64_t row_offset(std::int64_t n, std::int64_t r) const;
  int head(std::int64_t n) const;
  std::int64_t query(std::int64_t r) const;
  void fill_sample();

  Side side_;
  ladder::Problem problem_;
  HostTensor host_q_, host_k_, host_v_;
  SideMemory q_, k_, v_, o_;
  std::int64_t heads_, rows_;  // sampled
  Instance sample_;            // (heads, rows, 1, d), the band as a mask
  std::unique_ptr<Reference> reference_;
};

/// Median of runs: on the GPU by events, several launches a run where one is short.
Samples time_on(Side side, int runs, const std::function<void()>& run);

}  // namespace falchion::tools
