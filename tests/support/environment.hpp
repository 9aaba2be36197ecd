// tests/support/environment.hpp: sets FALCHION_CPU for a test.
#pragma once

#include <cstdlib>
#include <string>

namespace falchion::testing {

/// Sets FALCHION_CPU while this object lives, and then restores it.
class ForcedByTheEnvironment {
 public:
  explicit ForcedByTheEnvironment(const char* level) {
    if (const char* before = std::getenv("FALCHION_CPU")) kept_ = before;
    setenv("FALCHION_CPU", level, 1);
  }
  ~ForcedByTheEnvironment() { setenv("FALCHION_CPU", kept_.c_str(), 1); }  // An empty variable counts as unset.
  ForcedByTheEnvironment(const ForcedByTheEnvironment&) = delete;
  ForcedByTheEnvironment& operator=(const ForcedByTheEnvironment&) = delete;

 private:
  std::string kept_;
};

}  // namespace falchion::testing
