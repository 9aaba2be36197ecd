// src/api/check.hpp: a list of requirements; the first failure is reported.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "falchion/falchion.hpp"
#include "plan/text.hpp"

namespace falchion {

class Check {
 public:
  /// The parts become text only on failure. A later failure never hides an earlier one.
  template <class... Parts>
  bool require(bool holds, const Parts&... why) {
    return holds || refuse(Code::invalid, why...);
  }
  template <class... Parts>
  bool supported(bool holds, const Parts&... why) {
    return holds || refuse(Code::unsupported, why...);
  }
  bool ok() const { return status_.code == Code::ok; }
  Status take() { return std::move(status_); }

 private:
  template <class... Parts>
  bool refuse(Code code, const Parts&... why) {
    if (ok()) status_ = {code, text(why...)};
    return false;
  }
  Status status_;
};

/// For catch (...) of a function that must not throw. An exception's own text is kept: it may come from the caller's
/// executor. The other texts are short enough to need no memory themselves.
inline Status caught() noexcept {
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) { return {Code::device, "out of memory"}; } catch (const std::exception& e) {
      return {Code::device, text("an exception: ", e.what())};
    } catch (...) { return {Code::device, "an exception"}; }
  } catch (...) { return {Code::device, "out of memory"}; }  // of the text above
}

}  // namespace falchion
