// tests/support/paths.cpp: implements paths.hpp.
#include "support/paths.hpp"
#include "api/data_of.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "api/validate.hpp"
#include "cpu/levels.hpp"
#include "plan/constants.hpp"
#include "plan/plan_data.hpp"
#include "problem/device_copy.hpp"

namespace falchion::testing {

namespace {

/// Returns the paths of this build for the operation. If usable is true it leaves out those that this machine cannot
/// run.
std::vector<Path> paths(bool usable, const char* operation) {
  std::vector<Path> out;
#if defined(FALCHION_TEST_CUDA)
  constexpr Backend backends[] = {Backend::sm80, Backend::best};
  for (const Backend backend : backends) out.push_back({backend, ""});
#else
  out.push_back({});
  for (const cpu::Level& level : cpu::cpu_levels()) out.push_back({Backend::cpu, level.name});
#endif
  const auto unfit = [=](const Path& path) {
    const bool built =
        std::any_of(std::begin(kTypes), std::end(kTypes), [&](DType x) { return path.has(x, operation); });
    return !built || (usable && !path.why_not().empty());
  };
  out.erase(std::remove_if(out.begin(), out.end(), unfit), out.end());
  return out;
}

}  // namespace

std::string Path::name() const { return backend == Backend::cpu ? level : falchion::name(backend); }

bool Path::has(DType dtype, const char* operation) const {
  if (backend == Backend::ref) return true;
  const auto all = variants();
  return std::any_of(all.begin(), all.end(), [&](const Variant& v) {
    const bool fits = backend == Backend::best ? v.backend != Backend::cpu : v.backend == backend;
    return fits && v.is(operation) && v.dtype == dtype && (backend != Backend::cpu || level == v.level);
  });
}

Target Path::target(int threads) const {
  Target target(backend);
  target.threads = on_gpu() ? 0 : threads;
  target.cpu_level = backend == Backend::cpu ? level.c_str() : nullptr;
  return target;
}

std::string Path::why_not() const {
  if (on_gpu()) {
    const cuda::Device device = cuda::current_device();
    const bool fits = backend == Backend::sm80 ? device.sm >= 80 : device.sm == 90;
    return device.sm == 0 ? device.why_not : fits ? "" : text(device.name, " has architecture ", device.sm);
  }
  for (const cpu::Level& known : cpu::cpu_levels()) {
    if (level == known.name && !known.usable) return known.why_not;
  }
  return "";
}

std::vector<Path> built_paths(const char* operation) { return paths(false, operation); }
std::vector<Path> usable_paths(const char* operation) { return paths(true, operation); }

std::vector<Path> named_hopper(const char* operation) {
#if defined(FALCHION_TEST_CUDA)
  const Path hopper{Backend::sm90, ""};
  if (hopper.has(DType::f32, operation)) return {hopper};
#endif
  (void)operation;
  return {};
}

bool has_room(const Path& path, std::size_t bytes) {
  return !path.on_gpu() || cuda::current_device().memory > bytes + (std::size_t{4} << 30);
}

Target host_target() {
  const auto all = variants();
  const bool built = std::any_of(all.begin(), all.end(),
                                 [](const Variant& v) { return v.kernel_as<cpu::AttentionKernel>() != nullptr; });
  return built ? Backend::cpu : Backend::ref;
}
Target host_target(DType o) {
  const auto all = variants();
  const bool built = std::any_of(all.begin(), all.end(), [&](const Variant& v) {
    return v.dtype == o && v.kernel_as<cpu::AttentionKernel>() != nullptr;
  });
  return built ? Backend::cpu : Backend::ref;
}

void expect_decode(const Path& path, const Attention& a) {
  if (path.backend != Backend::best || a.dtype == DType::f32 || a.h_k == 0) return;  // best is tested on Hopper alone
  const bool few = a.s_q > 0 && a.s_q * (a.h_q / a.h_k) <= tiles::kFewRows;
  const bool moved = a.append && (a.first_k || a.band.align == Align::top_left || a.band.align == Align::at);
  if (!few || moved || a.score.softcap != 0 || a.score.scale < 0 || a.alibi || a.bias || a.mask || a.dropout > 0)
    return;
  Plan plan;
  const Status status = Plan::make(a, Pass::forward, path.target(), &plan);
  ASSERT_TRUE(status) << status.why;
  EXPECT_EQ(data_of(plan)->variant->kind, VariantKind::decode) << plan.explain();
}

Workspace::Workspace(std::size_t bytes) : bytes_(bytes), memory_(bytes + 64, 0xFF) {}
void* Workspace::data() const {
  const auto base = reinterpret_cast<std::uintptr_t>(memory_.data());
  return const_cast<unsigned char*>(memory_.data()) + (64 - base % 64) % 64;
}

Status run(const Target& target, Instance* x) {
  Plan plan;
  if (Status status = Plan::make(x->problem, Pass::forward, target, &plan); !status) return status;
  x->poison_outputs();
  x->shares_tiles = Path{data_of(plan)->backend, ""}.on_gpu();
  if (x->shares_tiles) {
    std::vector<cuda::Bytes> whole;
    for (const HostTensor* tensor : x->tensors()) whole.push_back({tensor->memory(), tensor->memory_bytes()});
    return cuda::run_on_device(plan, x->problem, x->operands(), whole);
  }
  const Workspace workspace(plan.workspace_bytes());
  return plan.run(x->operands(), workspace.data(), workspace.size());
}

namespace {

/// pass: that of a problem which has passes.
template <class Problem, class AnyOperands, class... PassIfAny>
Status plan_and_run(const Path& path, const Problem& problem, const AnyOperands& operands, PassIfAny... pass) {
  Plan plan;
  if (Status status = Plan::make(problem, pass..., path.target(), &plan); !status) return status;
  // Operands that must be refused may have views that reach anywhere, so they are handed over as they are.
  if (path.on_gpu() && validate_operands(problem, pass_of(operands), operands))
    return cuda::run_on_device(plan, problem, operands);
  const Workspace workspace(plan.workspace_bytes());
  return plan.run(operands, workspace.data(), workspace.size());
}

}  // namespace

Status run_with(const Path& path, const Attention& problem, const Operands& operands) {
  return plan_and_run(path, problem, operands, Pass::forward);
}
Status run_with(const Path& path, const Gemm& problem, const GemmOperands& operands) {
  return plan_and_run(path, problem, operands);
}
Status run_with(const Path& path, const Norm& problem, const NormOperands& operands) {
  return plan_and_run(path, problem, operands);
}
Status run_with(const Path& path, const Quantise& problem, const QuantiseOperands& operands) {
  return plan_and_run(path, problem, operands);
}

}  // namespace falchion::testing
