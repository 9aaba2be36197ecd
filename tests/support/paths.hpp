// tests/support/paths.hpp: every way to run a problem on this machine: ref, and each CPU level.
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

struct Path {
  Backend backend = Backend::ref;
  std::string level;  // of the CPU

  std::string name() const;
  bool has(DType dtype) const;           // is the row built? (-DFALCHION_VARIANTS may leave out some)
  Target target(int threads = 3) const;  // the level's name lies in this Path
};
inline void PrintTo(const Path& path, std::ostream* out) { *out << path.name(); }

inline constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

/// ref, then each level of this build that this machine can run.
std::vector<Path> usable_paths();

/// Calls f(path, dtype) for each of them and each type.
template <class F>
void on_every_path(const F& f) {
  for (const Path& path : usable_paths()) {
    for (const DType dtype : kTypes) {
      if (!path.has(dtype)) continue;
      SCOPED_TRACE(path.name() + " " + name(dtype));
      f(path, dtype);
    }
  }
}

/// Bytes on a 64-byte boundary, filled with NaN: a workspace whose content nobody may rely on.
class Workspace {
 public:
  explicit Workspace(std::size_t bytes);
  void* data() const;
  std::size_t size() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::vector<unsigned char> memory_;
};

/// Plans, poisons the outputs, runs.
Status run(const Target& target, Instance* x);
inline Status run(const Path& path, Instance* x) { return run(path.target(), x); }

}  // namespace falchion::testing
