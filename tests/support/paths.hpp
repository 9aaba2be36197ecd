// tests/support/paths.hpp: every way to run a problem on this machine, which are ref and each CPU level. The
// executables with the prefix cuda_ (FALCHION_TEST_CUDA) are the same sources compiled once more. There the ways are
// sm80 and, on Hopper, the best: sm90 where that has a variant, else sm80.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "falchion/falchion.hpp"
#include "plan/text.hpp"
#include "support/instance.hpp"

namespace falchion::testing {

inline constexpr const char *kAttention = "attention_forward", *kAttentionBackward = "attention_backward",
                            *kLinearForward = "linear_attention_forward",
                            *kLinearBackward = "linear_attention_backward";

struct Path {
  Backend backend = Backend::ref;
  std::string level;  // This names a level of the CPU.

  std::string name() const;
  bool on_gpu() const { return backend != Backend::ref && backend != Backend::cpu; }
  /// Whether the variant is built. (-DFALCHION_VARIANTS may leave out some.)
  bool has(DType dtype, const char* operation = kAttention) const;
  Target target(int threads = 3) const;  // The level's name lies in this Path.
  std::string why_not() const;           // Returns why this machine cannot run the path, or an empty string.
};
inline void PrintTo(const Path& path, std::ostream* out) { *out << path.name(); }

inline constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

/// ref, and then each level of this build that has variants of the operation.
std::vector<Path> built_paths(const char* operation = kAttention);
/// Those of them that this machine can run.
std::vector<Path> usable_paths(const char* operation = kAttention);
/// The cuda_ executables: the back end sm90 by name, for f32. The path `best` runs small problems in f32 on sm80. On
/// this path a problem may be unsupported. Other executables have no such path.
std::vector<Path> named_hopper(const char* operation = kAttention);
/// Whether the path's device has memory for a copy of that many bytes. (The host maps its memory sparsely, so there it
/// costs nothing.)
bool has_room(const Path& path, std::size_t bytes);
/// The path for tests that always run on the host's operands: the CPU, or ref where no level is built.
Target host_target();
/// The same for attention of 8-bit q with o of the type: sanitizers' builds have not every type.
Target host_target(DType o);

/// Calls f(path, dtype) for each of these paths and each type.
template <class F>
void on_every_path(const F& f, const char* operation = kAttention) {
  for (const Path& path : usable_paths(operation)) {
    for (const DType dtype : kTypes) {
      if (!path.has(dtype, operation)) continue;
      SCOPED_TRACE(path.name() + " " + name(dtype));
      f(path, dtype);
    }
  }
}

/// The same, and then f(path, f32) for named_hopper() where this machine is one.
template <class F>
void on_every_path_and_named_hopper(const F& f, const char* operation = kAttention) {
  on_every_path(f, operation);
  for (const Path& path : named_hopper(operation)) {
    if (!path.why_not().empty()) continue;
    SCOPED_TRACE("sm90 f32, asked for by name");
    f(path, DType::f32);
  }
}

/// On Hopper the path `best` in 16 bits must have taken kind decode for few rows of such a problem, so that a test of
/// them means that kernel. Elsewhere it looks at nothing.
void expect_decode(const Path& path, const Attention& problem);

/// Bytes on a 64-byte boundary, filled with NaN, because no code may rely on the content of a workspace.
class Workspace {
 public:
  explicit Workspace(std::size_t bytes);
  void* data() const;
  std::size_t size() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::vector<unsigned char> memory_;
};

/// Makes a plan, fills the outputs with poison and runs. On a GPU it runs on copies of the whole allocations, so that
/// gaps, padding, alignment, strides and poison are there byte for byte.
Status run(const Target& target, Instance* x);
/// The same for operands that the caller made. A GPU path copies them as far as their views reach.
Status run_with(const Path& path, const Attention& problem, const Operands& operands);
Status run_with(const Path& path, const Gemm& problem, const GemmOperands& operands);
Status run_with(const Path& path, const Norm& problem, const NormOperands& operands);
Status run_with(const Path& path, const Quantise& problem, const QuantiseOperands& operands);
inline Status run(const Path& path, Instance* x) { return run(path.target(), x); }

}  // namespace falchion::testing
