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
  check->require(x.reserved == 0, "a tensor's reserved field is not 0");
  out.dtype = to_enum(name, x.dtype, DType::boolean, check);
  std::copy(x.shape, x.shape + 4, out.shape.begin());
  std::copy(x.stride, x.stride + 4, out.stride.begin());
  return out;
}

Target to_target(const fal_target* from, Check* check) {
  Target out;
  fal_target x;
  if (from == nullptr || !copy("target", from, &x, check)) return out;
  out.backend = to_enum("backend", x.backend, Backend::sm90, check);
  out.threads = x.threads, out.sm = x.sm, out.cpu_level = x.cpu_level, out.segments = x.segments;
  check->require(x.reserved == 0 && x.reserved2 == 0, "target: a reserved field is not 0");
  fal_executor executor;
  if (x.executor != nullptr && copy("executor", x.executor, &executor, check)) {
    check->require(executor.parallel_for != nullptr, "executor.parallel_for is null");
    check->require(executor.reserved == 0, "executor: a reserved field is not 0");
    out.executor = {executor.parallel_for, executor.self, executor.threads};
  }
  return out;
}

}  // namespace falchion
