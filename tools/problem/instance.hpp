// tools/problem/instance.hpp: a problem with its tensors, random or loaded, and the outputs of one run of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "problem/page_table.hpp"
#include "problem/tensors.hpp"

namespace falchion::tools {

/// Memory of a run's operands, by their names. Those that are not there are empty.
struct OperandTensors {
#define FALCHION_OPERAND(name, ...) HostTensor name;
#include "base/fields.def"

  /// Sets those that are there.
  void attach(Operands* operands) const;
};

struct Instance : OperandTensors {
  Attention problem;
  std::vector<std::int32_t> cu_q, cu_k, page_starts;
#define FALCHION_LENGTHS(key, ...) std::vector<std::int32_t> key;
#include "base/fields.def"
  Rng rng;

  /// The inputs; outputs are set by Outputs::attach.
  Operands operands() const;
  /// Throws UsageError with the library's reason unless problem, tensors and lengths fit together.
  void require_valid() const;
};

/// Random normal inputs for a problem that is not packed. Where the problem has them, the bias is normal too, the mask
/// drops one key in four, used lengths are spread over 0..s, ALiBi has the usual slopes, and first keys go from 0 to
/// half of s.
Instance make_instance(const Attention& problem, std::uint64_t seed, Layout layout = Layout::bshd);
/// The same for packed sequences of these lengths.
Instance make_packed_instance(Attention problem, const std::vector<std::int64_t>& lengths_q,
                              const std::vector<std::int64_t>& lengths_k, std::uint64_t seed);

/// The same for a KV cache with these lengths in use, whose pages are shuffled. make_instance makes one that is full.
Instance make_cache_instance(const Attention& problem, const Lengths& used, std::uint64_t seed,
                             Layout layout = Layout::bshd);
/// Lengths of b sequences from 1 to `most`, log-normal with deviation 0.7, and their mean as nearly as that allows.
Lengths ragged_lengths(std::int64_t b, std::int64_t mean, std::int64_t most);

/// 2^(-8 (h + 1) / heads), Press et al. 2022, section 3.
std::vector<float> usual_slopes(std::int64_t heads);
/// One number a head, as ALiBi's slopes.
HostTensor make_head_numbers(const std::vector<float>& values);

/// What one run writes. It is filled with NaN before the run, so that an element that was not written is noticed.
struct Outputs : OperandTensors {
  /// o_dtype is the problem's type, or f32 for a reference that is not rounded.
  Outputs(const Instance& instance, DType o_dtype, Layout layout = Layout::bshd);
  void clear()
      const;  ///< fills with zeros instead, for files, since a run leaves rows past the used lengths as they are
};

/// A plan and its workspace, for operands in the host's memory.
class Prepared {
 public:
  /// Throws UsageError with the library's reason when there is no plan.
  Prepared(const Attention& problem, const Target& target) : Prepared(problem, Pass::forward, target) {}
  Prepared(const Attention& problem, Pass pass, const Target& target);
  Prepared(const LinearAttention& problem, Pass pass, const Target& target);
  Prepared(const Gemm& problem, const Target& target);
  Prepared(const Norm& problem, const Target& target);  // forward
  Prepared(const Norm& problem, Pass pass, const Target& target);
  Prepared(const Quantise& problem, const Target& target);
  /// A plan for a GPU copies there and back. measure_gpu.hpp is for timing it.
  Status run(const Operands& operands) const;
  Status run(const LinearOperands& operands) const;
  Status run(const GemmOperands& operands) const;
  Status run(const NormOperands& operands) const;
  Status run(const QuantiseOperands& operands) const;
  bool on_gpu() const;
  const Plan& plan() const { return plan_; }

 private:
  void take_workspace();

  Plan plan_;
  Buffer workspace_;
};

}  // namespace falchion::tools
