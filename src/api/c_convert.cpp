// src/api/c_convert.cpp: see c_convert.hpp.
#include "api/c_convert.hpp"

namespace falchion {
namespace {

thread_local char kept_why[2048] = "";  // fixed: telling of a failure must not fail

}  // namespace

fal_status report(const Status& status) noexcept {
  const std::size_t length = std::min(status.why.size(), sizeof kept_why - 1);
  std::memcpy(kept_why, status.why.data(), length);
  kept_why[length] = '\0';
  return static_cast<fal_status>(status.code);
}

const char* last_why() noexcept { return kept_why; }

Tensor to_tensor(const char* name, const fal_tensor& x, Check* check) {
  Tensor out;
  out.data = x.data;
  check_reserved(x.reserved, check, name, ".reserved");
  out.dtype = to_enum(x.dtype, kLastDType, check, name, ".dtype");
  std::copy(x.shape, x.shape + 4, out.shape.begin());
  std::copy(x.stride, x.stride + 4, out.stride.begin());
  return out;
}

Target to_target(const fal_target* from, Check* check) {
  Target out;
  fal_target x;
  if (from == nullptr || !copy("target", from, &x, check)) return out;
  out.backend = to_enum(x.backend, Backend::sm90, check, "backend");
  out.threads = x.threads;
  out.sm = x.sm;
  out.cpu_level = x.cpu_level;
  out.segments = x.segments;
  const bool use_device = to_flag(x.use_device, check, "use_device");
  check->require(use_device || x.device == 0, "device = ", x.device, " with use_device = 0: set use_device");
  check->require(!use_device || x.device >= 0, "device = ", x.device, ": it must be CUDA's number of a device");
  if (use_device) out.device = x.device;
  out.trust_pointers = to_flag(x.trust_pointers, check, "trust_pointers");
  out.sms = x.sms;
  check_reserved(x.reserved, check, "target.reserved");
  fal_executor executor;
  if (x.executor != nullptr && copy("executor", x.executor, &executor, check)) {
    check->require(executor.parallel_for != nullptr, "executor.parallel_for is null");
    check_reserved(executor.reserved, check, "executor.reserved");
    out.executor = {executor.parallel_for, executor.self, executor.threads};
  }
  return out;
}

}  // namespace falchion
